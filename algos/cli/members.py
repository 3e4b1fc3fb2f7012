"""Who plays, by words: what is said of all agents or of one, and the team that comes of it."""

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

import torch

from motet import agents
from motet.agents.checks import check_fields
from motet.agents.lora_config import require_peft
from motet.algos.cli.docs import described_fields
from motet.algos.cli.flags import Flag
from motet.algos.cli.mistakes import UsageError, as_mistakes, suggestion
from motet.algos.cli.settings_file import SettingsFile
from motet.algos.cli.show import without_bars
from motet.algos.cli.yaml_text import mapping_from_word

if TYPE_CHECKING:
    from peft import LoraConfig

DType = Literal["float32", "bfloat16", "float16"]
POCKET_TOKENS = 200  # as `agents.pocket` has it


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
        for name in names if not words else ():
            found[name][option] = _parsed(option, "true")
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


# --- to agents ----------------------------------------------------------------------------------


def build_team(
    env: Any, members: Mapping[str, Member], *, share: bool = False, seed: int = 0
) -> dict[str, agents.Agent]:
    """Load a team.

    Agents with adapters over the same model share its weights; all others have weights of their
    own, unless `share` makes all of them one agent.

    Args:
        env: the task; its action spaces are what `random` draws from.
        members: settings by agent.
        share: one policy for all.
        seed: of adapters' first weights, and of agents' own randomness.

    Raises:
        UsageError: where a model cannot be loaded, or agents that are to be one differ.
    """
    if share:
        first, *others = members.values()
        if any(other != first for other in others):
            raise UsageError(
                "Expected the same settings for all agents with --share, which makes them one, got "
                "different ones; leave --share out."
            )
        one = _build(env, next(iter(members)), first, seed, {})
        return dict.fromkeys(members, one)
    bases: dict[str, agents.LMAgent] = {}
    return {
        name: _build(env, name, member, seed + index, bases)
        for index, (name, member) in enumerate(members.items())
    }


def _build(
    env: Any, name: str, member: Member, seed: int, bases: dict[str, agents.LMAgent]
) -> agents.Agent:
    if not member.has_weights:
        return _without_weights(env, name, member)
    if member.lora_r is None:
        return load(member, seed)
    plain = replace(member, lora_r=None, lora_alpha=None, frozen=False)
    key = str(asdict(plain))
    if key not in bases:
        bases[key] = load(plain, seed)
    with as_mistakes():
        agent = bases[key].with_adapter(name, _lora(member))
    agent.frozen = member.frozen
    return agent


def _without_weights(env: Any, name: str, member: Member) -> agents.Agent:
    if member.lora_r is not None:
        raise UsageError(f"Expected a model with weights for lora_r, got {member.model}.")
    if member.model == "random":
        return agents.SpaceAgent(env.action_space(name))
    if member.model == "human":
        return agents.HumanAgent(name)
    kind, _, said = member.model.partition(":")
    if kind == "text":
        return agents.FixedAgent(said)
    local = "OPENAI_BASE_URL" in os.environ and "OPENAI_API_KEY" not in os.environ
    with as_mistakes():
        return agents.APIAgent(
            said,
            api_key_env=None if local else "OPENAI_API_KEY",
            system_prompt=member.system_prompt,
            generation=agents.GenerationConfig(**member.generation),
            history=member.history,
        )


def _lora(member: Member) -> "LoraConfig":
    require_peft()
    from peft import LoraConfig  # noqa: PLC0415  # an extra

    rank = member.lora_r or 1
    return LoraConfig(r=rank, lora_alpha=member.lora_alpha or 2 * rank)


def load(member: Member, seed: int | None = None) -> agents.LMAgent:
    """Load the language model of a member, without an adapter of its own.

    Raises:
        UsageError: where there is none, or its tokenizer has no chat template.
    """
    pocket = member.model == "pocket"
    generation = {"max_new_tokens": POCKET_TOKENS} if pocket else {}
    options: dict[str, Any] = {} if member.revision is None else {"revision": member.revision}
    device = member.device or ("cpu" if pocket else None)
    try:
        with as_mistakes(), without_bars(always=pocket):
            return agents.LMAgent.from_pretrained(
                agents.pocket_path() if pocket else member.model,
                dtype=vars(torch)[member.dtype],
                device=device,
                generation=agents.GenerationConfig(**{**generation, **member.generation}),
                chat_template=member.chat_template,
                system_prompt=member.system_prompt,
                history=member.history,
                overflow=member.overflow,
                frozen=member.frozen,
                seed=seed,
                **options,
            )
    except OSError as exc:  # the hub's way of saying that there is no such model
        known = "" if Path(member.model).exists() else suggestion(member.model, ["pocket"])
        told = str(exc).strip().partition("\n")[0]
        raise UsageError(
            f"Expected a model on the hub or in a folder, got {member.model!r}: {told}{known}"
        ) from exc
