"""What a learner without a language model sees of a text: a vector of numbers.

An encoder is anything with a `size` that turns B texts into a (B, size) array of float32 in
[-1, 1]; one from a sentence-embedding model fits in a few lines. The default, `HashingEncoder`,
needs no download and no fitting.

`ChoiceFeatures` puts an observation of `PickOfK` together. In order:

| part        | entries        | value                                                            |
|-------------|----------------|------------------------------------------------------------------|
| prompt      | `encoder.size` | the encoder's features of this turn's prompt                     |
| length      | 1              | of the prompt: log10(1 + characters) / 6, at most 1              |
| agent       | N              | 1 at the agent's place in `possible_agents`, 0 elsewhere         |
| acts        | 1              | 1 where the agent's pick counts this turn, 0 where it is ignored |
| turn        | 1              | t / (1 + t) after t turns                                        |
| last reward | 1              | r / (1 + abs(r)) of the agent's own reward r, 0 at first         |
| candidates  | K * (size + 1) | features and length of each, zeros where there is none           |

The last part is there only where candidates differ from turn to turn, because a function or an
agent writes them: a policy can then tell them apart by nothing else.
"""

import hashlib
import math
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from motet.envs.task.parts import checked_count

_WORD = re.compile(r"\w+|[^\w\s]")
_HIGHEST_LOG_LENGTH = 6.0


class TextEncoder(Protocol):
    """Turn texts into vectors of one size.

    Attributes:
        size: entries of a vector.
    """

    size: int

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (B, size) features in [-1, 1] of (B,) texts."""


class HashingEncoder:
    """Count words and runs of characters in hashed places, with hashed signs.

    The features of a text depend on nothing but the text: the same in every process, on every
    machine. Words are those of the text in small letters, punctuation marks included; runs of
    characters serve what spaces do not part, such as Chinese, and words that share a stem. Each
    kind is brought to Euclidean length 1 (Weinberger et al., Feature Hashing for Large Scale
    Multitask Learning, 2009), and their sum is again. A text without either gives zeros.

    Args:
        size: entries of a vector.
        num_characters: length of the runs of characters; 0 for words alone.

    Raises:
        TypeError: where one is no integer.
        ValueError: where `size` is below 1 or `num_characters` below 0.
    """

    def __init__(self, size: int = 64, *, num_characters: int = 3) -> None:
        self.size = checked_count("size", size)
        self.num_characters = (
            checked_count("num_characters", num_characters) if num_characters != 0 else 0
        )

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (B, size) features of (B,) texts.

        Raises:
            TypeError: where `texts` is one string instead of a list of them.
        """
        if isinstance(texts, str):
            raise TypeError(f"Expected a list of texts, got the text {texts[:60]!r}; pass [text].")
        features = np.zeros((len(texts), self.size))
        for i, text in enumerate(texts):
            plain = text.casefold()  # not normalised: NFKC is quadratic in runs of marks
            features[i] = _unit(_unit(self._words(plain)) + _unit(self._runs(plain)))
        return features.astype(np.float32).clip(-1, 1)

    def _words(self, text: str) -> NDArray[np.float64]:
        counts = Counter(_WORD.findall(text))
        hashes = [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in counts]
        return self._hashed(np.array(hashes, np.uint64), np.array([*counts.values()], np.float64))

    def _runs(self, text: str) -> NDArray[np.float64]:
        # Blanks around the text make its first and last letters runs of their own.
        codes = np.frombuffer(f" {text} ".encode("utf-32-le", "surrogatepass"), "<u4")
        num_runs = len(codes) - self.num_characters + 1
        if self.num_characters == 0 or num_runs < 1 or not text:
            return np.zeros(self.size)
        mixed = np.zeros(num_runs, np.uint64)
        for i in range(self.num_characters):
            # FNV-1a of the code points, and a shift that carries high bits to the low ones
            mixed = (mixed ^ codes[i : i + num_runs]) * np.uint64(0x100000001B3)
            mixed ^= mixed >> np.uint64(29)
        return self._hashed(mixed, np.ones(num_runs))

    def _hashed(
        self, hashes: NDArray[np.uint64], counts: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        signs = 1.0 - 2.0 * (hashes & np.uint64(1)).astype(np.float64)
        places = ((hashes >> np.uint64(1)) % np.uint64(self.size)).astype(np.int64)
        features = np.zeros(self.size)
        np.add.at(features, places, signs * counts)
        return features


@dataclass(frozen=True, slots=True)
class View:
    """What one agent is to see, before it becomes numbers.

    Attributes:
        agent: its place in `possible_agents`.
        prompt: this turn's prompt.
        acts: whether its pick counts this turn.
        turn: turns taken so far.
        reward: its own reward of the last turn.
        candidates: what it can choose from.
    """

    agent: int
    prompt: str
    acts: bool
    turn: int
    reward: float
    candidates: tuple[str, ...]


class ChoiceFeatures:
    """Turn views into observations; the module's table has the layout.

    Args:
        encoder: of prompts and candidates.
        num_agents: N.
        num_candidates: K where candidates are part of the observation, 0 where they are not.

    Raises:
        TypeError: where the encoder has no `size` or cannot be called.
    """

    def __init__(self, encoder: Any, num_agents: int, num_candidates: int) -> None:
        if not callable(encoder) or not hasattr(encoder, "size"):
            raise TypeError(
                "Expected an encoder that can be called with a list of texts and has a size, got "
                f"{encoder!r}; HashingEncoder() is the default."
            )
        self._encoder: TextEncoder = encoder
        self._encoded = checked_count("encoder.size", encoder.size)
        self._num_agents = num_agents
        self._num_candidates = num_candidates
        self.size = self._encoded + num_agents + 4 + num_candidates * (self._encoded + 1)

    def __call__(self, views: Sequence[View]) -> NDArray[np.float32]:
        """Return (B, size) observations of (B,) views, with one call of the encoder.

        Raises:
            ValueError: where the encoder's features have another shape or leave [-1, 1].
        """
        if not views:
            return np.zeros((0, self.size), np.float32)
        shown = [view.candidates if self._num_candidates else () for view in views]
        texts = list(dict.fromkeys([view.prompt for view in views]))
        texts = list(dict.fromkeys([*texts, *(text for those in shown for text in those)]))
        place = {text: i for i, text in enumerate(texts)}
        encoded = self._encode(texts)
        observations = np.zeros((len(views), self.size), np.float32)
        for seen, view, candidates in zip(observations, views, shown, strict=True):
            seen[: self._encoded] = encoded[place[view.prompt]]
            end = self._encoded + 1 + self._num_agents
            seen[self._encoded] = _length(view.prompt)
            seen[self._encoded + 1 + view.agent] = 1
            seen[end : end + 3] = (
                view.acts,
                view.turn / (1 + view.turn),
                view.reward / (1 + abs(view.reward)),
            )
            start = end + 3
            for text in candidates:
                seen[start : start + self._encoded] = encoded[place[text]]
                seen[start + self._encoded] = _length(text)
                start += self._encoded + 1
        return observations

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        encoded = np.asarray(self._encoder(texts), np.float32)
        if encoded.shape != (len(texts), self._encoded):
            raise ValueError(
                f"Expected features of shape {(len(texts), self._encoded)} from the encoder, got "
                f"{encoded.shape}."
            )
        outside = ~(np.abs(encoded) <= 1).all(axis=-1)
        if outside.any():
            i = int(outside.argmax())
            raise ValueError(
                f"Expected features in [-1, 1] from the encoder, got {encoded[i]} for "
                f"{texts[i][:80]!r}."
            )
        return encoded


def mixed_seed(*parts: object) -> int:
    """Return a seed of 63 bits that depends on all parts, the same in every process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _length(text: str) -> float:
    return min(1.0, math.log10(1 + len(text)) / _HIGHEST_LOG_LENGTH)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = float(np.sqrt(vector @ vector))
    return vector / norm if norm else vector
