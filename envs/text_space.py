"""The space of observations and actions: any text.

`gymnasium.spaces.Text` is a space over a fixed alphabet: it refuses blanks and line breaks by
default, stores every character that it allows, and samples texts as long as its upper bound. What
language models read and write needs the opposite, so `TextSpace` departs from it:

1. Every string that UTF-8 can encode belongs to it, the empty one too. Lone surrogates do not:
   tokenizers and JSON files cannot hold them.
2. Lengths, in characters, may be bounded; by default they are not, since prompts grow with turns.
3. `sample` returns short fuzz of a length that does not depend on the bounds: mostly printable
   ASCII, now and then nothing, only line breaks, accents, or emoji. Or it draws from `samples`.
4. A bounded space flattens to code points + 1, padded with 0, so that each text survives.

Example:
    >>> "Describe a city in the clouds:" in TextSpace()
    True
"""

import string
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from numpy.typing import NDArray

# Repeated characters are the likely ones: most samples then look like words.
_PLAIN = string.ascii_lowercase * 3 + string.ascii_uppercase + string.digits + " " * 24
_PLAIN += string.punctuation
_WILD = "aeiou" + " \n\t" * 2 + "éßñøЖλ漢字한שع\u2013\u2019🎵🙂"
_EDGE_CASES = (
    "",
    " ",
    "\n",
    "\n\n\n",
    "0",
    "e\u0301",
    "Grüße, 世界",
    "👩🏽\u200d🚀",
    "<|endoftext|>",
)
_EDGE_CASE_PROBABILITY = 1 / 8
_WILD_PROBABILITY = 1 / 8
_HIGHEST_CODE_POINT = 0x10FFFF


class TextSpace(spaces.Space[str]):
    """Hold every text whose length lies between two optional bounds.

    Two spaces are equal when their bounds are: `samples` and `sample_length` steer only `sample`.

    Args:
        max_length: greatest length in characters (not tokens); None for no bound.
        min_length: smallest length in characters.
        samples: texts that `sample` draws from, instead of making fuzz.
        sample_length: greatest length of sampled fuzz, as far as the bounds allow it.
        seed: seed of `sample`.

    Raises:
        TypeError: a length is no integer, or one of `samples` is no text.
        ValueError: a length is negative, the bounds exclude each other, `samples` is empty or has
            a text outside the space.
    """

    def __init__(
        self,
        max_length: int | None = None,
        *,
        min_length: int = 0,
        samples: Sequence[str] | None = None,
        sample_length: int = 16,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)
        self.min_length = _checked_length("min_length", min_length)
        self.max_length = None if max_length is None else _checked_length("max_length", max_length)
        self.sample_length = _checked_length("sample_length", sample_length)
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(
                f"min_length must not exceed max_length, but min_length={min_length} and "
                f"max_length={max_length}."
            )
        self.samples = None if samples is None else self._checked_samples(samples)
        self._edge_cases = tuple(text for text in _EDGE_CASES if text in self)

    def copy(self) -> Self:
        """Return a space that samples on its own from here: what `deepcopy` does, but fast."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        if self._np_random is not None:
            twin._np_random = deepcopy(self._np_random)
        return twin

    def contains(self, x: Any) -> bool:
        """Tell whether `x` is a string within the bounds that UTF-8 can encode."""
        if not isinstance(x, str) or len(x) < self.min_length:
            return False
        if self.max_length is not None and len(x) > self.max_length:
            return False
        if x.isascii():
            return True
        try:
            x.encode("utf-8")
        except UnicodeEncodeError:
            return False
        return True

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Draw a text: one of `samples` if they were given, otherwise short fuzz.

        Args:
            mask: must be None; part of the signature of every space.
            probability: must be None; part of the signature of every space.

        Returns:
            A text of this space.

        Raises:
            ValueError: a mask or a probability was given.
        """
        if mask is not None or probability is not None:
            raise ValueError(
                "A TextSpace has no fixed list of characters that a mask or a probability could "
                f"refer to, but mask={mask!r} and probability={probability!r}."
            )
        rng = self.np_random
        if self.samples is not None:
            return self.samples[int(rng.integers(len(self.samples)))]
        if self._edge_cases and rng.random() < _EDGE_CASE_PROBABILITY:
            return self._edge_cases[int(rng.integers(len(self._edge_cases)))]
        longest = max(self.min_length, self.sample_length)
        if self.max_length is not None:
            longest = min(longest, self.max_length)
        length = int(rng.integers(self.min_length, longest + 1))
        characters = _WILD if rng.random() < _WILD_PROBABILITY else _PLAIN
        return "".join(characters[i] for i in rng.integers(len(characters), size=length))

    @property
    def is_np_flattenable(self) -> bool:
        """Tell whether texts flatten to arrays of one size: those of a bounded space do."""
        return self.max_length is not None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TextSpace)
            and self.min_length == other.min_length
            and self.max_length == other.max_length
        )

    __hash__ = None  # type: ignore[assignment] # like every space: seeding changes it

    def __repr__(self) -> str:
        lower = f"min_length={self.min_length}" if self.min_length else ""
        upper = "" if self.max_length is None else f"max_length={self.max_length}"
        return f"TextSpace({', '.join(bound for bound in (upper, lower) if bound)})"

    def _checked_samples(self, samples: Sequence[str]) -> tuple[str, ...]:
        if isinstance(samples, str):
            raise TypeError(f"samples must be a sequence of texts, but it is the text {samples!r}.")
        if not samples:
            raise ValueError("samples must hold at least one text, but it is empty.")
        for text in samples:
            if not isinstance(text, str):
                raise TypeError(f"samples must hold texts only, but one is {text!r}.")
            if text not in self:
                raise ValueError(f"samples must lie in {self}, but one of them is {text!r}.")
        return tuple(samples)


def _checked_length(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, but it is {value!r}.")
    if value < 0:
        raise ValueError(f"{name} must not be negative, but it is {value}.")
    return int(value)


def _flat_length(space: TextSpace) -> int:
    if space.max_length is None:
        raise ValueError(f"{space} has no max_length, so its texts have no flat form of one size.")
    return space.max_length


@flatdim.register(TextSpace)
def _flatdim_text(space: TextSpace) -> int:
    return _flat_length(space)


@flatten.register(TextSpace)
def _flatten_text(  # type: ignore[misc]  # mypy does not solve the generic function's T
    space: TextSpace, x: str
) -> NDArray[np.int32]:
    flat = np.zeros(_flat_length(space), dtype=np.int32)
    if x not in space:
        raise ValueError(f"Only texts of {space} can be flattened, but this is {x!r:.200}.")
    flat[: len(x)] = np.frombuffer(x.encode("utf-32-le"), dtype="<u4") + 1
    return flat


@unflatten.register(TextSpace)
def _unflatten_text(  # type: ignore[misc]  # as above
    space: TextSpace, x: NDArray[np.int32]
) -> str:
    _flat_length(space)
    return (x[x > 0] - 1).astype("<u4").tobytes().decode("utf-32-le")


@flatten_space.register(TextSpace)
def _flatten_space_text(space: TextSpace) -> spaces.Box:
    length = _flat_length(space)
    return spaces.Box(low=0, high=_HIGHEST_CODE_POINT + 1, shape=(length,), dtype=np.int32)
