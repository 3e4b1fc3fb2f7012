"""KL to a reference policy: estimates from the tokens that were sampled, and what they cost.

Pure functions, after "Approximating KL divergence" (Schulman 2020,
http://joschu.net/blog/kl-approx.html). At a token sampled from pi, d = log pi_ref - log pi:

| name | estimate | its mean | the mean of its gradient, as a loss |
|---|---|---|---|
| `k1` | -d | KL(pi, pi_ref) | zero: it holds nothing |
| `k2` | d^2 / 2 | near KL(pi, pi_ref) where d is small | that of KL(pi, pi_ref) |
| `k3` | exp(d) - 1 - d | KL(pi, pi_ref), and no estimate below 0 | that of KL(pi_ref, pi) |

`k3` in the loss is what GRPO does (Shao et al. 2024, arXiv 2402.03300, equation 4), `k1` in the
return what PPO on human preferences does (Ouyang et al. 2022, arXiv 2203.02155, section 3.5).
"""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from motet.agents import Completion
from motet.algos.rollouts.rollout import Rollout

KLEstimator = Literal["k1", "k2", "k3"]
KLPlace = Literal["loss", "return"]

KLByCompletion = Mapping[str, Mapping[Completion, float]]
"""By agent and completion: the sum of an estimate over the completion's tokens."""


def token_kl(
    log_probs: Tensor, ref_log_probs: Tensor, mask: Tensor, estimator: KLEstimator
) -> Tensor:
    """Return each token's estimate of KL(pi, pi_ref); see the module for the equations.

    Args:
        log_probs: (B, T) of the sampled tokens under the policy.
        ref_log_probs: (B, T) under the reference.
        mask: (B, T) True where there is a token.
        estimator: which of the three.

    Returns:
        (B, T) estimates, 0 where there is no token.
    """
    if log_probs.ndim != 2 or not log_probs.shape == ref_log_probs.shape == mask.shape:
        raise ValueError(
            "Expected log_probs, ref_log_probs and mask of one shape (B, T), got "
            f"{tuple(log_probs.shape)}, {tuple(ref_log_probs.shape)} and {tuple(mask.shape)}."
        )
    difference = (ref_log_probs - log_probs).masked_fill(~mask, 0.0)
    if estimator == "k1":
        return -difference
    if estimator == "k2":
        return difference.square() / 2
    # expm1 keeps the digits that exp(d) - 1 loses where the policies are close
    return difference.expm1() - difference


def kl_loss(per_token: Tensor, weights: Tensor) -> Tensor:
    """Return sum_i w_i sum_t KL_it: averaged as the policy loss averages its tokens.

    Args:
        per_token: (B, T) estimates from `token_kl`, with gradient.
        weights: (B,) of the sequences.

    Returns:
        () loss.
    """
    if per_token.ndim != 2 or weights.shape != per_token.shape[:1]:
        raise ValueError(
            "Expected estimates of shape (B, T) and weights of shape (B,), got "
            f"{tuple(per_token.shape)} and {tuple(weights.shape)}."
        )
    return (weights * per_token.sum(-1)).sum()


def kl_costs(kl: KLByCompletion, kl_coef: float) -> dict[str, dict[Completion, float]]:
    """Return what each completion's KL takes from its agent's return: kl_coef * KL."""
    return {
        name: {completion: kl_coef * value for completion, value in own.items()}
        for name, own in kl.items()
    }


def kl_metrics(rollout: Rollout, by_policy: Mapping[str, KLByCompletion]) -> dict[str, float]:
    """Return `train/kl`, the mean over all tokens, and each policy's own where there are several.

    Args:
        rollout: whose tokens.
        by_policy: of each policy, by name, the KL of what its agents wrote.
    """
    together = {name: own for kl in by_policy.values() for name, own in kl.items()}
    metrics = {"train/kl": mean_token_kl(rollout, together)}
    if len(by_policy) > 1:
        for policy, kl in by_policy.items():
            metrics[f"train/kl/{policy}"] = mean_token_kl(rollout, kl)
    return metrics


def mean_token_kl(rollout: Rollout, kl: KLByCompletion) -> float:
    """Return the mean over all tokens of the agents in `kl`, 0 where they wrote none."""
    total, tokens = 0.0, 0
    for node in rollout.nodes():
        for name in kl.keys() & node.completions.keys():
            for completion in node.completions[name]:
                total += kl[name][completion]
                tokens += len(completion.completion_ids)
    return total / max(tokens, 1)
