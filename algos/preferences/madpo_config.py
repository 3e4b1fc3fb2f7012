"""Settings of MADPO."""

from dataclasses import dataclass, fields

from motet.algos.config import TrainerConfig
from motet.algos.preferences.pairs import PairSelection
from motet.algos.preferences.preference_losses import PreferenceLossType


@dataclass(frozen=True, slots=True, kw_only=True)
class MADPOConfig(TrainerConfig):
    """Settings of MADPO.

    Of `TrainerConfig`, `train_batch_size` counts pairs here, and `num_iterations` above 1 needs no
    `clip_range`: the loss is that of the pairs whatever policy wrote them. Settings of group
    advantages and of other losses are refused: clipping, `loss_type`, normalisation, and a KL,
    since the reference is in the loss already.

    Besides those of `TrainerConfig`:

    Attributes:
        dpo_beta: what a unit of log-probability to the reference is worth. The smaller it is, the
            further the policy goes from the reference.
        reference_free: leave the reference out, and with it its memory and its forward pass; see
            `motet.algos.preferences.madpo` for what it is then.
        preference_loss_type: "sigmoid" is DPO, "ipo" has a goal for the margin, 1 / (2 dpo_beta).
        label_smoothing: share of preferences that are taken to be wrong, below 0.5; of "sigmoid".
        pair_selection: which joint actions of a group are compared; see `select_pairs`.
        pairs_per_group: at most so many pairs of a team at a node; None takes all.
    """

    dpo_beta: float = 0.1
    reference_free: bool = False
    preference_loss_type: PreferenceLossType = "sigmoid"
    label_smoothing: float = 0.0
    pair_selection: PairSelection = "disjoint"
    pairs_per_group: int | None = None

    def __post_init__(self) -> None:
        TrainerConfig.__post_init__(self)
        if not self.dpo_beta > 0:
            raise ValueError(f"Expected dpo_beta above 0, got {self.dpo_beta}.")
        if not 0 <= self.label_smoothing < 0.5:
            raise ValueError(
                f"Expected label_smoothing from 0 to below 0.5, got {self.label_smoothing}: beyond "
                "that the worse of a pair would be preferred."
            )
        if self.label_smoothing and self.preference_loss_type != "sigmoid":
            raise ValueError(
                f"Expected preference_loss_type='sigmoid' with label_smoothing="
                f"{self.label_smoothing}, got {self.preference_loss_type!r}, which has none."
            )
        check_pairs(self.num_generations, self.pairs_per_group)
        for field in fields(TrainerConfig):
            value = getattr(self, field.name)
            if field.name in _OF_OTHERS and value != field.default:
                raise ValueError(
                    f"Expected {field.name}={field.default!r} with MADPO, got {value!r}: "
                    f"{_OF_OTHERS[field.name]}."
                )

    def _check_iterations(self) -> None:
        """Any number of passes will do: see the class."""


_NOT_IN_LOSS = "its loss is of pairs and has no such term"
_OF_OTHERS = {
    "advantage_normalization": "preferences are compared, and have no advantages",
    "clip_range": _NOT_IN_LOSS,
    "clip_range_high": _NOT_IN_LOSS,
    "ent_coef": _NOT_IN_LOSS,
    "importance_sampling_cap": "pairs need no weights, whatever policy wrote them",
    "kl_coef": "the reference is in its loss already; lower or raise dpo_beta",
    "loss_type": "the log-probability of a completion is the sum over its tokens",
    "mask_truncated_completions": "a pair has two sides, and each counts",
}


def check_pairs(num_generations: int, pairs_per_group: int | None) -> None:
    """Raise where there would be no pairs.

    Args:
        num_generations: G.
        pairs_per_group: see `select_pairs`.

    Raises:
        ValueError: where G is 1, or no pair is asked for.
    """
    if num_generations < 2:
        raise ValueError(
            f"Expected num_generations of at least 2, got {num_generations}: one joint action has "
            "nothing to be compared with."
        )
    if pairs_per_group is not None and pairs_per_group < 1:
        raise ValueError(f"Expected pairs_per_group of at least 1, got {pairs_per_group}.")
