"""Motet's side of `make bench`: `MAGRPOTrainer.collect` and `update`, timed apart.

No token ends a completion here, so that each has all its tokens. Where prompts come one by one,
groups are trained on in as many steps as the peers take, one for each turn.
"""

from training_work import (
    NUM_AGENTS,
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
    trainer = make_trainer(work)
    generation, update = Clock(), Clock()
    new_tokens = prompt_tokens = 0
    num_steps = 0.0
    for start in range(0, len(work.prompts), work.prompts_at_once):
        rows = range(start, min(start + work.prompts_at_once, len(work.prompts)))
        with generation.running():
            rollout = trainer.collect(rows)
        with update.running():
            metrics = trainer.update(rollout)
        if metrics["train/frac_zero_std_groups"]:
            raise RuntimeError("Expected all groups to be trained on, got some without spread.")
        num_steps += metrics["train/num_optimizer_steps"]
        new_tokens += rollout.num_tokens
        prompt_tokens += sum(
            len(group[0].prompt_ids)
            for node in rollout.nodes()
            for group in node.completions.values()
        )
    return Measured(
        generation_s=generation.seconds,
        update_s=update.seconds,
        num_agents=NUM_AGENTS,
        new_tokens=new_tokens,
        prompt_tokens=prompt_tokens,
        num_optimizer_steps=num_steps / NUM_AGENTS,
        peak_memory_mib=peak_memory_mib(),
        versions=versions_of("motet", "transformers", "torch"),
    )


def make_trainer(work: Work) -> algos.MAGRPOTrainer:
    env = envs.make(
        "story-length-ratio-v0", num_turns=work.num_turns, early_termination_threshold=None
    )
    rows = [env.dataset[row]["prompt"] for row in range(len(work.prompts))]
    if rows != list(work.prompts):
        raise RuntimeError(f"Expected the env's own prompts, got {work.prompts}.")
    one_by_one = work.prompts_at_once == 1
    return algos.MAGRPOTrainer(
        env,
        {
            name: EndlessAgent.from_pretrained(work.model, device="cpu")
            for name in env.possible_agents
        },
        algos.MAGRPOConfig(
            num_generations=work.num_generations,
            max_new_tokens=work.max_new_tokens,
            train_batch_size=(
                NUM_AGENTS * work.nodes_per_prompt // work.num_turns if one_by_one else None
            ),
            agent_learning_rate=work.learning_rate,
            weight_decay=WEIGHT_DECAY,
            max_grad_norm=None,
            seed=work.seed,
        ),
    )


if __name__ == "__main__":
    run_side(do)
