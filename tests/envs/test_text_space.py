"""TextSpace: what belongs to it, what it samples, and its place among Gymnasium's spaces."""

import copy
import json
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st

from motet.envs.text_space import TextSpace

# Hypothesis's text has no lone surrogates, as those cannot be encoded.
texts = st.text(max_size=40)
bounds = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)


@given(texts)
def test_any_text_belongs_to_the_unbounded_space(text):
    assert text in TextSpace()


def test_very_long_text_belongs_to_the_unbounded_space():
    assert "x" * 1_000_000 in TextSpace()


@given(texts, bounds)
def test_bounds_count_characters_and_are_inclusive(text, bounds):
    low, high = bounds
    assert (text in TextSpace(high, min_length=low)) == (low <= len(text) <= high)


@pytest.mark.parametrize("other", [None, 17, 1.0, b"text", ["text"], ("a",), {"a": 1}])
def test_what_is_no_string_does_not_belong(other):
    assert other not in TextSpace()


def test_numpy_strings_are_strings():
    assert np.str_("text") in TextSpace()


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ude00\ud83d"])
def test_lone_surrogates_do_not_belong(text):
    assert text not in TextSpace()


@given(st.integers(0, 2**32), bounds, st.integers(0, 30))
def test_samples_belong_and_are_seeded(seed, bounds, sample_length):
    low, high = bounds
    first = TextSpace(high, min_length=low, sample_length=sample_length, seed=seed)
    second = TextSpace(high, min_length=low, sample_length=sample_length)
    second.seed(seed)
    drawn = [first.sample() for _ in range(8)]
    assert all(text in first for text in drawn)
    assert drawn == [second.sample() for _ in range(8)]


def test_samples_are_good_fuzz():
    space = TextSpace(seed=0)
    drawn = [space.sample() for _ in range(2000)]
    assert all(text in space for text in drawn)
    assert max(map(len, drawn)) == 16
    assert len(set(drawn)) > 1500
    assert sum(text.isascii() and text.isprintable() for text in drawn) > 1000
    assert "" in drawn
    assert any(text and not text.strip() for text in drawn)
    assert any("\n" in text for text in drawn)
    assert any("é" in text for text in drawn)
    assert any(len(character.encode()) == 4 for text in drawn for character in text)


def test_sample_length_does_not_follow_a_large_bound_but_does_follow_a_large_minimum():
    assert len(TextSpace(100_000, seed=0).sample()) <= 16
    assert len(TextSpace(min_length=50, seed=0).sample()) == 50


def test_samples_are_drawn_where_they_are_given():
    space = TextSpace(samples=["stay", "go"], seed=0)
    assert {space.sample() for _ in range(50)} == {"stay", "go"}
    assert "something else" in space


def test_masks_are_refused():
    space = TextSpace()
    with pytest.raises(ValueError, match="no fixed list of characters"):
        space.sample(np.ones(3, dtype=np.int8))
    with pytest.raises(ValueError, match="probability="):
        space.sample(probability=np.ones(3))
    assert space.sample(None) in space


@pytest.mark.parametrize(
    ("arguments", "exception", "sentence"),
    [
        ({"max_length": -1}, ValueError, "max_length must not be negative, but it is -1"),
        ({"max_length": 1.5}, TypeError, "max_length must be an integer, but it is 1.5"),
        ({"max_length": True}, TypeError, "max_length must be an integer, but it is True"),
        ({"min_length": "2"}, TypeError, "min_length must be an integer, but it is '2'"),
        ({"sample_length": -3}, ValueError, "sample_length must not be negative"),
        ({"max_length": 1, "min_length": 2}, ValueError, "must not exceed max_length"),
        ({"samples": []}, ValueError, "samples must hold at least one text"),
        ({"samples": "text"}, TypeError, "samples must be a sequence of texts"),
        ({"samples": ["a", 1]}, TypeError, "samples must hold texts only, but one is 1"),
        ({"samples": ["long"], "max_length": 2}, ValueError, "one of them is 'long'"),
    ],
)
def test_wrong_arguments_are_sentences(arguments, exception, sentence):
    with pytest.raises(exception, match=sentence):
        TextSpace(**arguments)


def test_equality_is_that_of_the_bounds():
    assert TextSpace() == TextSpace(seed=3, samples=["a"], sample_length=2)
    assert TextSpace(np.int64(5)) == TextSpace(5)
    assert TextSpace(5) != TextSpace(6)
    assert TextSpace(5) != TextSpace(5, min_length=1)
    assert TextSpace(5) != spaces.Text(5, min_length=0)


def test_repr_is_short():
    assert repr(TextSpace()) == "TextSpace()"
    assert repr(TextSpace(9, min_length=2)) == "TextSpace(max_length=9, min_length=2)"


@pytest.mark.parametrize(
    "twin_of", [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))]
)
def test_copies_keep_bounds_and_stream_and_have_their_own(twin_of):
    space = TextSpace(30, min_length=1, samples=list("abcdefgh"), seed=7)
    space.sample()
    twin = twin_of(space)
    assert twin == space
    ahead = [space.sample() for _ in range(20)]
    assert [twin.sample() for _ in range(20)] == ahead


@given(st.lists(texts, max_size=5))
def test_json_round_trip(batch):
    space = TextSpace()
    written = json.dumps(space.to_jsonable(batch))
    assert space.from_jsonable(json.loads(written)) == batch


@given(texts)
def test_flatten_round_trip(text):
    space = TextSpace(40)
    flat = spaces.flatten(space, text)
    assert flat.dtype == np.int32
    assert flat.shape == (40,) == (spaces.flatdim(space),)
    assert flat in spaces.flatten_space(space)
    assert list(flat[: len(text)]) == [ord(character) + 1 for character in text]
    assert not flat[len(text) :].any()
    assert spaces.unflatten(space, flat) == text


def test_flatten_keeps_nul_and_the_highest_code_point():
    space = TextSpace(3)
    flat = spaces.flatten(space, "\0\U0010ffff")
    assert flat.tolist() == [1, 0x110000, 0]
    assert flat in spaces.flatten_space(space)
    assert spaces.unflatten(space, flat) == "\0\U0010ffff"


@given(texts, st.integers(0, 3))
def test_flatten_inside_other_spaces(text, number):
    space = spaces.Dict(text=TextSpace(40), number=spaces.Discrete(4))
    sample = {"text": text, "number": number}
    flat = spaces.flatten(space, sample)
    assert flat in spaces.flatten_space(space)
    assert spaces.unflatten(space, flat) == sample


def test_unbounded_texts_do_not_flatten():
    space = TextSpace()
    assert not space.is_np_flattenable
    assert TextSpace(3).is_np_flattenable
    for call in (
        lambda: spaces.flatdim(space),
        lambda: spaces.flatten(space, "a"),
        lambda: spaces.unflatten(space, np.zeros(3, dtype=np.int32)),
        lambda: spaces.flatten_space(space),
    ):
        with pytest.raises(ValueError, match=r"TextSpace\(\) has no max_length"):
            call()


def test_only_members_flatten():
    with pytest.raises(ValueError, match="Only texts of"):
        spaces.flatten(TextSpace(2), "abc")


def test_vector_environments_can_batch_it():
    batch = batch_space(TextSpace(5), 3)
    assert ("a", "", "\n") in batch
    assert ("a", "", "toolong") not in batch


def test_a_copy_samples_on_its_own_from_the_same_point():
    space = TextSpace(max_length=40, seed=3)
    space.sample()
    twin = space.copy()
    assert twin == space
    assert [twin.sample() for _ in range(5)] == [space.sample() for _ in range(5)]
    twin.sample()
    third = TextSpace(max_length=40).copy()
    assert third.sample() in space
