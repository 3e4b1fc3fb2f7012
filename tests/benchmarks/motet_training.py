"""Motet's side of `make bench`: `MAGRPOTrainer.collect` and `update`, timed apart.

No token ends a completion here, so that each has all its tokens. Where prompts come one by one,
groups are trained on in as many steps as the peers take, one for each turn.
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from training_task import reward_of
from training_work import (
    WEIGHT_DECAY,
    Clock,
    Measured,
    Work,
    peak_memory_mib,
    run_side,
    versions_of,
)

from motet import algos, envs
from motet.agents import LMAgent


class EndlessAgent(LMAgent):
    """A language model that no token stops."""

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset()


def do(work: Work) -> Measured:
    if work.one_policy:
        work = replace(work, num_agents=1)
    trainer = make_trainer(work)
    generation, update = Clock(work.device), Clock(work.device)
    new_tokens = prompt_tokens = unshared_tokens = 0
    num_steps = tokens_computed = without_spread = 0.0
    for start in range(0, len(work.prompts), work.prompts_at_once):
        rows = range(start, min(start + work.prompts_at_once, len(work.prompts)))
        with generation.running():
            rollout = trainer.collect(rows)
        with update.running():
            metrics = trainer.update(rollout)
        num_steps += metrics["train/num_optimizer_steps"]
        tokens_computed += metrics["train/tokens_computed"]
        without_spread += len(rows) * metrics["train/frac_zero_std_groups"]
        new_tokens += rollout.num_tokens
        groups = [group for node in rollout.nodes() for group in node.completions.values()]
        prompt_tokens += sum(len(group[0].prompt_ids) for group in groups)
        unshared_tokens += sum(len(c.prompt_ids + c.completion_ids) for g in groups for c in g)
    if abs(without_spread - len(work.paid_alike)) > 1e-6:
        raise RuntimeError(
            f"Expected {len(work.paid_alike)} of {len(work.prompts)} prompts without spread, got "
            f"{without_spread}."
        )
    return Measured(
        generation_s=generation.seconds,
        update_s=update.seconds,
        num_agents=work.num_agents,
        new_tokens=new_tokens,
        prompt_tokens=prompt_tokens,
        num_optimizer_steps=num_steps / work.num_agents,
        peak_memory_mib=peak_memory_mib(work.device),
        versions=versions_of("motet", "transformers", "torch"),
        tokens_computed=tokens_computed,
        unshared_tokens=unshared_tokens,
    )


def make_trainer(work: Work, agent_class: type[LMAgent] = EndlessAgent) -> algos.MAGRPOTrainer:
    env = make_env(work)
    one_by_one = work.prompts_at_once == 1
    return algos.MAGRPOTrainer(
        env,
        make_team(work, env.possible_agents, agent_class),
        algos.MAGRPOConfig(
            num_generations=work.num_generations,
            joint_mode=work.joint_mode,
            max_new_tokens=work.max_new_tokens,
            train_batch_size=(
                work.num_agents * work.nodes_per_prompt // work.num_turns if one_by_one else None
            ),
            agent_learning_rate=work.learning_rate,
            weight_decay=WEIGHT_DECAY,
            max_grad_norm=None,
            seed=work.seed,
            bf16=work.bf16,
        ),
    )


def make_env(work: Work) -> envs.TextEnv:
    """Return `story-length-ratio-v0`, or its prompts with a reward for any number of agents."""
    dataset = [{"prompt": prompt} for prompt in work.prompts]
    if work.one_policy:
        return envs.TextEnv(dataset=dataset, reward_func=checksum_reward, num_agents=1)
    if work.same_prompts:
        return envs.TextEnv(
            dataset=dataset,
            reward_func=checksum_reward,
            transition=same_prompts,
            formatters=lambda row: numbered(row["prompt"], 0),
            num_agents=work.num_agents,
            num_turns=work.num_turns,
        )
    env: envs.TextEnv = envs.make(
        "story-length-ratio-v0",
        num_turns=work.num_turns,
        early_termination_threshold=None,
        dataset=dataset,
        reward_func=reward_of(work),
    )
    return env


def checksum_reward(*completions: Sequence[str]) -> list[float]:
    """Return a number for each joint action that another one does not have."""
    return [
        zlib.crc32("\n".join(texts).encode()) / 2**32 for texts in zip(*completions, strict=True)
    ]


def same_prompts(prompt: str, agent_completions: Sequence[str], num_agents: int) -> list[str]:
    return [numbered(prompt, zlib.crc32("\n".join(agent_completions).encode()))] * num_agents


def numbered(prompt: str, number: int) -> str:
    """Return a prompt that other branches of the tree do not have, or they would share its cost."""
    return f"{number % 10**6:06d} {prompt}"


def make_team(work: Work, names: Sequence[str], agent_class: type[LMAgent]) -> dict[str, LMAgent]:
    """Return agents with weights of their own: models, or adapters on one model."""

    def load(lora: Any = None) -> LMAgent:
        return agent_class.from_pretrained(
            work.model, device=work.device, lora=lora, history=work.history
        )

    if not work.lora:
        return {name: load() for name in names}
    from peft import LoraConfig

    first = load(LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    return {names[0]: first, **{name: first.with_adapter(name) for name in names[1:]}}


if __name__ == "__main__":
    run_side(do)
