"""What is measured beside Motet: the same loop in other libraries, and without one.

- A `ParallelEnv` by hand with the same reward and feedback and nothing else: no checks, no spaces,
  no history. It is the floor: what any PettingZoo env of this task costs at the least. It has no
  `clone()`, so `copy.deepcopy` stands in.
- TextArena's IteratedMatchingPennies, a two-player game with next to no rules: a search for
  "[heads]" or "[tails]" in each text, and one message per round. Of k rounds it is our episode of k
  turns: two agents, a text of the same length from each, an outcome when both have spoken. Players
  speak one after the other, so an agent-step is a `get_observation` and a `step`. In its favour,
  actions are not checked and rewards come once, at `close`; against it, it keeps a log and writes
  longer prompts. "raw" hands out lists of messages; the default wrappers make strings of them, as
  Motet's observations are. Those keep what they saw through `reset`, and prompts would grow from
  episode to episode, so each episode makes a new env.
- TextArena's IteratedPrisonersDilemma of one talk and one decision, an episode of two turns. What
  one player says, the other reads, so texts travel as they do in Motet's feedback.
- PettingZoo's rock-paper-scissors by its `parallel_env`: integers instead of texts, and a
  turn-based env behind two wrappers and a converter, which are most of its cost. So it tells what
  PettingZoo's stock way to a parallel env costs, not what a parallel env must cost.
"""

import copy
from functools import partial
from typing import Any

from measure import Case, Run
from motet_cases import ACTIONS, DATASET_SIZES, parallel_steps, steps_section
from pettingzoo import ParallelEnv

from motet.envs.story_length_ratio import PROMPTS, length_feedback, length_ratio_reward

RAW_GAME = "IteratedMatchingPennies-v0-raw"
WRAPPED_GAME = "IteratedMatchingPennies-v0"
TALKING_GAME = "IteratedPrisonersDilemma-v0"
MOVES = [f"{text}[heads]" for text in ACTIONS.values()]


def step_cases() -> list[Case]:
    """Return the cases in agent-steps per second."""
    cases = []
    for turns in (1, 2):
        for name, make in (
            ("ParallelEnv by hand: step", hand_written_steps),
            ("TextArena: matching pennies, raw", raw_game_steps),
            ("TextArena: matching pennies, default wrappers", wrapped_game_steps),
            ("PettingZoo: rps_v2.parallel_env", rock_paper_scissors_steps),
        ):
            cases.append(Case(steps_section(turns), name, "agent-steps/s", partial(make, turns)))
    talk = "TextArena: prisoner's dilemma with talk, default wrappers"
    return [*cases, Case(steps_section(2), talk, "agent-steps/s", talking_game_steps)]


def snapshot_cases() -> list[Case]:
    """Return the cases in microseconds per call."""
    section = "microseconds per snapshot"
    deep = "copy.deepcopy(env)"
    cases = [
        Case(
            section,
            f"ParallelEnv by hand: {deep}, {size:,} rows, after 1 turn",
            "µs",
            partial(hand_written_copies, size),
        )
        for size in DATASET_SIZES
    ]
    cases += [
        Case(section, f"TextArena: {deep}, pennies, raw, after 1 round", "µs", raw_game_copies),
        Case(
            section,
            f"TextArena: {deep}, pennies, wrapped, after 1 round",
            "µs",
            wrapped_game_copies,
        ),
        Case(section, f"PettingZoo: {deep}, rps (loses the episode)", "µs", rps_copies),
    ]
    return cases


class HandWritten(ParallelEnv):
    """The task of `story-length-ratio-v0` as one would write it for a single use."""

    metadata = {"name": "hand_written"}  # noqa: RUF012  # PettingZoo's name and type

    def __init__(self, prompts: list[dict[str, str]], num_turns: int) -> None:
        self.prompts = prompts
        self.num_turns = num_turns
        self.possible_agents = list(ACTIONS)
        self.agents: list[str] = []
        self.row = -1
        self.turn = 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        del seed, options
        self.row = (self.row + 1) % len(self.prompts)
        self.turn = 0
        self.agents = self.possible_agents[:]
        prompt = self.prompts[self.row]["prompt"]
        return dict.fromkeys(self.agents, prompt), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, str]) -> tuple[Any, Any, Any, Any, Any]:
        texts = [actions[agent] for agent in self.agents]
        reward = length_ratio_reward([texts[0]], [texts[1]])[0]
        agents = self.agents
        self.turn += 1
        ended = self.turn == self.num_turns
        if ended:
            self.agents = []
            observations = dict.fromkeys(agents, "")
        else:
            seen = length_feedback(self.prompts[self.row]["prompt"], texts, 2)
            observations = dict(zip(agents, seen, strict=True))
        return (
            observations,
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, ended),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )


def hand_written_steps(num_turns: int) -> Run:
    return parallel_steps(HandWritten([{"prompt": p} for p in PROMPTS], num_turns), num_turns)


def raw_game_steps(num_rounds: int) -> Run:
    import textarena

    env = textarena.make(RAW_GAME, num_rounds=num_rounds)

    def run(times: int) -> int:
        return sum(play_game(env) for _ in range(times))

    return run


def wrapped_game_steps(num_rounds: int) -> Run:
    import textarena

    def run(times: int) -> int:
        return sum(
            play_game(textarena.make(WRAPPED_GAME, num_rounds=num_rounds)) for _ in range(times)
        )

    return run


def talking_game_steps() -> Run:
    import textarena

    def make() -> Any:
        return textarena.make(TALKING_GAME, num_rounds=1, communication_turns=1)

    def run(times: int) -> int:
        return sum(play_game(make()) for _ in range(times))

    return run


def play_game(env: Any) -> int:
    """Play a game of TextArena to its end and return the number of agent-steps."""
    env.reset(num_players=2)
    steps, ended = 0, False
    while not ended:
        player, _ = env.get_observation()
        ended, _ = env.step(MOVES[player])
        steps += 1
    env.close()
    return steps


def rock_paper_scissors_steps(num_turns: int) -> Run:
    from pettingzoo.classic import rps_v2

    env = rps_v2.parallel_env(max_cycles=num_turns)
    return parallel_steps(env, num_turns, dict.fromkeys(env.possible_agents, 0))


def hand_written_copies(size: int) -> Run:
    env = HandWritten([{"prompt": f"{PROMPTS[0]} (take {i})"} for i in range(size)], 2)
    env.reset()
    env.step(ACTIONS)
    return copies(env)


def raw_game_copies() -> Run:
    return game_copies(RAW_GAME)


def wrapped_game_copies() -> Run:
    return game_copies(WRAPPED_GAME)


def game_copies(name: str) -> Run:
    import textarena

    env = textarena.make(name, num_rounds=2)
    env.reset(num_players=2)
    for text in MOVES:
        env.get_observation()
        env.step(text)
    return copies(env)


def rps_copies() -> Run:
    from pettingzoo.classic import rps_v2

    env = rps_v2.parallel_env(max_cycles=2)
    env.reset()
    env.step(dict.fromkeys(env.possible_agents, 0))
    return copies(env)


def copies(env: Any) -> Run:
    def run(times: int) -> int:
        for _ in range(times):
            copy.deepcopy(env)
        return times

    return run
