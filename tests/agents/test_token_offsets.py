"""Offsets of tokens equal those of decoding every beginning of a completion as a whole."""

import random

import pytest
from chat import agent_with, as_llamas, chatml
from tiny import byte_tokenizer, letter_agent
from transformers import PreTrainedTokenizerFast

from motet.agents import GenerationConfig
from motet.agents.token_offsets import token_offsets

BROKEN = "\N{REPLACEMENT CHARACTER}"
MAKES = {
    "bytes": byte_tokenizer,
    "byte pairs": chatml,
    "SentencePiece": as_llamas,
    "SentencePiece, a space before all": lambda: as_llamas("always"),
    "SentencePiece, no space": lambda: as_llamas("never"),
    "letters": lambda: letter_agent().tokenizer,
}
PIECES = ["a", " ", "  ", "\n", ".", "é", "한", "漢字", "the end", "n't", " ,", "<0x41>", "▁"]
PIECES += ["🎻", "👩\u200d👩\u200d👧", "\N{RIGHT-TO-LEFT MARK}"]


def slow_offsets(
    tokenizer: PreTrainedTokenizerFast, ids: tuple[int, ...], text: str
) -> tuple[int, ...]:
    """Decode each beginning; one that ends within a character shows what the one before did."""
    offsets = [0]
    for end in range(1, len(ids) + 1):
        shown = tokenizer.decode(ids[:end], skip_special_tokens=True)
        whole = 0 if shown.endswith(BROKEN) else min(len(shown), len(text))
        offsets.append(max(offsets[-1], whole))
    return (*offsets[1:-1], len(text)) if ids else ()


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES.keys())
def test_they_are_those_of_decoding_every_beginning(make) -> None:
    tokenizer, rng = make(), random.Random(0)
    for case in range(400):
        if case % 2:  # a text
            words = [rng.choice(PIECES) for _ in range(rng.randrange(12))]
            ids = tuple(tokenizer("".join(words), add_special_tokens=False).input_ids)
        else:  # any tokens, as a policy that has learnt nothing writes: half characters, signs
            ids = tuple(rng.randrange(len(tokenizer)) for _ in range(rng.randrange(20)))
        text = tokenizer.decode(ids, skip_special_tokens=True)
        for cut in {text, text[: rng.randrange(len(text) + 1)]}:  # as a stop string cuts it
            offsets = token_offsets(tokenizer, ids, cut)
            assert offsets == slow_offsets(tokenizer, ids, cut), (ids, cut)
            assert list(offsets) == sorted(offsets)


def test_the_last_byte_of_a_character_shows_it() -> None:
    tokenizer = byte_tokenizer()
    ids = tuple(tokenizer("aé🎻!").input_ids)
    assert len(ids) == 1 + 2 + 4 + 1
    assert token_offsets(tokenizer, ids, "aé🎻!") == (1, 1, 2, 2, 2, 2, 3, 4)


def test_a_word_of_sentencepiece_has_its_space() -> None:
    tokenizer = as_llamas()
    ids = tuple(tokenizer.convert_tokens_to_ids(["▁the", "▁end", "</s>", ".", "<0xC3>", "<0xA9>"]))
    assert token_offsets(tokenizer, ids, "the end.é") == (3, 7, 7, 8, 8, 9)


def test_bytes_that_make_no_character_do_not_move_what_is_behind_them() -> None:
    """Of a run of bytes with a wrong one each is shown as a sign of its own: é is two of them."""
    tokenizer = as_llamas()
    ids = tuple(tokenizer.convert_tokens_to_ids(["<0xC3>", "<0xA9>", "<0xFF>", "d", "e"]))
    text = tokenizer.decode(ids)
    assert text == f"{BROKEN * 3}de"
    assert token_offsets(tokenizer, ids, text) == (0, 1, 1, 4, 5)


def test_nothing_has_no_offsets() -> None:
    assert token_offsets(byte_tokenizer(), (), "") == ()


@pytest.mark.parametrize("make", [byte_tokenizer, as_llamas, chatml])
def test_they_end_where_the_texts_of_an_agent_end(make) -> None:
    """What it sampled itself, with its end token or the token that a stop string ends within."""
    settings = GenerationConfig(max_new_tokens=12, stop_strings=["e", "\n"])
    agent = agent_with(make(), generation=settings)
    reasons = set()
    for written in agent.act(["the end"], 60, seed=1)[0]:
        offsets = token_offsets(agent.tokenizer, written.completion_ids, written.text)
        assert len(offsets) == len(written.completion_ids)
        assert offsets[-1] == len(written.text)
        assert offsets == slow_offsets(agent.tokenizer, written.completion_ids, written.text)
        reasons.add(written.finish_reason)
    assert "stop" in reasons
