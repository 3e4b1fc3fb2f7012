"""Check that an environment keeps the contract that learners rely on.

    from motet.envs import check_env

    check_env("story-length-ratio-v0", num_turns=2)     # an id
    check_env(lambda: MyWrapper(MyEnv()))               # a factory of fresh environments
    check_env(my_env)                                   # an instance that has clone()

PettingZoo's own tests pass most faulty text environments: they do not look whether observations
lie in their space, whether rewards are finite, or at any but the first step of a seeded episode.
So this plays whole episodes, and every rule is an error with the value that broke it. The order:
each step of an episode (`played_episode`), rules that need several episodes (`env_rules`), those
about snapshots and clones (`snapshot_rules`), about stepping in batches (`batch_rules`), and last
PettingZoo's `parallel_api_test`, `parallel_seed_test` and AEC `seed_test`, where what they only
warn about is an error too. A task registered with `nondeterministic=True`, since a model judges it,
say, is spared what compares two playings of one episode.

Actions are sampled from the action spaces, and some are unusual texts, so the reward function and
the transition of a task are called about thirty times per turn and seed.
"""

import contextlib
import functools
import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pettingzoo
from pettingzoo.utils.conversions import parallel_to_aec

from motet.envs.checks import batch_rules, env_rules, snapshot_rules
from motet.envs.checks.played_episode import AnyEnv, EnvCheckError, Factory, play
from motet.envs.registration.by_id import spec
from motet.envs.registration.env_spec import EnvSpec

__all__ = ["EnvCheckError", "check_env"]

_RULES = (
    env_rules.check_spaces,
    env_rules.check_num_turns,
    env_rules.check_deterministic,
    env_rules.check_seeded_stream,
    env_rules.check_options,
    env_rules.check_global_rng,
    env_rules.check_step_after_end,
    env_rules.check_bad_actions,
    env_rules.check_edge_texts,
    snapshot_rules.check_methods,
    snapshot_rules.check_clone_is_whole,
    snapshot_rules.check_set_state,
    snapshot_rules.check_seeded_branches,
    snapshot_rules.check_stream_restored,
    snapshot_rules.check_clone_is_apart,
    batch_rules.check_batches,
)
# What compares two playings of one episode says nothing of a task that is declared to differ.
_REPLAY_RULES = {
    env_rules.check_deterministic,
    env_rules.check_seeded_stream,
    env_rules.check_options,
    snapshot_rules.check_set_state,
    snapshot_rules.check_seeded_branches,
    snapshot_rules.check_stream_restored,
    snapshot_rules.check_clone_is_apart,
    batch_rules.check_batches,
}


def check_env(
    env: str | EnvSpec | AnyEnv | Callable[..., AnyEnv],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    **make_kwargs: Any,
) -> None:
    """Raise unless an environment keeps all rules.

    Args:
        env: an id or an `EnvSpec`, a factory of fresh environments such as the class, or a
            `ParallelEnv` instance that has `clone()`; an instance is left as it is.
        seeds: seeds of the episodes; at least one.
        **make_kwargs: keyword arguments for `make` or for the factory.

    Raises:
        EnvCheckError: the environment breaks a rule; it says which, and with which value.
        TypeError: `env` is nothing that gives environments, or an instance with `make_kwargs`.
        ValueError: `seeds` is empty.
    """
    if not seeds:
        raise ValueError("Expected at least one seed, got none.")
    make_env = _factory(env, make_kwargs)
    made = make_env()
    if not isinstance(made, pettingzoo.ParallelEnv):
        raise TypeError(f"Expected a factory of ParallelEnvs, got one of {made!r}.")
    declared = getattr(made.unwrapped, "spec", None)
    replays = not getattr(declared, "nondeterministic", False)
    for seed in seeds:
        make_seeded = functools.partial(_seeded, make_env, seed)
        episode = play(make_seeded(), seed)
        for rule in _RULES:
            if replays or rule not in _REPLAY_RULES:
                rule(make_seeded, episode, seed)
    _run_pettingzoo_tests(make_env, replays=replays)


def _factory(env: Any, make_kwargs: dict[str, Any]) -> Factory:
    if isinstance(env, str | EnvSpec):
        env_spec = spec(env) if isinstance(env, str) else env
        return functools.partial(env_spec.make, **make_kwargs)
    if isinstance(env, pettingzoo.ParallelEnv):
        if make_kwargs:
            raise TypeError(
                f"Expected keyword arguments only with an id or a factory, got {list(make_kwargs)} "
                f"with the instance {env}."
            )
        snapshot_rules.require_methods(env)
        snapshot_rules.require_whole(env, env.clone())  # what is checked is a clone
        clone: Factory = env.clone
        return clone
    if callable(env):
        return functools.partial(env, **make_kwargs)
    raise TypeError(f"Expected an id, an EnvSpec, a factory or a ParallelEnv, got {env!r}.")


def _seeded(make_env: Factory, seed: int) -> AnyEnv:
    """Make an environment whose sampled actions, and with them this check, are reproducible."""
    env = make_env()
    for i, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(seed + i)
    return env


def _run_pettingzoo_tests(make_env: Factory, *, replays: bool) -> None:
    from pettingzoo.test import (  # noqa: PLC0415  # it imports pytest and pygame where they are
        parallel_api_test,
        parallel_seed_test,
        seed_test,
    )

    tests: dict[str, Callable[[], None]] = {
        "parallel_api_test": lambda: parallel_api_test(make_env()),
    }
    if replays:
        tests["parallel_seed_test"] = lambda: parallel_seed_test(make_env)
        tests["seed_test of parallel_to_aec"] = lambda: seed_test(
            lambda: parallel_to_aec(make_env())
        )
    for name, test in tests.items():
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.filterwarnings("error", category=UserWarning, module=r"pettingzoo\.")
            try:
                test()
            except (AssertionError, UserWarning) as exc:
                raise EnvCheckError(f"PettingZoo's {name}", str(exc)) from exc
