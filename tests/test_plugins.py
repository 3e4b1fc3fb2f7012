"""A plug-in package, built and installed for real, adds a task and a learner to a new process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent / "sample_plugin"

# Each script prints what it found, and with it every warning that came on the way.
HEAD = """
import json, sys, warnings
caught = []
warnings.showwarning = lambda message, *rest: caught.append(str(message))
warnings.simplefilter("always")
loaded = lambda: sorted(name for name in sys.modules if name.startswith("motet_sample_plugin."))
"""
TAIL = "print(json.dumps({**found, 'warnings': [w for w in caught if 'plug-in' in w]}))"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the plug-in; its sources are left without build/."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    run = subprocess.run(
        [*pip, "--no-build-isolation", "--target", folder / "site", folder / "source"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return folder / "site"


def found_by(script: str, site: Path, tmp_path: Path) -> dict:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    run = subprocess.run(
        [sys.executable, "-c", f"{HEAD}\n{script}\n{TAIL}"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,  # or the folders of a checkout would be importable
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_a_task_of_an_installed_package_is_made_by_its_id(site: Path, tmp_path: Path) -> None:
    script = """
from motet import envs

found = {"after the import": loaded()}
envs.make("story-length-ratio-v0")
found["after a task of ours"] = loaded()
env = envs.make("sample/echo-v0")
found["after its own"] = loaded()
found["id"] = env.unwrapped.spec.id
env.reset(seed=0)
found["rewards"] = env.step({"agent_0": "word", "agent_1": "word"})[1]
envs.check_env("sample/echo-v0")
"""
    found = found_by(script, site, tmp_path)
    assert found["after the import"] == found["after a task of ours"] == []
    assert found["after its own"] == ["motet_sample_plugin.tasks"]
    assert found["id"] == "sample/echo-v0"
    assert found["rewards"] == {"agent_0": 1.0, "agent_1": 1.0}
    assert len(found["warnings"]) == 1
    assert found["warnings"][0] == (
        "The plug-in broken = motet_sample_plugin.broken of the group motet.envs was not loaded: "
        "ModuleNotFoundError: No module named 'a_package_that_is_not_installed'"
    )


def test_the_table_of_all_tasks_loads_plugins_and_warns_once(site: Path, tmp_path: Path) -> None:
    script = """
from motet import envs

tables = [envs.pprint_registry(disable_print=True) for _ in range(2)]
try:
    envs.make("sample/ecko-v0")
except Exception as exc:
    found = {"miss": f"{type(exc).__name__}: {exc}", "tables": tables}
"""
    found = found_by(script, site, tmp_path)
    first, second = found["tables"]
    assert first == second
    row = next(line for line in first.splitlines() if line.startswith("sample/echo-v0"))
    assert row.split()[1:5] == ["2", "1", "[0,", "1]"]
    assert "motet_sample_plugin.tasks:echo_reward" in row
    assert "NameNotFound" in found["miss"]
    assert "Did you mean: echo?" in found["miss"]
    assert len(found["warnings"]) == 1


def test_a_learner_of_an_installed_package_is_made_by_its_name(site: Path, tmp_path: Path) -> None:
    script = f"""
sys.path.append({str(Path(__file__).parent)!r})
from tiny import letter_agent, matching_env

from motet import algos

found = {{"after the import": loaded()}}
team = {{name: letter_agent(i) for i, name in enumerate(("agent_0", "agent_1"))}}
config = algos.MAGRPOConfig(num_generations=2, num_train_epochs=1, progress_bar=False)
learner = algos.make("sample-median", matching_env(), team, config)
learner.train()
found["after its own"] = loaded()
found["learner"] = type(learner).__name__
found["misses"] = []
for _ in range(2):
    try:
        algos.make("sample-medium", matching_env(), team)
    except KeyError as exc:
        found["misses"].append(str(exc))
"""
    found = found_by(script, site, tmp_path)
    assert found["after the import"] == []
    assert found["after its own"] == ["motet_sample_plugin.learners"]
    assert found["learner"] == "MAGRPOTrainer"
    assert len(found["misses"]) == 2
    assert all("Did you mean 'sample-median'?" in miss for miss in found["misses"])
    assert len(found["warnings"]) == 1
    assert "broken = motet_sample_plugin.broken of the group motet.algos" in found["warnings"][0]
