"""`motet play ENV`: a person takes one agent's seat; models have the others."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.text import Text

from motet.agents import Agent, Completion, HumanAgent
from motet.agents.agent import HistoryAgent
from motet.algos.cli.eval import SAMPLING_FLAGS, rows_of
from motet.algos.cli.flags import Flag, parsed
from motet.algos.cli.members import joined, member_flags, members_of
from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.settings_file import SettingsFile
from motet.algos.cli.show import console
from motet.algos.cli.tasks import env_flags, find_spec, make_env
from motet.algos.cli.team_source import check_apart, load_team, source_of
from motet.algos.cli.teams import build_team
from motet.algos.rollouts.joint_policy import JointPolicy
from motet.algos.team import with_sampling

COMMAND = "motet play"
ABOUT = (
    "Take an agent's seat in a task. Each turn shows your prompt and asks for an answer; then come "
    "the rewards and what the others wrote. Ctrl-D ends it."
)
PLAY_FLAGS = [
    Flag("seat", str | None, None, "the agent that you play; None for the first"),
    Flag("team", str | None, None, "folder of a run, whose trained agents have the other seats"),
    Flag("num_episodes", int | None, None, "episodes to play; None goes on until you leave"),
    Flag("rows", tuple[str, ...], None, "which rows, such as 0-9; by default in the task's order"),
    Flag("multiline", bool, False, "answers of several lines, up to a line with a dot alone"),
    Flag("seed", int, 0, "of the partners, and of what the task draws"),
]


def run(words: list[str]) -> None:
    """Run `motet play ENV ...`."""
    id = words[0] if words and not words[0].startswith("-") else None
    task = None if id is None else find_spec(id)
    groups = {
        "play": PLAY_FLAGS,
        "team": [flag for flag in member_flags() if flag.name != "frozen"],
        "sampling": SAMPLING_FLAGS,
        "task": [] if task is None else env_flags(task),
    }
    rest = words if id is None else words[1:]
    said = parsed(f"{COMMAND} {id or 'ENV'}", groups, joined(rest), ABOUT)
    if task is None:
        raise UsageError(f"Expected the id of a task, as in `{COMMAND} story-length-ratio-v0`.")
    own = {flag.name: flag.default for flag in PLAY_FLAGS} | said["play"]
    if own["num_episodes"] is not None and own["num_episodes"] < 1:
        raise UsageError(f"Expected num_episodes of at least 1, got {own['num_episodes']}.")
    env = make_env(task, said["task"])
    rows = None if own["rows"] is None else rows_of(own["rows"], env)
    seat = _seat(env, own["seat"])
    person = HumanAgent(seat, multiline=own["multiline"])
    game = Game(env, {**_partners(env, own, said), seat: person}, seat, own["seed"])
    out = console()
    out.print(f"You are {seat} of {', '.join(env.possible_agents)}. Ctrl-D ends it.")
    try:
        for number in (
            itertools.count() if own["num_episodes"] is None else range(own["num_episodes"])
        ):
            game.play(number, None if rows is None else rows[number % len(rows)])
    except (EOFError, KeyboardInterrupt):  # the two ways to leave a terminal
        print()
    out.print(game.account())


def _seat(env: Any, wanted: str | None) -> str:
    names = list(env.possible_agents)
    if wanted is None:
        return str(names[0])
    if wanted not in names:
        raise UsageError(f"Expected a seat among {', '.join(names)}, got {wanted!r}.")
    return wanted


def _partners(env: Any, own: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Agent]:
    names = list(env.possible_agents)
    if own["team"] is not None:
        return _agents_of_run(own["team"], env, said)
    members = members_of(names, SettingsFile(), said["team"])
    seated = {name: each for name, each in members.items() if name != _seat(env, own["seat"])}
    same = len({str(each) for each in seated.values()}) == 1 and len(seated) > 1
    team = build_team(env, seated, share=same, seed=own["seed"])
    with as_mistakes():
        return with_sampling(team, **said["sampling"])


def _agents_of_run(name: str, env: Any, said: Mapping[str, Any]) -> dict[str, Agent]:
    """Return the agents of a run, each of which can be beside a person."""
    source = source_of(name)
    check_apart(source)
    team = load_team(source, env, said)
    if isinstance(team, JointPolicy):
        raise UsageError(
            f"Expected a team whose agents answer by themselves, got {name}, whose agents read one "
            "another first."
        )
    return dict(team)


class Game:
    """Episodes that a person plays with partners.

    Args:
        env: the task.
        team: agent by name, the person among them.
        seat: the person's name.
        seed: of the first episode.
    """

    def __init__(self, env: Any, team: Mapping[str, Agent], seat: str, seed: int) -> None:
        self._env = env
        self._team = dict(team)
        self._seat = seat
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._out = console()
        self._returns: list[float] = []

    def play(self, number: int, row: int | None) -> None:
        """Play an episode.

        Args:
            number: which it is, from 0.
            row: of the dataset; None leaves it to the task.

        Raises:
            EOFError: where the person leaves.
        """
        options = None if row is None else {"row": row}
        seen, infos = self._env.reset(seed=self._seed if number == 0 else None, options=options)
        self._out.rule(f"Episode {number + 1}")
        turn, earned = 0, 0.0
        said: dict[str, Completion] = {}
        while self._env.agents:
            turn += 1
            acting = [name for name in self._env.agents if infos[name].get("acts", True)]
            said = self._answers(acting, seen, said)
            actions = {name: said[name].text if name in acting else "" for name in self._env.agents}
            seen, rewards, _, _, infos = self._env.step(actions)
            earned += rewards.get(self._seat, 0.0)
            self._show(turn, actions, acting, rewards)
        self._returns.append(earned)
        self._out.print(f"Your return: {earned:.3f}")

    def _answers(
        self, acting: Sequence[str], seen: Mapping[str, str], said: Mapping[str, Completion]
    ) -> dict[str, Completion]:
        """Ask the person first, who sees none of the others' answers, then the others."""
        answers = dict(said)
        for name in sorted(acting, key=lambda name: name != self._seat):
            agent, seed = self._team[name], int(self._rng.integers(2**63))
            if isinstance(agent, HistoryAgent) and agent.history == "append":
                groups = agent.act([seen[name]], 1, seed=seed, contexts=[said.get(name)])
            else:
                groups = agent.act([seen[name]], 1, seed=seed)
            answers[name] = groups[0][0]
        return answers

    def _show(
        self,
        turn: int,
        actions: Mapping[str, str],
        acting: Sequence[str],
        rewards: Mapping[str, float],
    ) -> None:
        self._out.print(f"\nTurn {turn}")
        for name in acting:
            if name != self._seat:
                self._out.print(Text(f"{name} wrote: {printable(actions[name])}"))
        told = ", ".join(f"{name} {reward:.3f}" for name, reward in rewards.items())
        self._out.print(f"Rewards: {told}")

    def account(self) -> str:
        """Return how it went, in a sentence."""
        played = len(self._returns)
        if not played:
            return "No episode was played to its end."
        mean = sum(self._returns) / played
        episodes = "1 episode" if played == 1 else f"{played} episodes"
        return f"{episodes} played, mean return {mean:.3f}."


def printable(text: str) -> str:
    """Return a text whose control characters are written out, and cannot move the cursor."""
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )
