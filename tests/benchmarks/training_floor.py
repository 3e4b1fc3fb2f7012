"""The floor: how long the work takes at the least, by the rates that the machine was measured at.

With rate F of matrix products (FLOP/s), rate C of copying (bytes/s), weights W_body and W_head:

- a decode step of B rows: max(4 * (W_body + W_head) / C, 2 * (W_body + W_head) * B / F): all
  weights are read once, and each takes part in one multiplication and addition for each row;
- reading the P tokens of all prompts of a turn, once each: 2 * W_body * P / F;
- the update: 6 * (W_body * (P + T) + W_head * T) / F, with P tokens of prompts, one for all G
  siblings, and T of completions: a forward pass of 2 and a backward pass of 4 FLOPs per weight and
  token, with the head at the completions only. Adapters halve the backward pass, for the weights
  below them need no gradient; groups without spread need no update; where a side computes what
  several sequences begin with once, and so fewer tokens than P + T, its floor is the lower one.

B is what the prompts that are handed over together allow: `Work.rows_at_once`.
Attention, the key-value cache, activations, norms, sampling and the optimizer count as nothing, so
that 100 % is out of reach, and further for a small model. The rates are those of float32, also
where a side computes in bfloat16.
"""

from machine_rates import Rates
from training_work import Measured, Work


def generation_floor_s(work: Work, measured: Measured, rates: Rates) -> float:
    """Return the least time to sample all completions of the measured agents."""
    weights = rates.body_parameters + rates.head_parameters
    rollouts = len(work.prompts) / work.prompts_at_once
    steps_s = 0.0
    for turn in range(1, work.num_turns + 1):
        rows = work.rows_at_once(turn)
        step_s = max(4 * weights / rates.copy_bytes, 2 * weights * rows / rates.gemm_flops)
        steps_s += rollouts * (work.max_new_tokens - 1) * step_s  # prompts give the first tokens
    prompts_s = 2 * rates.body_parameters * measured.prompt_tokens / rates.gemm_flops
    return measured.num_agents * steps_s + prompts_s


def update_floor_s(work: Work, measured: Measured, rates: Rates) -> float:
    """Return the least time to train on those completions that there is something to learn from."""
    tokens = work.share_with_spread * (measured.prompt_tokens + measured.new_tokens)
    if measured.tokens_computed is not None:
        tokens = min(tokens, measured.tokens_computed)
    body = rates.body_parameters * tokens
    head = rates.head_parameters * work.share_with_spread * measured.new_tokens
    return (4 if work.lora else 6) * (body + head) / rates.gemm_flops
