"""Put what agents read into a template."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from motet.envs.task.parts import check_takes
from motet.envs.text_state import StepResult
from motet.envs.wrappers.per_agent import one_each
from motet.envs.wrappers.text_template import Parts, fill_template, parse_template
from motet.envs.wrappers.wrapper import Infos, Observations, Wrapper

FIELDS = ("observation", "agent", "turn", "num_agents")
Template = str | Callable[[str, str, int], str]


class PromptTemplate(Wrapper):
    """Format each agent's observations.

        PromptTemplate(env, "You are {agent}, one of {num_agents}. {observation}")

    A template is a string with the fields `{observation}` (which must occur), `{agent}` (the name),
    `{turn}` (1 for the first prompt) and `{num_agents}`; `{{` and `}}` stand for braces. Fields are
    replaced once, so braces inside an observation are text like any other. Or it is a function
    `f(observation, agent, turn)` that returns the text.

    What an agent sees after its task ended is no prompt, and stays as it is. What it sees after it
    was truncated is the prompt of a turn that does not come, and is formatted like those before,
    since learners bootstrap from it; an empty one stays empty.

    Args:
        env: the env to wrap; its observations are texts.
        template: one for all agents, or one by agent.

    Raises:
        TypeError: where a template is neither a string nor a function.
        ValueError: where a string has other fields or lacks `{observation}`, or the templates are
            not those of the env's agents.
    """

    def __init__(self, env: Any, template: Template | Mapping[str, Template]) -> None:
        super().__init__(env)
        self.template = template
        self._templates = {
            agent: _compiled(own)
            for agent, own in one_each("template", template, self.possible_agents).items()
        }

    def after_reset(
        self, observations: Observations, infos: Infos, *, seed: int
    ) -> tuple[int, Observations, Infos]:
        """Format the first prompts."""
        prompts = {agent: self._prompt(seen, agent, 1) for agent, seen in observations.items()}
        return 1, prompts, infos

    def after_step(
        self, memory: int, actions: Mapping[str, Any], result: StepResult
    ) -> tuple[int, StepResult]:
        """Format the prompts of the next turn."""
        turn = memory + 1
        prompts = {}
        for agent, seen in result.observations.items():
            ended = result.terminations[agent] or (result.truncations[agent] and seen == "")
            prompts[agent] = seen if ended else self._prompt(seen, agent, turn)
        return turn, replace(result, observations=prompts)

    def _prompt(self, observation: Any, agent: str, turn: int) -> str:
        if not isinstance(observation, str):
            raise TypeError(
                f"Expected a text as the observation of {agent}, got {observation!r:.200} of type "
                f"{type(observation).__name__}; wrap the env before it is made something else."
            )
        template = self._templates[agent]
        if callable(template):
            text = template(observation, agent, turn)
        else:
            values = (observation, agent, str(turn), str(len(self._templates)))
            text = fill_template(template, values)
        if not isinstance(text, str):
            raise TypeError(
                f"Expected a string from the template of {agent}, got {text!r} of type "
                f"{type(text).__name__}."
            )
        space = self.observation_space(agent)
        if text not in space:
            raise ValueError(
                f"Expected the template of {agent} to give a text in {space}, got "
                f"{text[:80]!r} of {len(text)} characters."
            )
        return text


def _compiled(template: Any) -> Parts | Callable[[str, str, int], str]:
    if isinstance(template, str):
        return parse_template(template, FIELDS, ["observation"])
    if not callable(template):
        raise TypeError(
            "Expected a string or a function f(observation, agent, turn) as template, got "
            f"{template!r}."
        )
    check_takes(template, "template", "observation", "agent", "turn")
    function: Callable[[str, str, int], str] = template
    return function
