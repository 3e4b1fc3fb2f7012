"""Groups that say nothing, since all of their completions earned the same: counted, and told of."""

import warnings
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from statistics import fmean

FRAC_ZERO_STD = "train/frac_zero_std_groups"

WINDOW = 20
"""Rollouts over which the share of such groups is averaged before it is told of."""

LIMIT = 0.8
"""Share above which it is."""


def spread_metrics(telling: Iterable[str], silent: Iterable[str]) -> dict[str, float]:
    """Return `train/frac_zero_std_groups`, and each agent's own where there are several.

    Args:
        telling: whose they are, of the groups that say which completions were better.
        silent: whose they are, of the groups that do not.

    Returns:
        Nothing where there are no groups at all.
    """
    without = Counter(silent)
    count = Counter(telling) + without
    if not count:
        return {}
    metrics = {FRAC_ZERO_STD: without.total() / count.total()}
    if len(count) > 1:
        for name, total in count.items():
            metrics[f"{FRAC_ZERO_STD}/{name}"] = without[name] / total
    return metrics


class SpreadWatch:
    """Warn once where most groups of a run have said nothing for a while.

    Args:
        window: rollouts that are looked at together.
        limit: share of groups, over the last `window` rollouts, above which to warn.
    """

    def __init__(self, window: int = WINDOW, limit: float = LIMIT) -> None:
        self._seen: deque[float] = deque(maxlen=window)
        self._limit = limit
        self._warned = False

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a rollout; one without groups does not count."""
        if FRAC_ZERO_STD not in metrics:
            return
        self._seen.append(metrics[FRAC_ZERO_STD])
        share = fmean(self._seen)
        if self._warned or len(self._seen) < (self._seen.maxlen or 0) or share <= self._limit:
            return
        self._warned = True
        warnings.warn(
            f"In {100 * share:.0f} % of groups of the last {len(self._seen)} rollouts all "
            "completions earned the same: there is nothing to learn from them. Unless the reward "
            "is as high as it can be, raise num_generations or the temperature, or change the "
            "reward so that it tells more answers apart.",
            stacklevel=4,
        )
