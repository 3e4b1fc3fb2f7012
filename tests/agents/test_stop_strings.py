"""Stop strings: each completion ends with the token that completes one, and with no other."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tiny import END, byte_tokenizer, letter_agent, tiny_agent, tiny_llama
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from motet.agents import Completion, GenerationConfig, LMAgent, pocket
from motet.agents.stop_strings import StopStrings

PROMPTS = ["Rain", "Describe a city in the clouds:", "Rain", "a\nb", "héllo 🐉", "x"]
TEXTS = ["The ocean's end.\n\nUser: so?", "añb→c 🐉🐉 ééé", "  two  spaces , and . stops !", "aaaa"]


def pieces_and_bytes(*, strips: bool = True) -> PreTrainedTokenizerFast:
    """A tokenizer as Llama's: words with a sign for the space, and bytes for what it lacks."""
    words = ["▁", "▁the", "▁end", "the", "en", "d", "e", "n", "a", ".", "▁▁", "aa", "s▁e"]
    tokens = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts + [decoders.Strip(" ", 1, 0)] * strips)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def bytes_and_then_pieces() -> PreTrainedTokenizerFast:
    """The same with the parts of its decoder in another order: bytes may spell the space's sign."""
    tokenizer = pieces_and_bytes()
    parts = [decoders.ByteFallback(), decoders.Replace("▁", " "), decoders.Fuse()]
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


def words_joined_by_spaces(decoder: Any = None, **kwargs: bool) -> PreTrainedTokenizerFast:
    words = ["[UNK]", "the", "end", "##s", "##en", ".", ",", "!", "a", "n't", "é"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    if decoder is not None:
        tokenizer.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **kwargs)


def with_added_tokens() -> PreTrainedTokenizerFast:
    """A byte tokenizer with tokens that are no bytes: shown ones, and special ones that are not."""
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<think>", "é→", "\u2028"])
    tokenizer.add_tokens([AddedToken("<|turn|>", special=True)], special_tokens=True)
    return tokenizer


class Shouting(PreTrainedTokenizerFast):
    """Somebody's own tokenizer, which decodes in its own way."""

    def _decode(self, *args: Any, **kwargs: Any) -> str:
        return super()._decode(*args, **kwargs).upper()


def shouting() -> PreTrainedTokenizerFast:
    return Shouting(tokenizer_object=byte_tokenizer().backend_tokenizer, eos_token="<|end|>")


# By name: how to make it, and whether rows are decoded only where a stop string seems complete.
TOKENIZERS: dict[str, tuple[Callable[[], PreTrainedTokenizerBase], bool]] = {
    "bytes": (byte_tokenizer, True),
    "byte-level pairs": (lambda: pocket().tokenizer, True),
    "added tokens": (with_added_tokens, True),
    "byte fallback": (pieces_and_bytes, True),
    "byte fallback, nothing stripped": (lambda: pieces_and_bytes(strips=False), True),
    "byte fallback before the spaces": (bytes_and_then_pieces, False),
    "letters": (lambda: letter_agent().tokenizer, True),
    "word pieces": (lambda: words_joined_by_spaces(decoders.WordPiece()), False),
    "joined by spaces": (words_joined_by_spaces, False),
    "metaspace": (lambda: words_joined_by_spaces(decoders.Metaspace()), False),
    "cleaned up": (
        lambda: words_joined_by_spaces(decoders.Fuse(), clean_up_tokenization_spaces=True),
        False,
    ),
    "its own way": (shouting, False),
}


def drawn_ids(tokenizer: PreTrainedTokenizerBase, rng: random.Random) -> list[int]:
    """Any tokens, and those of a text, in any order; ids beyond the vocabulary among them."""
    some = rng.sample(range(len(tokenizer) + 2), min(4, len(tokenizer)))
    text = tokenizer(rng.choice(TEXTS), add_special_tokens=False)["input_ids"]
    ids: list[int] = []
    while len(ids) < 24:
        start = rng.randrange(max(len(text), 1))
        ids += rng.choice([text[start : start + 6], [rng.choice(some)], rng.choices(some, k=3)])
    return ids


def first_stop(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], strings: Sequence[str]
) -> int | None:
    """By decoding everything at every token: which of them completes a stop string."""
    for end in range(1, len(ids) + 1):
        text = tokenizer.decode(ids[:end], skip_special_tokens=True)
        if any(string in text for string in strings):
            return end - 1
    return None


def followed(stops: StopStrings, ids: Sequence[int]) -> int | None:
    end = b""
    for last in range(len(ids)):
        end, stopped = stops.follow(end, ids[: last + 1])
        if stopped:
            return last
    return None


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_token_that_completes_a_stop_string_is_found(name: str) -> None:
    make, joins = TOKENIZERS[name]
    tokenizer, rng = make(), random.Random(0)
    special = tokenizer.all_special_tokens
    found, across = 0, 0
    for _ in range(400):
        ids, others = drawn_ids(tokenizer, rng), drawn_ids(tokenizer, rng)
        strings = []
        for source in (ids, others):
            text = tokenizer.decode(source, skip_special_tokens=True)
            start = rng.randrange(max(len(text), 1))
            strings.append(text[start : start + rng.randint(1, 5)].strip("\ufffd"))
        strings = [s for s in strings if s and "\ufffd" not in s]
        if not strings or any(token in string for token in special for string in strings):
            continue
        stops = StopStrings(tokenizer, tuple(strings))
        assert (stops._pieces is not None) == joins
        expected = first_stop(tokenizer, ids, strings)
        assert followed(stops, ids) == expected, (ids, strings)
        assert followed(stops, ids) == expected  # from what it has looked up
        found += expected is not None
        if expected:
            last = tokenizer.decode(ids[expected : expected + 1], skip_special_tokens=True)
            across += all(string not in last for string in strings)
    assert found > 100
    assert across > 20 or name == "letters"


def test_bytes_may_spell_what_a_decoder_replaces() -> None:
    tokenizer = bytes_and_then_pieces()
    ids = tokenizer.convert_tokens_to_ids(["<0xE2>", "<0x96>", "<0x81>", "a"])
    assert tokenizer.decode(ids) == " a"
    assert followed(StopStrings(tokenizer, (" a",)), ids) == 3


def test_text_that_a_tokenizer_cannot_show_is_no_stop_string() -> None:
    """Bytes that do not make characters spoil those beside them, but not the ones to come."""
    tokenizer = pieces_and_bytes()
    stops = StopStrings(tokenizer, ("é",))
    broken, first, second = (
        tokenizer.convert_tokens_to_ids(f"<0x{byte}>") for byte in ("FF", "C3", "A9")
    )
    word = tokenizer.convert_tokens_to_ids("a")
    ids = [broken, first, second, word, first, second]
    assert tokenizer.decode(ids[:4]) == "\ufffd\ufffd\ufffda"
    assert followed(stops, ids) == 5


@pytest.mark.parametrize("settings", [{}, {"do_sample": False}, {"top_p": 0.9, "max_rows": 5}])
def test_a_completion_is_the_one_without_stop_strings_up_to_the_first(
    settings: dict[str, Any],
) -> None:
    strings = ("a", "é", "~]", "\x1b")
    plain, stopping = (
        tiny_agent(max_new_tokens=40, stop_strings=each, **settings) for each in (None, strings)
    )
    reasons = set()
    pairs = zip(plain.act(PROMPTS, 8, seed=3), stopping.act(PROMPTS, 8, seed=3), strict=True)
    for whole, cut in ((w, c) for group, cuts in pairs for w, c in zip(group, cuts, strict=True)):
        last = first_stop(plain.tokenizer, whole.completion_ids, strings)
        reasons.add((cut.finish_reason, last is not None))
        end = len(whole.completion_ids) if last is None else last + 1
        assert cut.completion_ids == whole.completion_ids[:end]
        assert cut.log_probs == pytest.approx(whole.log_probs[:end], abs=1e-4)
        if last is None:
            assert (cut.text, cut.finish_reason) == (whole.text, whole.finish_reason)
            continue
        assert cut.finish_reason == "stop"
        text = plain.tokenizer.decode(cut.completion_ids, skip_special_tokens=True)
        place = min(text.find(string) for string in strings if string in text)
        assert cut.text == text[:place]
        assert whole.text.startswith(cut.text)
    assert ("stop", True) in reasons
    assert reasons > {("stop", True)}


def test_words_end_the_embedded_model() -> None:
    agent = pocket(generation=GenerationConfig(max_new_tokens=64, stop_strings="city in th"))
    num_ended = 0
    for completion in agent.act(["Describe a city in the clouds:"], 16, seed=1)[0]:
        assert "city in th" not in completion.text
        whole = agent.tokenizer.decode(completion.completion_ids, skip_special_tokens=True)
        if whole != completion.text:
            assert whole == completion.text + "city in the"  # with all of the token
            assert completion.finish_reason == "stop"
            num_ended += 1
    assert num_ended > 2


def test_rows_that_have_stopped_leave_the_batch() -> None:
    sizes: dict[bool, list[int]] = {}
    for stops in (False, True):
        strings = tuple("etaoinshrdlu") if stops else None
        agent = tiny_agent(max_new_tokens=24, stop_strings=strings)
        seen: list[int] = []

        def note(module: torch.nn.Module, inputs: Any, own: list[int] = seen) -> None:
            own.append(len(inputs[0]))

        agent.model.model.embed_tokens.register_forward_pre_hook(note)
        agent.act(PROMPTS, 16, seed=0)
        sizes[stops] = seen
    assert sum(sizes[True]) < 0.7 * sum(sizes[False])


def test_rows_are_decoded_once_where_no_stop_string_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = pocket(generation=GenerationConfig(max_new_tokens=48, stop_strings=["\n\nUser:"]))
    calls = []
    decode = agent.tokenizer.decode
    monkeypatch.setattr(
        agent.tokenizer,
        "decode",
        lambda *args, **kwargs: (calls.append(1), decode(*args, **kwargs))[1],
    )
    agent.act(["Rain"], 12, seed=0)
    assert len(calls) == 12


def test_caches_are_kept_of_completions_that_stopped() -> None:
    settings = GenerationConfig(max_new_tokens=16, stop_strings=tuple("etaoin"))
    agent = LMAgent(tiny_llama(), byte_tokenizer(), generation=settings, history="append", seed=0)
    with agent.keeping_caches():
        first = [c for group in agent.act(["Rain", "Describe"], 6, seed=0) for c in group]
        kept = agent.act(["And?"] * 12, 2, seed=1, contexts=first)
    anew = agent.act(["And?"] * 12, 2, seed=1, contexts=first)
    for ours, theirs in zip(kept, anew, strict=True):
        for one, two in zip(ours, theirs, strict=True):
            assert one.completion_ids == two.completion_ids
            assert one.log_probs == pytest.approx(two.log_probs, abs=1e-4)


# --- settings ------------------------------------------------------------------------------------


def test_one_string_and_lists_are_taken() -> None:
    assert GenerationConfig(stop_strings="\n").stop_strings == ("\n",)
    assert GenerationConfig(stop_strings=["a", "b"]).stop_strings == ("a", "b")
    assert GenerationConfig(stop_strings=()).stop_strings is None
    assert GenerationConfig().stop_strings is None
    assert hash(GenerationConfig(stop_strings=["a"])) == hash(GenerationConfig(stop_strings=("a",)))


def test_a_twin_has_stop_strings_of_its_own() -> None:
    agent = tiny_agent(max_new_tokens=40, stop_strings=tuple("etaoin"))
    plain = agent.with_generation(stop_strings=None)
    assert plain.act(PROMPTS, 4, seed=3) == tiny_agent(max_new_tokens=40).act(PROMPTS, 4, seed=3)
    again = plain.with_generation(stop_strings=tuple("etaoin"))
    assert again.act(PROMPTS, 4, seed=3) == agent.act(PROMPTS, 4, seed=3)


def test_settings_that_are_put_in_the_place_of_others_count() -> None:
    agent, settings = tiny_agent(), GenerationConfig(max_new_tokens=40, stop_strings=("e", "a"))
    agent.generation = settings
    assert agent.act(PROMPTS, 4, seed=3) == tiny_agent(
        max_new_tokens=40, stop_strings=("e", "a")
    ).act(PROMPTS, 4, seed=3)
    agent.generation = GenerationConfig(max_new_tokens=40)
    assert agent.act(PROMPTS, 4, seed=3) == tiny_agent(max_new_tokens=40).act(PROMPTS, 4, seed=3)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ("", ValueError, "at least one character"),
        (["a", ""], ValueError, "at least one character"),
        ("a\ufffd", ValueError, "whole characters"),
        (3, TypeError, "a string or several, got 3"),
        ({"a"}, TypeError, "a string or several"),
        ([3], TypeError, "strings as stop_strings, got 3"),
    ],
)
def test_wrong_stop_strings_are_refused(wrong: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        GenerationConfig(stop_strings=wrong)


def test_special_tokens_are_no_stop_strings() -> None:
    with pytest.raises(ValueError, match=r"ordinary text, got 'a<\|end\|>' .*eos_token_id"):
        tiny_agent(stop_strings=("b", "a<|end|>"))
    with pytest.raises(ValueError, match="ordinary text"):
        tiny_agent().with_generation(stop_strings="<|end|>")


# --- conversations -------------------------------------------------------------------------------

PLAIN_TURNS = (
    "{% for m in messages %}{% if m.role == 'user' %}"
    "{{ '\n\n### User: ' + m.content + '\n\n### Answer:' }}"
    "{% else %} {{ m.content }}{% endif %}{% endfor %}"
)
MARKED_TURNS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>\n{% endfor %}[assistant]"
)


def conversing(template: str | None, *strings: str) -> LMAgent:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return LMAgent(
        tiny_llama(),
        tokenizer,
        generation=GenerationConfig(max_new_tokens=24, stop_strings=strings),
        chat_template=template is not None,
        history="append",
    )


def said(agent: LMAgent, text: str, *, last: tuple[int, ...] = ()) -> Completion:
    ids = (*agent.tokenizer(text)["input_ids"], *last)
    return Completion(text, agent.encode("Rain"), ids, (0.0,) * len(ids), "stop")


def added(agent: LMAgent, context: Completion, observation: str = "Go on.") -> str:
    """What a prompt has behind a completion's ids, which it goes on from."""
    ids = agent.encode(observation, context)
    before = context.prompt_ids + context.completion_ids
    assert ids[: len(before)] == before
    return agent.tokenizer.decode(ids[len(before) :])


def test_a_raw_conversation_goes_on_behind_the_stop_string() -> None:
    agent = conversing(None, "\nUser:")
    assert added(agent, said(agent, "Wet.\nUser:")) == "Go on."
    assert added(agent, said(agent, "Wet.\nUser:"), "\nUser: hm") == "\nUser: hm"


@pytest.mark.parametrize("strings", [("\n\n### User:",), ("### User:",), ("#", "?"), ("User",)])
def test_a_turn_that_a_stop_string_has_begun_is_not_begun_again(strings: tuple[str, ...]) -> None:
    agent = conversing(PLAIN_TURNS, *strings)
    header = "\n\n### User:"
    written = header[: header.index(strings[0]) + len(strings[0])]
    context = said(agent, f" Wet.{written}")
    assert written + added(agent, context) == "\n\n### User: Go on.\n\n### Answer:"
    messages = [
        {"role": "user", "content": "Rain"},
        {"role": "assistant", "content": "Wet."},
        {"role": "user", "content": "Go on."},
    ]
    whole = agent.tokenizer.apply_chat_template(messages, return_dict=False)
    assert agent.encode("Go on.", context) == tuple(whole)


def test_other_ends_do_not_shorten_the_next_turn() -> None:
    whole = "\n\n### User: Go on.\n\n### Answer:"
    agent = conversing(PLAIN_TURNS, "###", "!")
    assert added(agent, said(agent, " Wet!")) == whole
    assert added(agent, said(agent, " Wet.\n\n### Us")) == "er: Go on.\n\n### Answer:"
    assert added(agent, said(agent, " Wet.\n\n###!")) == whole  # it is not how the turn begins
    assert added(agent, said(agent, " Wet.\n\n###", last=(END,))) == whole  # closed by itself
    # the user's own words are not eaten, although the completion ended with them
    assert added(agent, said(agent, "\n\n### User: Go!"), "Go! Go!") == (
        "\n\n### User: Go! Go!\n\n### Answer:"
    )


def test_a_template_closes_a_completion_that_a_stop_string_has_ended() -> None:
    agent = conversing(MARKED_TURNS, "~")
    tail = "<|end|>\n[user]Go on.<|end|>\n[assistant]"
    assert added(agent, said(agent, "Wet.~")) == tail
    assert added(agent, said(agent, "Wet.", last=(END,))) == tail.removeprefix("<|end|>")
