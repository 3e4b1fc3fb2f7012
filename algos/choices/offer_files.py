"""What there is to pick from, as JSON holds it: texts and templates, but no functions or agents."""

from collections.abc import Mapping
from typing import Any

from motet.envs.wrappers.candidates import FixedCandidates, FunctionCandidates, Strategies
from motet.envs.wrappers.features import HashingEncoder
from motet.envs.wrappers.offers import Offers


def described(offers: Offers) -> dict[str, Any]:
    """Return offers as JSON can hold them; `restored` reads that."""
    source, encoder = offers.source, offers.encoder
    texts: dict[str, Any] | None = None
    if isinstance(source, FixedCandidates):
        kind, texts = "candidates", dict(source.texts)
    elif isinstance(source, Strategies):
        kind = "strategies"
        plain = all(isinstance(each, str) for own in source.strategies.values() for each in own)
        texts = dict(source.strategies) if plain else None
    else:
        kind = "function" if isinstance(source, FunctionCandidates) else "written"
    return {
        "agent_names": list(offers.agent_names),
        "k": offers.k,
        "kind": kind,
        "texts": texts,
        "size": offers.size,
        "encoder": (
            {"size": encoder.size, "num_characters": encoder.num_characters}
            if isinstance(encoder, HashingEncoder) and type(encoder) is HashingEncoder
            else None
        ),
    }


def restored(
    known: Mapping[str, Any],
    *,
    candidates: Any = None,
    strategies: Any = None,
    writer: Any = None,
    encoder: Any = None,
) -> Offers:
    """Return the offers that a description is of.

    Args:
        known: what `described` returned.
        candidates: the function that writes them, where one does.
        strategies: ways to put the prompt, where they are no templates.
        writer: who writes, where somebody does: one for all agents, or one for each by name.
        encoder: of the features, where it is no `HashingEncoder`.

    Raises:
        ValueError: where one of these is missing or was saved, or the encoder is another one.
    """
    kind, texts = known["kind"], known["texts"]
    _check_given("candidates", candidates, needed=kind == "function")
    _check_given("strategies", strategies, needed=kind == "strategies" and texts is None)
    _check_given("writer", writer, needed=kind in ("written", "strategies"))
    _check_given("encoder", encoder, needed=known["encoder"] is None)
    if encoder is None:
        encoder = HashingEncoder(**known["encoder"])
    parts: dict[str, Any] = {
        "candidates": {"candidates": texts},
        "function": {"candidates": candidates},
        "written": {"candidates": writer},
        "strategies": {"strategies": strategies or texts, "writer": writer},
    }[kind]
    offers = Offers(known["agent_names"], **parts, k=known["k"], encoder=encoder)
    if offers.size != known["size"]:
        raise ValueError(
            f"Expected an encoder that gives observations of {known['size']} entries, as in "
            f"training, got one that gives {offers.size}."
        )
    return offers


def _check_given(name: str, value: Any, *, needed: bool) -> None:
    if needed and value is None:
        raise ValueError(
            f"Expected {name}=, which is part of what was trained and cannot be saved."
        )
    if not needed and value is not None:
        raise ValueError(f"Expected no {name}=, which was saved or not used, got {value!r}.")
