"""Fields and parameters as flags of a command: their types as tyro reads them, defaults and help.

tyro parses; what a setting starts from, a default, a file or a flag, is decided here, because a
value in a file may be more than a flag can say.
"""

import os
import textwrap
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from motet.algos.cli.docs import described_fields
from motet.algos.cli.mistakes import UsageError, suggestion
from motet.algos.cli.yaml_text import from_word, mapping_from_word, to_word

PLAIN = (int, float, bool, str, Path)
_SEQUENCES = (list, tuple, Sequence, Collection)


class YamlValue:
    """The type of what a flag says in YAML."""


class NameValuePairs:
    """The type of a mapping that a flag says, as `a=1,b=2` or in YAML."""


YAML_VALUE: Any = YamlValue
MAPPING: Any = NameValuePairs

_OF_NOTHING = (YamlValue, NameValuePairs)  # as what nobody typed starts from
_REGISTRY = tyro.constructors.ConstructorRegistry()


@_REGISTRY.primitive_rule
def _said_in_yaml(
    about: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    if about.type not in _OF_NOTHING:
        return None
    pairs = about.type is NameValuePairs
    read = mapping_from_word if pairs else from_word
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME=VALUE,..." if pairs else "YAML",
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: not pairs or isinstance(value, dict | NameValuePairs),
        str_from_instance=lambda value: ["" if isinstance(value, _OF_NOTHING) else to_word(value)],
    )


@dataclass(frozen=True, slots=True)
class Flag:
    """A setting on the command line.

    Attributes:
        name: of the field or the parameter.
        hint: its type, as tyro reads it.
        default: what it is where nobody says otherwise.
        help: what it does.
        spelled: the flag without its dashes, where it is not the name.
        aliases: other flags for the same.
    """

    name: str
    hint: Any
    default: Any = None
    help: str = ""
    spelled: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """What is typed: `--num-generations`."""
        return f"--{self.spelled or self.name.replace('_', '-')}"

    @property
    def options(self) -> tuple[str, ...]:
        """All that may be typed for it."""
        own = (self.option, *self.aliases)
        return (*own, f"--no-{self.option[2:]}") if bool in _options(self.hint) else own

    @property
    def takes_several(self) -> bool:
        """Whether all words that follow it are values of it."""
        return any(Ellipsis in get_args(each) for each in _options(self.hint))

    def is_in(self, words: Iterable[str]) -> bool:
        """Tell whether a command has it."""
        typed = {word.partition("=")[0].replace("_", "-") for word in words}
        return any(option.replace("_", "-") in typed for option in self.options)


def flag_hint(hint: Any) -> Any | None:
    """Return a type that a flag can have, as much of an annotation as words can say.

    A union keeps those of its options that can be said; nested lists are said in YAML.

    Args:
        hint: an annotation.

    Returns:
        What tyro is told, or None where nothing of it can be said, as of a function.
    """
    if hint in PLAIN or hint is type(None) or get_origin(hint) is Literal:
        return hint
    if get_origin(hint) in (Union, types.UnionType):
        return _union_hint(get_args(hint))
    if is_dataclass(hint):
        return MAPPING
    inner = [each for each in get_args(hint) if each is not Ellipsis]
    return _collection_hint(get_origin(hint), inner) if inner else None


def _collection_hint(origin: Any, inner: Sequence[Any]) -> Any | None:
    element: Any = Any if inner[-1] is Any else flag_hint(inner[-1])
    if element is None or not isinstance(origin, type):
        return None
    if issubclass(origin, Mapping):
        return MAPPING
    if origin not in _SEQUENCES or len(inner) > 1:
        return None
    return tuple[element, ...] if _is_word(element) else YAML_VALUE


def _union_hint(options: Sequence[Any]) -> Any | None:
    kept = [known for known in map(flag_hint, options) if known is not None]
    if not kept or kept == [type(None)]:
        return None
    # what is most particular is tried first: any word is a text, and most are YAML
    order = sorted(dict.fromkeys(kept), key=lambda each: (each != MAPPING, each == YAML_VALUE))
    return Union[tuple(order)]  # noqa: UP007  # of a list


def _is_word(hint: Any) -> bool:
    return all(each in PLAIN or get_origin(each) is Literal for each in _options(hint))


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def field_flags(kind: type, *, without: Collection[str] = ()) -> list[Flag]:
    """Return the fields of a dataclass as flags; those that no word can say have none.

    Args:
        kind: its docstrings are the help.
        without: fields that are left out.
    """
    hints, told = get_type_hints(kind), described_fields(kind)
    found = []
    for each in fields(kind):
        hint = None if each.name in without else flag_hint(hints[each.name])
        if hint is not None:
            default = each.default if each.default_factory is MISSING else each.default_factory()
            found.append(Flag(each.name, hint, default, told.get(each.name, "")))
    return found


# --- words to values ----------------------------------------------------------------------------


def parsed(
    command: str,
    groups: Mapping[str, Sequence[Flag]],
    words: Sequence[str],
    about: str = "",
    explain: Callable[[str], str | None] = lambda option: None,
) -> dict[str, dict[str, Any]]:
    """Return what a command says, and no defaults: by title, values by name of the flag.

    `--help` prints the groups and ends the process, as a value that cannot be read does.

    Args:
        command: `motet train`, for usage and errors.
        groups: flags by the title that they stand under.
        words: what was typed after the command, its positional words taken out.
        about: the text above the flags in the help.
        explain: what to say of a flag that there is not; None for what is most like it.

    Raises:
        UsageError: where there is no such flag.
    """
    flags = [flag for group in groups.values() for flag in group]
    words = _spelled_out(flags, words)
    kind: Any = command_type(groups)
    with _plain_where_asked():
        found, unknown = tyro.cli(
            kind,
            prog=command,
            description=textwrap.fill(about, 80) or " ",
            args=words,
            config=(tyro.conf.AvoidSubcommands,),
            registry=_REGISTRY,
            return_unknown_args=True,
        )
    _check_known(command, unknown, flags, explain)
    return {
        title: {
            flag.name: vars(vars(found)[_identifier(title)])[flag.name]
            for flag in group
            if flag.is_in(words)
        }
        for title, group in groups.items()
    }


@contextmanager
def _plain_where_asked() -> Iterator[None]:
    """Keep tyro from colours where NO_COLOR is set: it knows dumb terminals alone."""
    terminal = os.environ.get("TERM")
    if not os.environ.get("NO_COLOR") or terminal is None:
        yield
        return
    os.environ["TERM"] = "dumb"
    try:
        yield
    finally:
        os.environ["TERM"] = terminal


def command_type(groups: Mapping[str, Sequence[Flag]]) -> type:
    """Return a dataclass of groups of flags, for tyro."""
    kinds = []
    for title, group in groups.items():
        kind = make_dataclass(_identifier(title), [_field(flag) for flag in group])
        kind.__doc__ = " "  # dataclasses would put their signature there, and tyro print it
        kinds.append((_identifier(title), Annotated[kind, tyro.conf.OmitArgPrefixes]))
    return make_dataclass("Command", kinds)


def _identifier(title: str) -> str:
    return title.replace("-", "_")


def _field(flag: Flag) -> tuple[str, Any, Any]:
    hint: Any = Annotated[
        flag.hint,
        tyro.conf.arg(
            name=flag.option[2:],
            help=flag.help.replace("%", "%%"),
            aliases=flag.aliases or None,
            help_behavior_hint=f"(default: {shown_default(flag.default)})",
        ),
    ]
    return flag.name, hint, field(default=_start(flag))


def _start(flag: Flag) -> Any:
    """Return a default that tyro takes: what nobody typed is not looked at."""
    options = _options(flag.hint)
    return None if type(None) in options else _any_of(options[-1])


def _any_of(hint: Any) -> Any:
    if hint in (YAML_VALUE, MAPPING, *PLAIN):
        return hint()
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return inner[0]
    return () if Ellipsis in inner else tuple(map(_any_of, inner))


def shown_default(value: Any) -> str:
    """Return a default as it would be typed."""
    if isinstance(value, tuple | list):
        return " ".join(map(str, value)) or "none"
    return repr(value) if value == "" else str(value)


def _spelled_out(flags: Sequence[Flag], words: Sequence[str]) -> list[str]:
    """Let `--bf16`, `--no-bf16` and `--bf16 True` be said of every flag that is True or False."""
    switches = {
        option: flag for flag in flags if bool in _options(flag.hint) for option in flag.options
    }
    found: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        option, equals, said = word.partition("=")
        flag = switches.get(option.replace("_", "-"))
        if flag is None:
            found.append(word)
            continue
        if not equals and left and left[0].lower() in _SAID:
            said = left.pop(0)
        found.extend(_switched(flag, option.replace("_", "-"), said))
    return found


_SAID: dict[str, bool | None] = {"true": True, "false": False, "none": None, "": True}


def _switched(flag: Flag, option: str, said: str) -> list[str]:
    """Return a switch as tyro takes it: `--x` or `--no-x`, and with None as a choice `--x True`."""
    if said.lower() not in _SAID or (said.lower() == "none" and flag.hint is bool):
        raise UsageError(f"Expected True or False for {flag.option}, got {said!r}.")
    value = _SAID[said.lower()]
    if option == f"--no-{flag.option[2:]}":
        value = not value
    if flag.hint is bool:
        return [flag.option if value else f"--no-{flag.option[2:]}"]
    return [flag.option, str(value)]


def _check_known(
    command: str,
    unknown: Sequence[str],
    flags: Sequence[Flag],
    explain: Callable[[str], str | None],
) -> None:
    if not unknown:
        return
    wrong = next((word for word in unknown if word.startswith("-")), unknown[0])
    option = wrong.partition("=")[0]
    if not option.startswith("-"):
        raise UsageError(
            f"Expected flags of `{command}`, got {option!r}, which belongs to none; "
            f"`{command} --help` lists them."
        )
    told = explain(option)
    if told is not None:
        raise UsageError(told)
    known = [each for flag in flags for each in flag.options]
    hint = suggestion(option.replace("_", "-"), known)
    raise UsageError(
        f"Expected a flag of `{command}`, got {option}.{hint or f' `{command} --help` lists them.'}"
    )
