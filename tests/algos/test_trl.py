"""`grpo` and `marloo` beside TRL's GRPO and RLOO, on the same completions of one model.

TRL's own code encodes the prompts, turns rewards into advantages, masks, and computes loss and
gradients; only sampling is taken from it. What the two define alike is equal to 1e-5:

| TRL's `loss_type` | here |
|---|---|
| "grpo" | "sequence_mean" |
| "bnpo", and "dapo" in one batch | "token_mean" |
| "dr_grpo" | "constant" |
| "luspo" with ratios of tokens | "sequence_sum" |

What they do not: TRL divides by the standard deviation with G - 1 in its denominator, plus 0.0001,
and counts groups without spread in its means. There the tests say what the difference is. Its KL in
the loss has the ratio as a factor by default, which is switched off here.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tiny import byte_tokenizer, caught_gradients, tiny_agent, tiny_llama
from torch import Tensor

from motet import algos
from motet.agents import Completion, GenerationConfig, LMAgent
from motet.algos import GRPOConfig, MAGRPOConfig, MAGRPOTrainer, Rollout, collect_rollouts
from motet.algos.group.grouping import advantage_groups, credited_completions
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.updates.batch import Batch
from motet.algos.updates.losses import sequence_clipped_loss
from motet.envs import TextEnv

trl = pytest.importorskip("trl")
# what transformers says of how TRL calls it
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

PROMPTS = ("Sing.", "Sing it again, and higher", "Now all together")
LENGTH = 12
NAME = "agent_0"
QUIET = {"progress_bar": False, "max_grad_norm": None, "agent_learning_rate": 1e-30}


def reward(texts: list[str]) -> list[float]:
    return [sum(map(ord, text)) % 101 / 100 for text in texts]


def env() -> TextEnv:
    return TextEnv([{"prompt": prompt} for prompt in PROMPTS], reward, num_agents=1)


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    """Four completions to each prompt; some are cut, some end, and they are of several lengths."""
    agent = tiny_agent(max_new_tokens=LENGTH)
    found = collect_rollouts(env(), {NAME: agent}, [0, 1, 2], num_generations=4, seed=11)
    assert {one.finish_reason for one in completions(found)} == {"stop", "length"}
    return found


def completions(rollout: Rollout) -> list[Completion]:
    return [one for node in rollout.nodes() for one in node.completions[NAME]]


def moved(model: torch.nn.Module) -> None:
    """Train a model a little, as it were, so that completions are stale and ratios are not 1."""
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=noise), alpha=0.02)


def padded(rows: Iterator[tuple[float, ...]]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def learnt_by_trl(
    trainer_class: type, config_class: type, rollout: Rollout, folder: Path, **settings: Any
) -> tuple[float, dict[str, Tensor], dict[str, Tensor]]:
    """Loss, gradients by name of the weight, and the batch, as TRL's trainer computes them."""
    own = completions(rollout)
    rewards = [value for node in rollout.nodes() for value in node.rewards[NAME]]
    beta = settings.pop("beta", 0.0)
    is_grpo = trainer_class is trl.GRPOTrainer

    class Given(trainer_class):
        """Has its completions from elsewhere."""

        def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
            assert [tuple(ids) for ids in prompt_ids] == [one.prompt_ids for one in own]
            ids = [list(one.completion_ids) for one in own]
            return (ids, None) if is_grpo else ids

    model = tiny_llama()
    moved(model)
    trainer = Given(
        model=model,
        reward_funcs=lambda **_: rewards,
        args=config_class(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=len(own),
            num_generations=4,
            max_completion_length=LENGTH,
            epsilon=0.2,
            beta=0.0,
            **settings,
        ),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
        processing_class=byte_tokenizer(),
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()  # as in training: its losses are averaged in another way in evaluation
    examples = [{"prompt": prompt} for prompt in PROMPTS for _ in range(4)]
    batch = trainer._generate_and_score_completions(examples)
    sampled = padded(one.log_probs for one in own)
    if is_grpo:
        batch["old_per_token_logps"] = batch["ref_per_token_logps"] = sampled
    else:
        batch["old_logps"] = sampled.sum(-1)
    trainer.beta = beta
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    gradients = {
        key: weight.grad
        for key, weight in trainer.model.named_parameters()
        if weight.grad is not None
    }
    return float(loss.detach()), gradients, batch


def learnt_here(rollout: Rollout, trainer: MAGRPOTrainer) -> tuple[float, dict[str, Tensor]]:
    moved(trainer.agents[NAME].model)
    caught = caught_gradients(trainer)
    metrics = trainer.update(rollout)
    assert metrics["train/num_optimizer_steps"] == 1
    return metrics["train/loss"], caught[NAME]


def team() -> dict[str, LMAgent]:
    generation = GenerationConfig(max_new_tokens=LENGTH)
    return {NAME: LMAgent(tiny_llama(), byte_tokenizer(), generation=generation)}


def assert_equal(ours: tuple[float, dict[str, Tensor]], theirs: tuple[Any, ...]) -> None:
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5, abs=1e-6)
    assert ours[1].keys() == theirs[1].keys()
    for key, gradient in theirs[1].items():
        error = float((ours[1][key] - gradient).norm())
        assert error <= 1e-5 * float(gradient.norm()) + 1e-7, key


def deviation_of_trl(returns: Tensor) -> Tensor:
    return (returns - returns.mean()) / (returns.std(correction=1) + 1e-4)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"loss_type": "grpo"}, {"loss_type": "sequence_mean"}),
    "bnpo": ({"loss_type": "bnpo"}, {"loss_type": "token_mean"}),
    "dapo": (
        {"loss_type": "dapo", "epsilon_high": 0.28, "mask_truncated_completions": True},
        {
            "loss_type": "token_mean",
            "clip_range_high": 0.28,
            "mask_truncated_completions": True,
        },
    ),
    "dr_grpo": ({"loss_type": "dr_grpo"}, {"loss_type": "constant"}),
    "luspo": ({"loss_type": "luspo"}, {"loss_type": "sequence_sum"}),
    "cut ones masked": (
        {"loss_type": "grpo", "mask_truncated_completions": True},
        {"loss_type": "sequence_mean", "mask_truncated_completions": True},
    ),
    "KL in the loss": (
        {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
        {"loss_type": "sequence_mean", "kl_coef": 0.04},
    ),
}


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_grpo_is_that_of_trl(case: str, normalize: bool, rollout: Rollout, tmp_path: Path) -> None:
    theirs, ours = CASES[case]
    expected = learnt_by_trl(
        trl.GRPOTrainer,
        trl.GRPOConfig,
        rollout,
        tmp_path,
        scale_rewards="group" if normalize else "none",
        **theirs,
    )
    config = GRPOConfig(num_generations=4, advantage_normalization=False, **ours, **QUIET)
    if normalize:  # with TRL's standard deviation all the rest is equal, too
        trainer = MAGRPOTrainer(env(), team(), config, baseline=deviation_of_trl)
    else:
        trainer = algos.grpo(env=env(), agents=team(), config=config)
    assert_equal(learnt_here(rollout, trainer), expected)


def test_rloo_is_that_of_trl(rollout: Rollout, tmp_path: Path) -> None:
    def whole_completions(log_probs: Tensor, batch: Batch) -> Tensor:
        return sequence_clipped_loss(
            log_probs, batch.old_log_probs, batch.mask, batch.advantages, batch.weights, 0.2
        )

    expected = learnt_by_trl(trl.RLOOTrainer, trl.RLOOConfig, rollout, tmp_path)
    config = MAGRPOConfig(num_generations=4, **QUIET)
    trainer = algos.marloo(env=env(), agents=team(), config=config, policy_loss=whole_completions)
    assert_equal(learnt_here(rollout, trainer), expected)


def test_normalised_advantages_differ_by_the_definition_of_the_standard_deviation(
    rollout: Rollout, tmp_path: Path
) -> None:
    *_, batch = learnt_by_trl(trl.GRPOTrainer, trl.GRPOConfig, rollout, tmp_path)
    credited = credited_completions(rollout, rollout_returns(rollout, 1.0), [NAME])
    groups, _ = advantage_groups(credited, baseline=algos.group_mean, normalize=True)
    theirs = batch["advantages"].view(3, 4).tolist()
    for group, own, expected in zip(groups, credited, theirs, strict=True):
        by_g, by_g_less_one = own.returns.std(correction=0), own.returns.std(correction=1)
        factor = float((by_g_less_one + 1e-4) / by_g)
        assert factor > 1.1  # (4 / 3) ** 0.5, and a little
        assert group.advantages == pytest.approx([factor * each for each in expected], rel=1e-5)


def test_groups_without_spread_count_in_means_of_trl_alone(
    rollout: Rollout, tmp_path: Path
) -> None:
    (first, *others) = rollout.levels[0]
    equal = replace(first, rewards={NAME: (0.5,) * 4})
    with_equal = Rollout(rollout.agents, ((equal, *others),))
    loss, gradients, _ = learnt_by_trl(
        trl.GRPOTrainer,
        trl.GRPOConfig,
        with_equal,
        tmp_path,
        loss_type="grpo",
        scale_rewards="none",
    )
    config = GRPOConfig(num_generations=4, advantage_normalization=False, **QUIET)
    trainer = algos.grpo(env=env(), agents=team(), config=config)
    # the mean over three groups is two thirds of that over two
    scaled = {key: gradient * 3 / 2 for key, gradient in gradients.items()}
    assert_equal(learnt_here(with_equal, trainer), (loss * 3 / 2, scaled))
