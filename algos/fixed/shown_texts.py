"""How an agent is shown what others wrote in the same turn: a template, or a function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from motet.envs.task.parts import check_takes
from motet.envs.wrappers.text_template import fill_template, parse_template

Template = str | Callable[..., str]


class ShownTexts:
    """Put an observation and the texts of others into one prompt.

    In a template `{others}` is each other agent's text under its name. A function gets the same by
    position: the observation, the agent's name, the others' texts by name, and what else there is.

    Args:
        template: text with fields, or a function.
        fields: names of what there is: `observation`, `agent`, `others`, and more texts.
        required: fields that a template must have.

    Raises:
        TypeError: where it is neither, or a function takes something else.
        ValueError: where a template has other fields, or lacks one that it must have.
    """

    def __init__(
        self, template: Template, fields: Sequence[str], required: Sequence[str] = ()
    ) -> None:
        given: Any = template
        self.template = template
        self._function: Callable[..., Any] | None = None
        if isinstance(given, str):
            self._parts = parse_template(given, fields, required)
        elif callable(given):
            check_takes(given, "template", *fields)
            self._function = given
        else:
            raise TypeError(
                f"Expected a string or a function f({', '.join(fields)}) as template, got "
                f"{given!r}."
            )

    def __call__(self, observation: str, agent: str, others: Mapping[str, str], *more: str) -> str:
        """Return the prompt.

        Args:
            observation: what the env shows the agent.
            agent: its name.
            others: text by name, of those that it is to read.
            *more: the texts of the other fields, in their order.

        Raises:
            TypeError: where a function returns no string.
        """
        if self._function is None:
            listed = "\n\n".join(f"{name} wrote:\n{text}" for name, text in others.items())
            return fill_template(self._parts, (observation, agent, listed, *more))
        prompt = self._function(observation, agent, others, *more)
        if not isinstance(prompt, str):
            raise TypeError(
                f"Expected a string from the template for {agent}, got {prompt!r} of type "
                f"{type(prompt).__name__}."
            )
        return prompt
