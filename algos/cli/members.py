"""Who plays, by words: what is said of all agents or of one, in flags and files."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from motet import agents
from motet.agents.checks import check_fields
from motet.algos.cli.docs import described_fields
from motet.algos.cli.flags import Flag
from motet.algos.cli.mistakes import UsageError, as_mistakes, suggestion
from motet.algos.cli.settings_file import SettingsFile
from motet.algos.cli.yaml_text import mapping_from_word

DType = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One agent of a team.

    Attributes:
        model: a model's name on the hub or its folder, `pocket` for the one that comes with Motet,
            `random` for texts at random, `text:...` for one that is always said, `human` for
            somebody at this terminal, or `api:NAME` for a model behind an OpenAI-compatible
            endpoint, at OPENAI_BASE_URL and with the key in OPENAI_API_KEY.
        revision: branch, tag or commit on the hub.
        lora_r: train a LoRA adapter of this rank, and not all weights. Agents with the same model
            share its base.
        lora_alpha: scale of the adapter; None for twice the rank.
        frozen: keep it as it is.
        chat_template: send prompts through the tokenizer's chat template.
        system_prompt: system message before them; needs the chat template.
        history: "append" shows an agent its conversation so far, "none" the prompt alone.
        overflow: what happens to a prompt that is too long: "raise", or "truncate_left".
        dtype: of the weights.
        device: where the model is; None for a GPU if there is one, and for `pocket` the CPU.
        generation: sampling settings of its own; those of the learner win over them.
    """

    model: str = "pocket"
    revision: str | None = None
    lora_r: int | None = None
    lora_alpha: int | None = None
    frozen: bool = False
    chat_template: bool = False
    system_prompt: str | None = None
    history: agents.History = "none"
    overflow: Literal["raise", "truncate_left"] = "raise"
    dtype: DType = "float32"
    device: str | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, others=("generation",))
        if not isinstance(self.generation, Mapping):
            raise TypeError(
                f"Expected a mapping of sampling settings as generation, got {self.generation!r}."
            )
        for name in ("lora_r", "lora_alpha"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Expected {name} of at least 1, got {value}.")
        if self.lora_alpha is not None and self.lora_r is None:
            raise ValueError(f"Expected lora_r with lora_alpha={self.lora_alpha}, got None.")
        unknown = set(self.generation) - {each.name for each in fields(agents.GenerationConfig)}
        if unknown:
            raise ValueError(
                f"Expected fields of GenerationConfig as generation, got {sorted(unknown)}."
            )

    @property
    def has_weights(self) -> bool:
        """Whether it is a language model that is loaded here."""
        return self.model not in ("random", "human") and not self.model.startswith(
            ("text:", "api:")
        )


OPTIONS = {each.name: each for each in fields(Member)}
_HINTS = get_type_hints(Member)


def member_flags() -> list[Flag]:
    """Return the settings of agents as flags, each of which takes `VALUE` or `agent=VALUE ...`."""
    told = described_fields(Member)
    return [
        Flag(name, tuple[str, ...], _shown_default(Member(), name), told[name]) for name in OPTIONS
    ]


def _shown_default(member: Member, name: str) -> Any:
    value = asdict(member)[name]
    return value if value != {} else None


def joined(words: Sequence[str]) -> list[str]:
    """Return a command in which flags of agents that were repeated stand once, with all values."""
    options = {f"--{name.replace('_', '-')}" for name in OPTIONS}
    kept: list[str] = []
    said: dict[str, list[str]] = {}
    own: list[str] | None = None
    for word in words:
        option, equals, value = word.partition("=")
        if word.startswith("--"):
            option = option.replace("_", "-")
            own = said.setdefault(option, []) if option in options else None
            if own is not None and equals:
                own.append(value)
                own = None
                continue
            if own is not None:
                continue
        (kept if own is None else own).append(word)
    return [*kept, *(word for option, values in said.items() for word in (option, *values))]


def said_of(names: Sequence[str], said: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Return what flags say, by agent and setting.

    Args:
        names: the agents of the task.
        said: words after each flag, by setting.

    Raises:
        UsageError: where a value cannot be one, or an agent is misspelt.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for option, words in said.items():
        _check_said(option, words, names)
        for name in names if not words else ():
            found[name][option] = True
        for word in sorted(words, key=lambda word: _addressed(word, names) is not None):
            owner = _addressed(word, names)
            is_switch = _HINTS[option] is bool
            if owner is None and is_switch and word in names:
                found[word][option] = True
                continue
            value = word if owner is None else word.partition("=")[2]
            for name in names if owner is None else (owner,):
                found[name][option] = _parsed(option, value)
    return found


def _check_said(option: str, words: Sequence[str], names: Sequence[str]) -> None:
    """Raise where a flag has no value, or two for the same agents."""
    flag = f"--{option.replace('_', '-')}"
    is_switch = _HINTS[option] is bool
    if not words and not is_switch:
        raise UsageError(f"Expected a value after {flag}, got none.")
    if is_switch:
        _check_switch(flag, words, names)
    owners = [_addressed(word, names) or (word if is_switch and word in names else None)
              for word in words]  # fmt: skip
    twice = next((owner for owner in owners if owners.count(owner) > 1), "")
    if twice is None:
        of_all = [word for word, owner in zip(words, owners, strict=True) if owner is None]
        raise UsageError(
            f"Expected one value after {flag}, or one for each agent as in {names[0]}=..., got "
            f"{', '.join(map(repr, of_all))}."
        )
    if twice:
        raise UsageError(f"Expected {flag} once for {twice}, got {' '.join(words)}.")


def _check_switch(flag: str, words: Sequence[str], names: Sequence[str]) -> None:
    for word in words:
        if word not in names and "=" not in word and word.lower() not in ("true", "false"):
            raise UsageError(
                f"Expected agents of the task, {', '.join(names)}, or True or False, after {flag}, "
                f"got {word!r}.{suggestion(word, names)}"
            )


def _addressed(word: str, names: Sequence[str]) -> str | None:
    """Return the agent that a word is said of, None for all of them."""
    name, equals, _ = word.partition("=")
    if not equals:
        return None
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    if close:
        raise UsageError(
            f"Expected an agent of the task, {', '.join(names)}, before '=', got {name!r}. Did you "
            f"mean {close[0]}?"
        )
    return None


def _parsed(option: str, word: str) -> Any:
    hint = _HINTS[option]
    flag = f"--{option.replace('_', '-')}"
    if hint is bool:
        if word.lower() not in ("true", "false"):
            raise UsageError(
                f"Expected names of agents, or True or False, after {flag}, got {word!r}."
            )
        return word.lower() == "true"
    if option == "generation":
        try:
            return mapping_from_word(word)
        except ValueError as exc:
            raise UsageError(f"{flag}: {exc}.") from exc
    if type(None) in get_args(hint) and word == "None":
        return None
    if int in get_args(hint):
        if not word.lstrip("-").isdigit():
            raise UsageError(f"Expected a whole number after {flag}, got {word!r}.")
        return int(word)
    return word


def members_of(
    names: Sequence[str], file: SettingsFile, said: Mapping[str, Sequence[str]]
) -> dict[str, Member]:
    """Return who plays: defaults, then what a file says, then what flags say.

    Args:
        names: the agents of the task.
        file: its `agents` has settings by agent, or settings of all.
        said: words after each flag, by setting.

    Raises:
        UsageError: where a key is unknown or a value cannot be one.
    """
    section = file.section("agents")
    if section:
        file.check_keys(
            ("agents",),
            (*names, *OPTIONS),
            f"an agent ({', '.join(names)}) or a setting of agents",
        )
    of_all = {key: value for key, value in section.items() if key in OPTIONS}
    flags = said_of(names, said)
    members: dict[str, Member] = {}
    for name in names:
        own = section.get(name) or {}
        if not isinstance(own, dict):
            raise UsageError(
                f"Expected a mapping with the settings of {name}, got {own!r} in "
                f"{file.where(('agents', name))}."
            )
        if own:
            file.check_keys(("agents", name), OPTIONS, "a setting of agents")
        places = [("agents", name, key) for key in own] + [("agents", key) for key in of_all]
        try:
            with as_mistakes():
                members[name] = Member(**{**of_all, **own, **flags[name]})
        except UsageError as mistake:
            raise UsageError(file.blamed(str(mistake), places)) from mistake
    return members
