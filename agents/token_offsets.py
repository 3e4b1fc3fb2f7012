"""Which part of a text each of its tokens wrote: for looking at completions token by token."""

import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # SentencePiece's, for what its words lack
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what a part of a character is decoded to
_LONGEST_RUN = 256  # bytes that are decoded together


def token_offsets(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], text: str
) -> tuple[int, ...]:
    """Return where each token's text ends in the text of a completion.

    A token is decoded behind the ones before it, because many tokenizers write a word's space only
    there. Tokens that show nothing, and all but the last of those that share a character, end where
    the one before did.

    Args:
        tokenizer: that decoded them.
        ids: (T,) the completion's tokens.
        text: the completion's text.

    Returns:
        (T,) ends, in characters, that never go back; the last is the text's length.
    """

    def decoded(start: int, end: int) -> str:
        written: str = tokenizer.decode(ids[start:end], skip_special_tokens=True)
        return written

    offsets: list[int] = []
    # decode from `context`; up to `begun` it is `known` characters, of which `total` is the end
    context = begun = known = total = 0
    for end in range(1, len(ids) + 1):
        now = decoded(context, end)
        shown = offsets[-1] if offsets else 0
        if len(now) > known and not now.endswith(_UNFINISHED):
            written = total + len(now) - known
            shown = max(shown, min(written, len(text)))
            # a later byte may still turn those before it into replacement characters
            if end - begun >= _LONGEST_RUN or not _is_byte(tokenizer, ids[end - 1]):
                context, begun, total = begun, end, written
                known = len(decoded(context, begun))
        offsets.append(shown)
    if offsets:  # what is left of an unfinished character belongs to the last token
        offsets[-1] = len(text)
    return tuple(offsets)


def _is_byte(tokenizer: PreTrainedTokenizerBase, token: int) -> bool:
    name = tokenizer.convert_ids_to_tokens(token)
    return isinstance(name, str) and _BYTE.fullmatch(name) is not None
