"""Training and evaluation on a stream of rows: in its order, and never read further than needed."""

import itertools

import pytest
from datasets import IterableDataset
from tiny import letter_agent, tiny_agent

from motet.agents import FixedAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer, evaluate
from motet.envs import StreamedRows, TextEnv

NAMES = ("agent_0", "agent_1")
QUIET = {"progress_bar": False}


def same(first: list[str], second: list[str]) -> list[float]:
    return [float(a == b != "") for a, b in zip(first, second, strict=True)]


class Letters:
    """A stream that counts the rows it gives; endless where `size` is None."""

    def __init__(self, size: int | None, prompt: str = "abcd") -> None:
        self.size = size
        self.prompt = prompt
        self.given = 0

    def __iter__(self):
        indices = itertools.count() if self.size is None else range(self.size)
        for index in indices:
            self.given += 1
            yield {"prompt": self.prompt[index % len(self.prompt)]}


def stream_env(stream: Letters, cache_size: int = 10_000) -> TextEnv:
    return TextEnv(StreamedRows(stream, cache_size=cache_size), same)


def team() -> dict:
    return {name: letter_agent(i) for i, name in enumerate(NAMES)}


def trained_rows(trainer: MAGRPOTrainer) -> list[list[int]]:
    """Train, and return the rows of each rollout."""
    seen = []
    collect = trainer.collect

    def recording(rows):
        rollout = collect(rows)
        seen.append([node.row for node in rollout.levels[0]])
        return rollout

    trainer.collect = recording
    trainer.train()
    return seen


def test_rows_are_taken_one_after_the_other_and_again_from_the_first() -> None:
    config = MAGRPOConfig(num_rollouts=4, rollout_batch_size=3, num_generations=2, **QUIET)
    trainer = MAGRPOTrainer(stream_env(Letters(7), cache_size=2), team(), config)
    assert trained_rows(trainer) == [[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 3, 4]]


def test_a_stream_shorter_than_a_rollout_repeats_within_it() -> None:
    config = MAGRPOConfig(num_rollouts=1, rollout_batch_size=5, num_generations=2, **QUIET)
    trainer = MAGRPOTrainer(stream_env(Letters(2)), team(), config)
    assert trained_rows(trainer) == [[0, 1, 0, 1, 0]]


def test_an_endless_stream_is_read_as_far_as_it_is_used() -> None:
    stream, held_out = Letters(None), Letters(None)
    config = MAGRPOConfig(
        num_rollouts=5, rollout_batch_size=2, num_generations=2, eval_num_samples=3, **QUIET
    )
    trainer = MAGRPOTrainer(stream_env(stream), team(), config, eval_env=stream_env(held_out))
    assert stream.given == held_out.given == 1  # the first row, when the env was built
    trainer.train()
    assert stream.given == 10
    assert held_out.given == 3
    assert [node.row for node in trainer.evaluate().rollout.levels[0]] == [0, 1, 2]


def test_the_default_is_a_hundred_rollouts_and_it_learns() -> None:
    stream = IterableDataset.from_generator(lambda: ({"prompt": letter} for letter in "abcd" * 10))
    parts = {"reward_func": same, "train_dataset": stream, "eval_dataset": stream.take(4)}
    agents = list(team().values())
    config = MAGRPOConfig(
        rollout_batch_size=4,
        num_generations=8,
        agent_learning_rate=0.02,
        eval_num_samples=50,
        eval_interval=0,
        **QUIET,
    )
    trainer = MAGRPOTrainer(agents=agents, args=config, **parts)
    before = trainer.evaluate(num_samples=20).metrics["reward_mean"]
    rollouts = trained_rows(trainer)
    assert len(rollouts) == 100
    assert rollouts[9:11] == [[36, 37, 38, 39], [0, 1, 2, 3]]
    assert before < 0.5
    assert trainer.evaluate(num_samples=20).metrics["reward_mean"] > 0.9


def test_epochs_of_a_stream_are_refused() -> None:
    for read_to_the_end in (False, True):
        env = stream_env(Letters(7))
        if read_to_the_end:
            assert not env.dataset.has_row(7)
        with pytest.raises(ValueError, match=r"num_rollouts for an env with a stream.*epochs=2"):
            MAGRPOTrainer(env, team(), MAGRPOConfig(num_train_epochs=2, **QUIET))


def test_evaluation_on_a_stream_needs_a_limit() -> None:
    sentence = "Expected eval_num_samples, .* stream"
    with pytest.raises(ValueError, match=sentence):
        MAGRPOTrainer(
            stream_env(Letters(7)), team(), MAGRPOConfig(**QUIET), eval_env=stream_env(Letters(3))
        )
    trainer = MAGRPOTrainer(stream_env(Letters(7)), team(), MAGRPOConfig(**QUIET))
    with pytest.raises(ValueError, match=sentence):
        trainer.evaluate()
    fixed = dict.fromkeys(NAMES, FixedAgent("a"))
    env = stream_env(Letters(7))
    with pytest.raises(ValueError, match=r"rows=, such as range\(100\), for an env with a stream"):
        evaluate(env, fixed)
    assert evaluate(env, fixed, range(5)).metrics["reward_mean"] == 1.0
    with pytest.raises(IndexError, match="row from 0 to 6, got 7"):
        evaluate(env, fixed, range(8))


def test_a_limit_beyond_the_end_takes_all() -> None:
    config = MAGRPOConfig(eval_num_samples=50, **QUIET)
    trainer = MAGRPOTrainer(stream_env(Letters(7)), team(), config, eval_env=stream_env(Letters(3)))
    assert [node.row for node in trainer.evaluate().rollout.levels[0]] == [0, 1, 2]


def test_prompts_of_the_first_rollout_and_of_the_evaluation_are_checked() -> None:
    agents = {name: tiny_agent(i, context=64) for i, name in enumerate(NAMES)}
    long = "x" * 60
    cases = [
        (Letters(None, ["a", long]), Letters(None), ValueError),
        (Letters(None), Letters(None, ["a", "b", long]), ValueError),
    ]
    config = MAGRPOConfig(
        num_rollouts=1, rollout_batch_size=2, num_generations=2, eval_num_samples=3, **QUIET
    )
    for stream, held_out, exception in cases:
        trainer = MAGRPOTrainer(stream_env(stream), agents, config, eval_env=stream_env(held_out))
        with pytest.raises(exception, match="a prompt of at most"):
            trainer.train()
        assert trainer.num_env_steps == 0
