"""The rule of `check_env` about stepping in batches, which learners prefer where they can.

It takes a factory of fresh environments and one checked episode of the first of its seeds.
"""

from typing import Any

from gymnasium.utils.env_checker import data_equivalence

from motet.envs.checks.played_episode import PARTS, AnyEnv, EnvCheckError, Episode, Factory
from motet.envs.simulator import steps_in_batches

BRANCHES = 2


def check_batches(make_env: Factory, episode: Episode, seed: int) -> None:
    """`reset_batch` gives what `reset` gives, and `step_batch` from each state what `step` gives.

    A wrapper whose hooks keep something on the wrapper itself, instead of in the memory that they
    return, breaks this.
    """
    env = make_env()
    if not steps_in_batches(env):
        return
    env.reset(seed=seed)
    _check_resets(env, env.unwrapped.get_state().row, seed)
    states = [env.get_state()] * BRANCHES
    for i, turn in enumerate(episode.turns, start=1):
        # all are siblings of one group, as those that a learner samples
        results = env.step_batch(states, [turn.actions] * BRANCHES, [0] * BRANCHES)
        for branch, result in enumerate(results):
            for name, expected in zip(PARTS, turn.results, strict=True):
                _expect_same(f"{name} of step {i}", expected, getattr(result, name), branch)
            _expect_same(f"agents after step {i}", turn.agents, result.live, branch)
        states = [result.state for result in results]
    if list(env.agents) != episode.agents:
        raise EnvCheckError(
            "batches",
            f"expected step_batch() to leave the env's own episode alone, but its agents are "
            f"{env.agents}",
        )


def _check_resets(env: AnyEnv, row: int, seed: int) -> None:
    # one seed for all: what a writer is asked in company may depend on who else asks
    results = env.reset_batch([row] * BRANCHES, seeds=[seed] * BRANCHES)
    started = env.clone().reset(seed=seed, options={"row": row})
    for branch, result in enumerate(results):
        for name, expected in zip(("observations", "infos"), started, strict=True):
            what = f"{name} after reset to row {row}"
            _expect_same(what, expected, getattr(result, name), branch, "reset")


def _expect_same(what: str, expected: Any, got: Any, branch: int, method: str = "step") -> None:
    if not data_equivalence(expected, got, exact=True):
        raise EnvCheckError(
            "batches",
            f"expected {what} to be the same by {method}_batch() as by {method}(), but it was "
            f"{expected!r:.300} and is {got!r:.300} in branch {branch}",
        )
