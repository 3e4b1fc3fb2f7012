"""A text env for one policy that writes for all its agents: a joint prompt in, a text for each out.

    env = JointText(envs.make("story-length-ratio-v0"))
    observations, infos = env.reset(seed=0)        # {"team": what all agents are asked}
    env.step({"team": "<agent_0>A tale.</agent_0> <agent_1>A longer tale.</agent_1>"})

This is the centralised end of cooperation: nothing has to be communicated, and nobody acts alone.
It is an env of texts like any other, with one agent, `team`; a language model that plays in it is
trained by any learner.

What a policy writes is model output, and wrong form must never stop a run: an agent whose section
is missing or broken says the empty text, and `infos["team"]["missing"]` names it.

Pitfalls:

1. One completion holds the texts of all agents, so it needs `max_new_tokens` for all of them.
   Where it is cut, the sections that were not closed are missing.
2. A base model rarely keeps to a form that it was never shown. Have the prompt begin the first
   section, or write a parser for what the model does.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

from motet.envs.simulator import credit_in_infos
from motet.envs.task.joint_action import checked_texts, text_error
from motet.envs.task.parts import check_takes
from motet.envs.text_space import TextSpace
from motet.envs.text_state import ResetResult, StepResult
from motet.envs.views.joint_view import TeamReward, was_cut
from motet.envs.wrappers.wrapper import Infos, Observations, Wrapper

TEAM = "team"

PromptFn = Callable[[Mapping[str, str]], str]
Parser = Callable[[str, Sequence[str]], Mapping[str, str]]


def joint_prompt(observations: Mapping[str, str]) -> str:
    """Ask for a tagged section for each agent.

    Args:
        observations: prompt by agent, of those that act; where all have the same, it is shown once.
    """
    form = " ".join(f"<{name}>...</{name}>" for name in observations)
    prompts = list(dict.fromkeys(observations.values()))
    if len(prompts) == 1:
        return f"{prompts[0]}\n\nAnswer in this form: {form}\n"
    asked = "\n".join(f"<{name}>{prompt}</{name}>" for name, prompt in observations.items())
    return f"{asked}\n\nAnswer each in this form: {form}\n"


def tagged_sections(text: str, agents: Sequence[str]) -> dict[str, str]:
    """Return what stands between `<agent_0>` and `</agent_0>`, and so on for each agent.

    Sections are read from left to right. Whatever is in one is its text as it is, blanks and other
    agents' tags too; whatever is around them is left out. Of two sections of an agent the last
    counts: models mention a form while they think about it, and answer at the end. A section that
    is not closed is none, and those after its opening tag are read.

    Args:
        text: what the policy wrote.
        agents: names of those that act.
    """
    opening = re.compile("<(" + "|".join(map(re.escape, agents)) + ")>")
    sections: dict[str, str] = {}
    unclosed: set[str] = set()  # so that text full of opening tags is not searched once for each
    place = 0
    while (tag := opening.search(text, place)) is not None:
        name, place = tag[1], tag.end()
        if name in unclosed:
            continue
        closing = f"</{name}>"
        end = text.find(closing, place)
        if end < 0:
            unclosed.add(name)
            continue
        sections[name] = text[place:end]
        place = end + len(closing)
    return sections


@dataclass(frozen=True, slots=True)
class JointMemory:
    """What a `JointText` remembers of an episode.

    Attributes:
        live: agents inside that are still there.
        acting: those of them that act in the coming turn.
        said: agent and text of each live agent, of the turn that is being played.
        missing: acting agents without a section in it.
    """

    live: tuple[str, ...]
    acting: tuple[str, ...]
    said: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()


class JointText(Wrapper):
    """Let one agent, `team`, read what all agents of a text env are asked, and write for all.

    Only agents whose turn it is are in the prompt and get a section; in a turn that is nobody's,
    `team` does not act either. The episode ends when the last agent leaves, truncated where that
    was a cut from outside the task. `infos["team"]` has `acts`, `agents` (the infos inside, by
    name), and those of `row`, `turn`, `turn_reward` and `turns_credited` that the env inside has;
    after a step also `texts` (what each agent was heard to say) and `missing` (acting agents whose
    section was missing, broken or outside their action space, and who said nothing).

    Args:
        env: a text env with `get_state`, `set_state` and `clone`, whose agents may say nothing.
        prompt_fn: `f(observations) -> str`, from the acting agents' prompts by name to the joint
            one; default `joint_prompt`.
        parser: `f(text, agents) -> {agent: text}`, from what was written and the acting agents'
            names to the sections that it finds; default `tagged_sections`. It must not raise,
            whatever the text, and always return the same for the same text.
        reward: what the team earns: the mean over all agents, or the sum.

    Attributes:
        names: (N,) agents of the env inside.

    Raises:
        TypeError: where `env` is no parallel env with snapshots, or a function is none.
        ValueError: where `reward` is unknown, or an agent inside may not say nothing.
    """

    def __init__(
        self,
        env: Any,
        *,
        prompt_fn: PromptFn = joint_prompt,
        parser: Parser = tagged_sections,
        reward: TeamReward = "mean",
    ) -> None:
        super().__init__(env)
        self.names: list[str] = list(env.possible_agents)
        _check_functions(prompt_fn, parser)
        if reward not in get_args(TeamReward):
            raise ValueError(f"Expected reward 'mean' or 'sum', got {reward!r}.")
        for name in self.names:
            _check_silence(name, env.action_space(name))
        self.possible_agents = [TEAM]
        self._prompt_fn = prompt_fn
        self._parser = parser
        self._reward = reward
        self._observation_space = TextSpace()
        self._action_space = TextSpace()

    def observation_space(self, agent: str) -> TextSpace:
        """Return the space of joint prompts: any text."""
        _check_name(agent)
        return self._observation_space

    def action_space(self, agent: str) -> TextSpace:
        """Return the space of what the team may write: any text."""
        _check_name(agent)
        return self._action_space

    def clone(self, *, seed: int | None = None) -> Self:
        """Return an independent env at the same point; see `Wrapper.clone`."""
        twin = super().clone(seed=seed)
        twin._observation_space = self._observation_space.copy()
        twin._action_space = self._action_space.copy()
        return twin

    # --- hooks --------------------------------------------------------------------------------

    def after_reset_batch(
        self, results: Sequence[ResetResult], seeds: Sequence[int]
    ) -> list[tuple[JointMemory, Observations, Infos]]:
        """Join the first prompts."""
        del seeds  # nothing here is random
        begun = []
        for result in results:
            acting = _acting(result.observations, result.infos)
            memory = JointMemory(tuple(result.observations), acting)
            prompt = self._prompt(result.observations, acting)
            info = {"acts": bool(acting), **_told(result.infos), "agents": result.infos}
            begun.append((memory, {TEAM: prompt}, {TEAM: info}))
        return begun

    def before_step_batch(
        self, memories: Sequence[JointMemory], joint_actions: Sequence[Mapping[str, Any]]
    ) -> list[tuple[JointMemory, Mapping[str, str]]]:
        """Part what the team wrote into a text for each agent.

        Raises:
            TypeError: where an action is no string, or the parser returns something else than
                texts by agent.
            ValueError: where an agent is missing or unknown, or the parser names an unknown one.
        """
        parted: list[tuple[JointMemory, Mapping[str, str]]] = []
        for memory, actions in zip(memories, joint_actions, strict=True):
            (text,) = checked_texts(actions, {TEAM: self._action_space})
            sections = self._sections(text, memory.acting) if memory.acting else {}
            said = {name: sections.get(name, "") for name in memory.live}
            missing = tuple(name for name in memory.acting if name not in sections)
            parted.append((replace(memory, said=tuple(said.items()), missing=missing), said))
        return parted

    def _after(
        self,
        memories: Sequence[JointMemory],
        joint_actions: Sequence[Mapping[str, Any]],
        inner: Sequence[StepResult],
    ) -> list[tuple[JointMemory, StepResult]]:
        """Join results. The base lets `after_step` change anything but who the agents are."""
        del joint_actions
        return [
            self._joined(memory, result) for memory, result in zip(memories, inner, strict=True)
        ]

    # --- parts --------------------------------------------------------------------------------

    def _joined(self, memory: JointMemory, result: StepResult) -> tuple[JointMemory, StepResult]:
        live = result.live
        truncated = not live and was_cut(result.terminations, result.truncations)
        # what a cut team would have read is a prompt like any other: learners bootstrap from it
        seen = {
            name: text for name, text in result.observations.items() if truncated or name in live
        }
        acting = _acting(seen, result.infos)
        prompt = self._prompt(seen, acting) if live or any(seen.values()) else ""
        reward, credit = self._paid(result)
        info = {
            "acts": bool(acting),
            **_told(result.infos),
            "texts": dict(memory.said),
            "missing": list(memory.missing),
            "agents": result.infos,
        }
        if all("turn_reward" in one for one in result.infos.values()):
            own, turns = ({TEAM: reward}, 1) if credit is None else credit
            info |= {"turn_reward": own[TEAM], "turns_credited": turns}
        return JointMemory(tuple(live), acting if live else ()), StepResult(
            state=result.state,
            observations={TEAM: prompt},
            rewards={TEAM: reward},
            terminations={TEAM: not live and not truncated},
            truncations={TEAM: truncated},
            infos={TEAM: info},
            credit=credit,
        )

    def _paid(self, result: StepResult) -> tuple[float, tuple[dict[str, float], int] | None]:
        """Return the team's reward, and what of it is this turn's own where that is less."""
        credit = credit_in_infos(result.rewards, result.infos)
        if credit is None:
            return self._together(result.rewards), None
        own, turns = self._together(credit[0]), credit[1]
        return own * turns, ({TEAM: own}, turns)

    def _together(self, rewards: Mapping[str, float]) -> float:
        """Return what the team earns; agents that have left earn nothing, and still count."""
        total = float(sum(rewards.values()))
        return total / len(self.names) if self._reward == "mean" else total

    def _prompt(self, observations: Mapping[str, str], acting: Sequence[str]) -> str:
        if not acting:
            return ""
        prompt: Any = self._prompt_fn({name: observations[name] for name in acting})
        if prompt not in self._observation_space:
            raise text_error(prompt, f"what prompt_fn returns for {list(acting)}")
        text: str = prompt
        return text

    def _sections(self, text: str, acting: Sequence[str]) -> dict[str, str]:
        """Return the sections of a text that can be played."""
        sections: Any = self._parser(text, list(acting))
        if not isinstance(sections, Mapping):
            raise TypeError(
                f"Expected a mapping of texts by agent from the parser, got {sections!r:.200}."
            )
        unknown = [name for name in sections if name not in acting]
        if unknown:
            raise ValueError(
                f"Expected sections of {list(acting)}, who act, from the parser, got some of "
                f"{unknown}."
            )
        for name, section in sections.items():
            if not isinstance(section, str):
                raise TypeError(
                    f"Expected a string as the section of {name} from the parser, got "
                    f"{section!r:.200} of type {type(section).__name__}; leave out what is missing."
                )
        return {
            name: part for name, part in sections.items() if part in self.env.action_space(name)
        }


def _acting(
    observations: Mapping[str, Any], infos: Mapping[str, Mapping[str, Any]]
) -> tuple[str, ...]:
    return tuple(name for name in observations if infos[name].get("acts", True))


def _told(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return where the episode stands, as far as all agents are told the same."""
    shared = {}
    for key in ("row", "turn"):
        values = [info.get(key) for info in infos.values()]
        if values[0] is not None and values.count(values[0]) == len(values):
            shared[key] = values[0]
    return shared


def _check_functions(prompt_fn: Any, parser: Any) -> None:
    arguments = {"prompt_fn": ("observations",), "parser": ("text", "agents")}
    for (role, names), function in zip(arguments.items(), (prompt_fn, parser), strict=True):
        if not callable(function):
            raise TypeError(
                f"Expected a function f({', '.join(names)}) as {role}, got {function!r}."
            )
        check_takes(function, role, *names)


def _check_silence(name: str, space: Any) -> None:
    if "" not in space:
        raise ValueError(
            f"Expected an env whose agents may say nothing, as one does whose section is missing; "
            f"got {space} as the action space of {name}."
        )


def _check_name(agent: str) -> None:
    if agent != TEAM:
        raise KeyError(f"Expected the agent {TEAM!r}, got {agent!r}.")
