"""Which part of a text each of its tokens wrote: for looking at completions token by token."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what a part of a character is decoded to


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
    context, begun, total = 0, 0, 0  # decode from `context`; what `begun` follows is told already
    for end in range(1, len(ids) + 1):
        before, now = decoded(context, begun), decoded(context, end)
        if len(now) > len(before) and not now.endswith(_UNFINISHED):
            total += len(now) - len(before)
            context, begun = begun, end
        offsets.append(min(total, len(text)))
    if offsets:  # what is left of an unfinished character belongs to the last token
        offsets[-1] = len(text)
    return tuple(offsets)
