"""Texts that end a completion, found token by token.

A completion ends with the first token after which its decoded text has a stop string in it, which
may begin many tokens earlier, in the middle of one, and with bytes that are no character yet.

Decoding all rows at every token would cost more than a small model's forward pass. Most tokenizers
decode by joining what each token stands for. For those a row keeps the end of its text that a stop
string may begin with, and what a token makes of such an end is looked up: it was worked out the
first time. Only where a stop string seems complete, the row is decoded, whose text has the last
word. Tokenizers that decode otherwise (WordPiece, say) are asked to decode the row at every token.
"""

import json
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what a part of a character is decoded to


def checked_stop_strings(stop_strings: object) -> tuple[str, ...] | None:
    """Return stop strings as a tuple, None where there are none.

    Args:
        stop_strings: one string, a list or tuple of them, or None.

    Raises:
        TypeError: where it is something else.
        ValueError: where one is empty, or has a character that stands for broken ones.
    """
    if stop_strings is None:
        return None
    if isinstance(stop_strings, str):
        stop_strings = (stop_strings,)
    if not isinstance(stop_strings, list | tuple):
        raise TypeError(
            f"Expected stop_strings to be a string or several, got {stop_strings!r} of type "
            f"{type(stop_strings).__name__}; write stop_strings=('a', 'b')."
        )
    for string in stop_strings:
        if not isinstance(string, str):
            raise TypeError(f"Expected strings as stop_strings, got {string!r}.")
        if not string:
            raise ValueError("Expected stop_strings of at least one character, got an empty one.")
        if _REPLACEMENT in string:
            raise ValueError(
                f"Expected stop_strings of whole characters, got {string!r} with U+FFFD, which "
                "tokens have only until the rest of a character follows."
            )
    return tuple(stop_strings) or None


class StopStrings:
    """Tell which token ends a completion.

    Args:
        tokenizer: that decodes the completions.
        strings: what ends them.

    Attributes:
        strings: what ends completions.

    Raises:
        ValueError: where one has a special token in it, which is in no text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, strings: tuple[str, ...]) -> None:
        _check_special(tokenizer, strings)
        self.strings = strings
        self._tokenizer = tokenizer
        self._pieces = _Pieces(tokenizer) if _joins(tokenizer) else None
        self._encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        self._next: dict[tuple[bytes, int], tuple[bytes, bool]] = {}

    def follow(self, end: bytes, ids: Sequence[int]) -> tuple[bytes, bool]:
        """Go on by one token.

        Args:
            end: what was returned for the token before, b"" before the first.
            ids: (T,) the completion's tokens, the new one last.

        Returns:
            The end of the text that a stop string may begin with, and whether the text has one.
        """
        if self._pieces is None:
            return b"", self.find(self._decoded(ids)) is not None
        key = end, ids[-1]
        found = self._next.get(key)
        if found is None:
            found = self._next[key] = self._followed(end + self._pieces.of(ids[-1]))
        end, seems = found
        return end, seems and self.find(self._decoded(ids)) is not None

    def find(self, text: str) -> int | None:
        """Return where the first stop string of a text begins, None where there is none."""
        return min((p for p in map(text.find, self.strings) if p >= 0), default=None)

    def _followed(self, text: bytes) -> tuple[bytes, bool]:
        """Return the longest end of a text that begins a stop string, and if it has a whole one."""
        longest = b""
        for string in self._encoded:
            for length in range(min(len(string) - 1, len(text)), len(longest), -1):
                if text.endswith(string[:length]):
                    longest = string[:length]
                    break
        return longest, any(string in text for string in self._encoded)

    def _decoded(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text


class _Pieces:
    """What each token adds to a text, in bytes; or more, where its place matters.

    Args:
        tokenizer: one that joins what its tokens stand for.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._parts = _parts(tokenizer)
        added = tokenizer.added_tokens_decoder
        self._special = {token for token, entry in added.items() if entry.special}

    def of(self, token: int) -> bytes:
        """Return what a token adds to a text: nothing where it is special, or no token."""
        text: str | None = self._tokenizer.convert_ids_to_tokens(token)
        if text is None or token in self._special:
            return b""
        for part in self._parts:
            if part["type"] == "ByteLevel":
                letters = [_BYTES.get(letter) for letter in text]
                known = [letter for letter in letters if letter is not None]
                return bytes(known) if len(known) == len(letters) else text.encode()
            if part["type"] == "Replace":
                text = text.replace(part["pattern"]["String"], part["content"])
            elif part["type"] == "ByteFallback" and _is_byte(text):
                return bytes([int(text[3:5], 16)])
        return text.encode()


def _joins(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Tell whether a tokenizer's text is what its tokens stand for, one after another.

    But for what is cut off at the beginning of a text, and bytes that do not make characters: what
    seems to be a stop string there is not one in the text, and never the other way round.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return False
    own, base = type(tokenizer), PreTrainedTokenizerFast
    if own.decode is not base.decode or own._decode is not base._decode or _cleans_up(tokenizer):
        return False
    parts = _parts(tokenizer)
    kinds = [part["type"] for part in parts]
    if kinds == ["ByteLevel"]:
        return True
    if "Fuse" not in kinds:
        return False  # tokens are joined with spaces, or as the last part says
    fuse = kinds.index("Fuse")
    bytes_begin = kinds.index("ByteFallback") if "ByteFallback" in kinds else fuse
    return all(
        (kind == "Replace" and "String" in part["pattern"] and i < min(bytes_begin, fuse))
        or (kind == "ByteFallback" and i < fuse)
        or kind == "Fuse"
        or (kind == "Strip" and i > fuse and part["stop"] == 0)
        for i, (kind, part) in enumerate(zip(kinds, parts, strict=True))
    )


def _cleans_up(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Tell whether transformers takes out spaces after decoding, which it does not for BPE."""
    if not tokenizer.clean_up_tokenization_spaces:
        return False
    is_bpe = type(tokenizer.backend_tokenizer.model).__name__ == "BPE"
    return (
        not is_bpe
        or tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output
    )


def _parts(tokenizer: PreTrainedTokenizerFast) -> list[dict[str, Any]]:
    """Return the decoder's parts in order, as the tokenizers library writes them."""
    decoder = tokenizer.backend_tokenizer.decoder
    if decoder is None:
        return []
    part: dict[str, Any] = json.loads(decoder.__getstate__())
    parts: list[dict[str, Any]] = part["decoders"] if part["type"] == "Sequence" else [part]
    return parts


def _is_byte(text: str) -> bool:
    """Tell whether a token stands for one byte, as <0x0A> does."""
    hexadecimal = set("0123456789abcdefABCDEF")
    return (
        len(text) == 6
        and text.startswith("<0x")
        and text.endswith(">")
        and set(text[3:5]) <= hexadecimal
    )


def _check_special(tokenizer: PreTrainedTokenizerBase, strings: Sequence[str]) -> None:
    for string in strings:
        for token in tokenizer.all_special_tokens:
            if token in string:
                raise ValueError(
                    f"Expected stop_strings of ordinary text, got {string!r} with the special "
                    f"token {token!r}, which is in no completion's text; let "
                    "model.generation_config.eos_token_id list the token's id, and completions "
                    "end with it."
                )


def _byte_letters() -> dict[str, int]:
    """Return the bytes that the letters of byte-level tokens stand for.

    Bytes that print stand for themselves, all others for the letters from U+0100 on.
    """
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    letters = {chr(byte): byte for byte in printed}
    return letters | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_letters()
