"""Group learners by name: MAGRPO and relatives of it that differ in what they subtract.

All of them are `MAGRPOTrainer` with another function passed in. With returns R_1, ..., R_G of an
agent's completions to one prompt, A_k = R_k - b_k where b_k is

| name | b_k | from |
|---|---|---|
| `magrpo` | mean(R) | MAGRPO (Liu et al. 2025, arXiv 2508.04652, section 4) |
| `mareinforce` | 0 | REINFORCE (Williams 1992) |
| `marloo` | mean of the others | RLOO (Ahmadian et al. 2024, arXiv 2402.14740) |
| `maremax` | return of the greedy joint completion | ReMax (Li et al. 2023, arXiv 2310.10505) |
| `maremax-group` | max(R) | CoMLRL's MAREMAX |
| `rae` | running mean of the agent's returns | SPIRAL (Liu et al. 2025, arXiv 2506.24119) |
| `grpo` | mean(R) | GRPO (Shao et al. 2024, arXiv 2402.03300, equation 3) |

How they depart from their papers, besides what `motet.algos.group.magrpo` lists:

1. Left to the learner, `advantage_normalization` is on for `magrpo`, `grpo` and `maremax-group`, as
   in CoMLRL, and off for the others, whose papers have none. On, all divide by the same number and
   still differ: `marloo` from `magrpo` by the factor G / (G - 1), the others by a shift. (CoMLRL
   takes the mean off again before it divides, so that its four learners are one.)
2. ReMax samples one completion per prompt; `maremax` has `num_generations` of them against one
   greedy episode from the same state, which is played on, greedily, to the end of the episode
   (`motet.algos.rollouts.greedy`). Its turns are env steps, and count as such.
3. RLOO and GRPO know one agent and no turns. Here each agent has groups of its own at every turn:
   with one agent and one turn `grpo` is GRPO, with several it is what is called independent GRPO,
   and MAGRPO with other defaults (`GRPOConfig`).
4. `grpo` divides by the standard deviation with G in its denominator. TRL has G - 1 there and adds
   0.0001, counts groups without spread in the mean over groups, and multiplies its KL by the ratio
   unless `use_bias_correction_kl=False`. But for these the losses are equal; a test holds them
   together.
5. TRL's RLOO clips the ratio of whole completions. With `clip_range`, `marloo` clips that of each
   token; pass `sequence_clipped_loss` of `motet.algos.updates.losses` in a `policy_loss` for the
   former. On fresh samples both have RLOO's gradient.
6. `rae`: see `motet.algos.group.running_mean`.

Pitfalls: `maremax-group` pushes all completions down but the best, which it leaves alone. A team
that has come to agree on something bad is told nothing by groups that are all equally bad, and was
seen to stay there without normalisation, where all others found out (four letters, two agents).
`mareinforce`, `maremax` and `rae` work with `num_generations=1`; the others have nothing to compare
one completion with. `maremax` near a deterministic policy has returns equal to the greedy one, and
learns nothing more.
"""

from dataclasses import replace
from typing import Any

from motet.algos.checks import checked_config
from motet.algos.group.advantages import (
    Baseline,
    greedy_return,
    group_max,
    leave_one_out,
    no_baseline,
)
from motet.algos.group.grpo_config import GRPOConfig
from motet.algos.group.magrpo import MAGRPOTrainer
from motet.algos.group.magrpo_config import MAGRPOConfig
from motet.algos.group.running_mean import RunningMean
from motet.algos.registration import register

register("magrpo")(MAGRPOTrainer)


@register("marloo")
def marloo(*, config: MAGRPOConfig | None = None, **options: Any) -> MAGRPOTrainer:
    """MAGRPO with the leave-one-out baseline (RLOO, arXiv 2402.14740) for each agent."""
    return _relative(leave_one_out, config, options)


@register("mareinforce")
def mareinforce(*, config: MAGRPOConfig | None = None, **options: Any) -> MAGRPOTrainer:
    """MAGRPO without a baseline: REINFORCE for each agent."""
    return _relative(no_baseline, config, options)


@register("maremax")
def maremax(*, config: MAGRPOConfig | None = None, **options: Any) -> MAGRPOTrainer:
    """MAGRPO with the return of the greedy joint completion as baseline (ReMax, 2310.10505)."""
    return _relative(greedy_return, config, options)


@register("maremax-group")
def maremax_group(*, config: MAGRPOConfig | None = None, **options: Any) -> MAGRPOTrainer:
    """MAGRPO with the group's best return as baseline: what CoMLRL calls MAREMAX."""
    return _relative(group_max, config, options, normalize=True)


@register("rae")
def rae(
    *, config: MAGRPOConfig | None = None, decay: float = 0.95, **options: Any
) -> MAGRPOTrainer:
    """MAGRPO with a running mean of each agent's returns, for self-play (RAE, 2506.24119)."""
    return _relative(RunningMean(decay), config, options)


@register("grpo", GRPOConfig)
def grpo(*, config: GRPOConfig | None = None, **options: Any) -> MAGRPOTrainer:
    """GRPO (arXiv 2402.03300) for each agent: MAGRPO with the defaults of `GRPOConfig`."""
    chosen = checked_config(config, options.pop("args", None), GRPOConfig)
    return MAGRPOTrainer(config=chosen, **options)


def _relative(
    baseline: Baseline,
    config: MAGRPOConfig | None,
    options: dict[str, Any],
    *,
    normalize: bool = False,
) -> MAGRPOTrainer:
    """Return a trainer that normalises advantages or does not, unless it is told."""
    chosen = checked_config(config, options.pop("args", None), MAGRPOConfig)
    if chosen.advantage_normalization is None:
        chosen = replace(chosen, advantage_normalization=normalize)
    return MAGRPOTrainer(config=chosen, baseline=baseline, **options)
