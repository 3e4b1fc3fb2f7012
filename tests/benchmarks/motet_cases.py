"""What is measured of Motet: whole episodes of one env, played in every way, and its snapshots."""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from measure import Case, Run

from motet import envs
from motet.envs.story_length_ratio import PROMPTS
from motet.envs.text_batch import TextBatch
from motet.envs.wrappers import RewardShaping, TimeLimit, Wrapper

ENV_ID = "story-length-ratio-v0"
ACTIONS = {
    "agent_0": "A town floats above the hills, " * 4,
    "agent_1": "and nobody there has ever seen it rain. " * 8,
}
BATCH_SIZE = 64
STEP_TARGET = 20_000
BATCH_TARGET = 50_000
CLONE_TARGET_US = 20
DATASET_SIZES = (10, 1_000, 100_000)
HISTORY_TURNS = 4


class Shout(Wrapper):
    """Change what agents say, and see what comes back."""

    def before_step(self, memory: Any, actions: Mapping[str, str]) -> dict[str, str]:
        del memory
        return {agent: text.upper() for agent, text in actions.items()}


class Count(Wrapper):
    """Remember something of the episode."""

    def after_step(self, memory: Any, actions: Any, result: Any) -> tuple[int, Any]:
        del actions
        return (memory or 0) + 1, result


def bare(env: Any) -> Any:
    return env


def behind_hooks(env: Any) -> Any:
    return Count(Shout(env))


def behind_limit_and_shaping(env: Any) -> Any:
    return RewardShaping(TimeLimit(env, 100), "improvement")


WRAPPINGS: dict[str, Callable[[Any], Any]] = {
    "": bare,
    ", 2 wrappers of hooks": behind_hooks,
    ", TimeLimit and RewardShaping": behind_limit_and_shaping,
}


def step_cases() -> list[Case]:
    """Return the cases in agent-steps per second."""
    cases = []
    for turns in (1, 2):
        for suffix, wrap in WRAPPINGS.items():
            for name, make, target in (
                ("step", plain_steps, STEP_TARGET),
                (f"step_batch of {BATCH_SIZE}", batched_steps, BATCH_TARGET),
                (f"TextBatch of {BATCH_SIZE}", text_batch_steps, BATCH_TARGET),
            ):
                made = partial(make, turns, wrap)
                cases.append(
                    Case(
                        steps_section(turns),
                        f"motet: {name}{suffix}",
                        "agent-steps/s",
                        made,
                        target,
                    )
                )
    return cases


def steps_section(num_turns: int) -> str:
    return f"agent-steps per second, episodes of {num_turns} turn{'s' * (num_turns > 1)}"


def snapshot_cases() -> list[Case]:
    """Return the cases in microseconds per call."""
    section = "microseconds per snapshot"
    cases = []
    for turns in (0, HISTORY_TURNS):
        for size in DATASET_SIZES:
            made = partial(clones, size, turns)
            cases.append(Case(section, clone_name(size, turns), "µs", made, CLONE_TARGET_US))
    shuffled = partial(clones, DATASET_SIZES[-1], HISTORY_TURNS, shuffle=True)
    wrapped = partial(clones, DATASET_SIZES[-1], HISTORY_TURNS, wrap=behind_hooks)
    kept = partial(saves, DATASET_SIZES[-1], HISTORY_TURNS)
    restored = partial(restores, DATASET_SIZES[-1], HISTORY_TURNS)
    where = where_name(DATASET_SIZES[-1], HISTORY_TURNS)
    cases += [
        Case(section, f"motet: clone, shuffled, {where}", "µs", shuffled, CLONE_TARGET_US),
        Case(
            section, f"motet: clone, 2 wrappers of hooks, {where}", "µs", wrapped, CLONE_TARGET_US
        ),
        Case(section, f"motet: get_state, {where}", "µs", kept),
        Case(section, f"motet: set_state, {where}", "µs", restored),
    ]
    for size in DATASET_SIZES:
        made = partial(deep_copies, size, HISTORY_TURNS)
        where = where_name(size, HISTORY_TURNS)
        cases.append(Case(section, f"motet: copy.deepcopy(env), {where}", "µs", made))
    return cases


def clone_name(size: int, turns: int) -> str:
    return f"motet: clone, {where_name(size, turns)}"


def where_name(size: int, turns: int) -> str:
    return f"{size:,} rows, after {turns} turns"


def plain_steps(num_turns: int, wrap: Callable[[Any], Any]) -> Run:
    return parallel_steps(wrap(envs.make(ENV_ID, num_turns=num_turns)), num_turns)


def parallel_steps(env: Any, num_turns: int, actions: Mapping[str, Any] = ACTIONS) -> Run:
    """Play whole episodes of a PettingZoo parallel env."""

    def run(times: int) -> int:
        for _ in range(times):
            env.reset()
            for _ in range(num_turns):
                env.step(actions)
            assert not env.agents
        return times * num_turns * len(actions)

    return run


def batched_steps(num_turns: int, wrap: Callable[[Any], Any]) -> Run:
    env = wrap(envs.make(ENV_ID, num_turns=num_turns))
    rows = [i % len(PROMPTS) for i in range(BATCH_SIZE)]
    joint_actions = [ACTIONS] * BATCH_SIZE

    def run(times: int) -> int:
        for _ in range(times):
            results = env.reset_batch(rows)
            for _ in range(num_turns):
                results = env.step_batch([result.state for result in results], joint_actions)
            assert all(result.ended for result in results)
        return times * num_turns * BATCH_SIZE * len(ACTIONS)

    return run


def text_batch_steps(num_turns: int, wrap: Callable[[Any], Any]) -> Run:
    batch = TextBatch(wrap(envs.make(ENV_ID, num_turns=num_turns)))
    rows = [i % len(PROMPTS) for i in range(BATCH_SIZE)]
    joint_actions = [ACTIONS] * BATCH_SIZE

    def run(times: int) -> int:
        for _ in range(times):
            batch.reset(rows)
            for _ in range(num_turns):
                batch.step(joint_actions)
            assert not any(batch.agents)
        return times * num_turns * BATCH_SIZE * len(ACTIONS)

    return run


def clones(
    size: int, turns: int, *, wrap: Callable[[Any], Any] = bare, shuffle: bool = False
) -> Run:
    env = played(size, turns, wrap=wrap, shuffle=shuffle)

    def run(times: int) -> int:
        for _ in range(times):
            env.clone()
        return times

    return run


def saves(size: int, turns: int) -> Run:
    env = played(size, turns)

    def run(times: int) -> int:
        for _ in range(times):
            env.get_state()
        return times

    return run


def restores(size: int, turns: int) -> Run:
    env = played(size, turns)
    state = env.get_state()

    def run(times: int) -> int:
        for _ in range(times):
            env.set_state(state)
        return times

    return run


def deep_copies(size: int, turns: int) -> Run:
    env = played(size, turns)

    def run(times: int) -> int:
        for _ in range(times):
            copy.deepcopy(env)
        return times

    return run


def played(
    size: int, turns: int, *, wrap: Callable[[Any], Any] = bare, shuffle: bool = False
) -> Any:
    """Return an env of `size` rows, `turns` turns after its reset, with one more to come."""
    dataset = [{"prompt": f"{PROMPTS[i % len(PROMPTS)]} (take {i})"} for i in range(size)]
    env = wrap(envs.make(ENV_ID, num_turns=turns + 1, dataset=dataset, shuffle=shuffle))
    env.reset(seed=0)
    for _ in range(turns):
        env.step(ACTIONS)
    return env
