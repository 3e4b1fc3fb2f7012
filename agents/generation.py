"""How a language model is sampled from."""

from dataclasses import dataclass

from motet.agents.checks import check_fields
from motet.agents.stop_strings import checked_stop_strings

# Logits divided by less may be too large for float32, and log-probabilities no numbers.
_MIN_TEMPERATURE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """Sampling settings, with transformers' names.

    Attributes:
        max_new_tokens: most tokens of one completion, the stop token included.
        temperature: divides the logits; at least 1e-6.
        top_k: sample only from the k most likely tokens; None for all.
        top_p: sample only from the smallest set of tokens with at least this mass; None for all.
        do_sample: False takes the most likely token every time (its log-probability is then 0:
            the distribution sampled from is a point).
        stop_strings: texts that end a completion, as its end token does; one string or a list is
            taken too. What has been sampled with the one that came first, the token that completed
            it included, is kept and trained; the completion's text ends before it.
        bf16: multiply matrices in bfloat16, when sampling and when training on what was sampled;
            weights keep their precision. Faster on hardware that has it, and not exact.
        max_rows: most sequences decoded side by side; a longer batch is split.
        max_cache_gib: most memory, in GiB, of keys and values: of the rows decoded side by side,
            each with room for `max_new_tokens`, and of those that `history="append"` keeps for the
            next turn. A longer batch is split, and kept rows that do not fit are computed anew.
            None takes half of a GPU's free memory; on a CPU, where `max_rows` is what counts and
            no free memory is set apart, it is no limit.
    """

    max_new_tokens: int = 256
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    do_sample: bool = True
    stop_strings: tuple[str, ...] | None = None
    bf16: bool = False
    max_rows: int = 512
    max_cache_gib: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, others=("stop_strings",))
        object.__setattr__(self, "stop_strings", checked_stop_strings(self.stop_strings))
        if self.max_new_tokens < 1 or self.max_rows < 1:
            raise ValueError(
                "Expected max_new_tokens and max_rows of at least 1, got "
                f"max_new_tokens={self.max_new_tokens} and max_rows={self.max_rows}."
            )
        if self.max_cache_gib is not None and not self.max_cache_gib > 0:
            raise ValueError(f"Expected max_cache_gib above 0 or None, got {self.max_cache_gib}.")
        if not self.temperature >= _MIN_TEMPERATURE:
            raise ValueError(
                f"Expected a temperature above 0, of at least {_MIN_TEMPERATURE}, got "
                f"{self.temperature}; for the most likely token every time set do_sample=False."
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"Expected top_k of at least 1 or None, got {self.top_k}.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"Expected 0 < top_p <= 1 or None, got {self.top_p}.")
