"""What an endpoint answers, whole or piece by piece, and whether it is a completion."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from motet.agents.agent import FinishReason
from motet.agents.endpoints.errors import Trouble, of_broken, of_event, shown
from motet.agents.visible import is_text


@dataclass(slots=True)
class Choice:
    """One completion as it has come so far.

    Attributes:
        text: what was written; None where nothing was.
        finish_reason: why it ended, in the endpoint's words; None where it has not.
        refusal: what the model said in place of a completion.
        calls: whether the model has called a tool.
    """

    text: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    calls: bool = False

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add what a choice of an answer has, or a piece of it in a stream."""
        said = _said(piece)
        content = said.get("content")
        if content is not None:
            self.text = (self.text or "") + content
        if said.get("refusal"):
            self.refusal = (self.refusal or "") + said["refusal"]
        if said.get("tool_calls") or said.get("function_call"):
            self.calls = True
        if piece.get("finish_reason") is not None:
            self.finish_reason = str(piece["finish_reason"])

    def read(self) -> tuple[str, FinishReason] | Trouble:
        """Return text and finish reason, or what came in place of a completion."""
        wrong = self._wrong()
        if wrong is not None:
            return wrong
        # there is no text where all tokens went into thoughts
        return self.text or "", "length" if self.finish_reason == "length" else "stop"

    def _wrong(self) -> Trouble | None:
        if self.calls or self.finish_reason in ("tool_calls", "function_call"):
            return Trouble(
                "a call of a tool", "use a model or an endpoint that calls none unless offered one"
            )
        if self.refusal is not None:
            return Trouble(f"a refusal ({shown(self.refusal)})", "change the prompt, or the model")
        if self.finish_reason == "content_filter":
            return Trouble(
                "a completion that its content filter cut", "change the prompt, or the filter"
            )
        if self.finish_reason not in ("stop", "length"):
            return Trouble(
                f"finish_reason {shown(str(self.finish_reason))!r}",
                "look after the endpoint: completions end with 'stop' or 'length'",
            )
        if self.finish_reason == "stop" and self.text is None:
            return Trouble("a completion without a text", "change the prompt, or the model")
        return None


@dataclass(slots=True)
class Answer:
    """What came for one request.

    Attributes:
        choices: completions by index.
        tokens: of prompt and completions, as the endpoint counted them; None where it did not.
    """

    choices: dict[int, Choice] = field(default_factory=dict)
    tokens: tuple[int, int] | None = None

    def add(self, told: Mapping[str, Any]) -> Trouble | None:
        """Add an answer, or a piece of it in a stream; return what is wrong with it."""
        if told.get("error"):
            return of_event(told["error"])
        wrong = _wrong_form(told)
        if wrong is not None:
            return of_broken(wrong)
        for place, piece in enumerate(told.get("choices") or []):
            index = piece.get("index")
            where = index if isinstance(index, int) else place
            self.choices.setdefault(where, Choice()).add(piece)
        usage = told.get("usage") or {}
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if _is_count(prompt) and _is_count(completion) and prompt + completion > 0:
            self.tokens = (prompt, completion)
        return None

    @property
    def has_ended(self) -> bool:
        """Whether all completions that have begun have ended."""
        return bool(self.choices) and all(
            choice.finish_reason is not None for choice in self.choices.values()
        )


def _is_count(value: object) -> TypeGuard[int]:
    """Tell whether an endpoint has counted: no number below 0, which would give budget back."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _said(piece: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a choice says: of a chat, of a piece of one, or of a text that goes on."""
    said: Mapping[str, Any] = (
        piece.get("message") or piece.get("delta") or {"content": piece.get("text")}
    )
    return said


def _wrong_form(told: Mapping[str, Any]) -> str | None:
    """Return what an answer has where it should have something else, None where all is well."""
    choices, usage = told.get("choices") or [], told.get("usage") or {}
    if not isinstance(choices, list) or not isinstance(usage, Mapping):
        return "choices and usage of other types than a list and an object"
    for piece in choices:
        if not isinstance(piece, Mapping) or not isinstance(_said(piece), Mapping):
            return "a choice that is no object"
        for name in ("content", "refusal"):
            text = _said(piece).get(name)
            if text is not None and not isinstance(text, str):
                return f"a choice whose {name} is of type {type(text).__name__}"
            if text is not None and not is_text(text):
                return f"a choice whose {name} has half a character (a lone surrogate)"
    return None
