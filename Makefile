# `make demo` and `make test` are the two commands of the README; both work on a machine that has
# nothing but Python and make. Every target builds .venv first where it is missing or out of date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The libraries that we measure ourselves against; the project itself never needs them.
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready
PEERS_VENV := .venv-bench-peers
PEERS_READY := $(PEERS_VENV)/.ready
# One torch thread for each of two workers: more threads than cores wait for each other for seconds.
# No test needs the hub, and without a network asking it takes long.
PYTEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadfile
# Where the type checker looks: the same namespace that the wheel installs.
TYPES := .types

.DEFAULT_GOAL := help
.PHONY: help demo test slow real lint format type build clean \
	bench-env bench bench-learning bench-scaling bench-adapters bench-gpu compare

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Expected Python 3.11 or newer, got " + sys.version.split()[0] + "; set PYTHON=python3.12, say.")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY) ## train a pair of small writers in front of you: two turns, three minutes
	$(BIN)/python examples/story_len_ratio.py --preset demo --output-dir out/demo

test: $(READY) ## run the fast tests
	$(PYTEST) -m "not slow"

slow: $(READY) ## run the slow tests: real pretrained weights, minutes
	$(PYTEST) -m slow

real: $(READY) ## train two SmolLM2-135M-Instruct writers for a few steps
	$(BIN)/python examples/story_len_ratio.py --preset real --output-dir out/real

lint: $(READY) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(READY) ## check types
	@mkdir -p $(TYPES)/motet
	@for folder in envs agents algos; do ln -sfn ../../$$folder $(TYPES)/motet/$$folder; done
	MYPYPATH=$(TYPES) $(BIN)/mypy --namespace-packages --explicit-package-bases \
		-p motet.envs -p motet.agents -p motet.algos
	MYPYPATH=$(TYPES):examples $(BIN)/mypy --namespace-packages --explicit-package-bases examples

build: $(READY) ## build the wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist .

$(BENCH_READY): pyproject.toml constraints.txt tests/benchmarks/requirements.txt
	@test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(BENCH_VENV)/bin/python -m pip install --quiet --constraint constraints.txt \
		--requirement tests/benchmarks/requirements.txt
	$(BENCH_VENV)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $(BENCH_READY)

bench-env: $(BENCH_READY) ## measure env steps and clones, beside TextArena and PettingZoo
	OMP_NUM_THREADS=1 $(BENCH_VENV)/bin/python tests/benchmarks/bench_env.py $(ARGS)

$(PEERS_READY): pyproject.toml constraints.txt tests/benchmarks/requirements-peers.txt
	@test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(PEERS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt \
		--requirement tests/benchmarks/requirements-peers.txt
	$(PEERS_VENV)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $(PEERS_READY)

# Where the peers cannot be installed, their rows say so and Motet is measured all the same.
bench: $(READY) ## measure training, beside CoMLRL and TRL: 20 to 40 minutes
	-@$(MAKE) --no-print-directory $(PEERS_READY)
	$(BIN)/python tests/benchmarks/bench_peers.py $(ARGS)

bench-learning: $(READY) ## measure how long it takes to learn, beside CoMLRL: three quarters of an hour
	-@$(MAKE) --no-print-directory $(PEERS_READY)
	$(BIN)/python tests/benchmarks/bench_learning.py $(ARGS)

bench-scaling: $(READY) ## measure what a token costs by width: minutes
	$(BIN)/python tests/benchmarks/bench_scaling.py $(ARGS)

bench-adapters: $(READY) ## measure what agents over one base cost, in memory and time: a minute
	$(BIN)/python tests/benchmarks/bench_adapters.py $(ARGS)

bench-gpu: $(READY) ## the comparison of `make bench` on one CUDA GPU: five minutes
	@$(BIN)/python tests/benchmarks/bench_gpu.py --check-gpu
	-@$(MAKE) --no-print-directory $(PEERS_READY)
	$(BIN)/python tests/benchmarks/bench_gpu.py $(ARGS)

# Every run that is done leaves a file in out/compare/, so that it can be stopped and gone on with.
compare: $(READY) ## train the learners on four tasks from five seeds: hours
	$(BIN)/python tests/benchmarks/compare_learners.py $(ARGS)

clean: ## remove everything that was built
	rm -rf $(VENV) $(BENCH_VENV) $(PEERS_VENV) $(TYPES) build dist out *.egg-info
