"""CoMLRL's side of `make bench`: its `MAGRPOTrainer`, timed from outside.

Generation is `_generate_completions`, rewards and transition; the update is `_drain_ready_buffers`,
and both are within `_train_step_returns`, one call for each prompt. `min_new_tokens`, which `train`
passes on to `generate`, forbids the end token. The buffer holds the nodes of one prompt, and the
trainer takes one step for each turn in it.
"""

from typing import Any, TypeVar

import torch
from comlrl.trainers import MAGRPOConfig, MAGRPOTrainer
from datasets import Dataset
from training_task import feedback, reward_of
from training_work import (
    Clock,
    Measured,
    Work,
    peak_memory_mib,
    refuse,
    run_side,
    versions_of,
)
from transformers import AutoModelForCausalLM, AutoTokenizer


class TimedTrainer(MAGRPOTrainer):
    """CoMLRL's trainer, with clocks around its methods."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        device = self.device.type
        self.whole, self.update = Clock(device), Clock(device)
        self.new_tokens = self.prompt_tokens = self.num_steps = 0

    def _train_step_returns(self, *args: Any, **kwargs: Any) -> None:
        with self.whole.running():
            super()._train_step_returns(*args, **kwargs)

    def _drain_ready_buffers(self, ready_agents: list[int]) -> None:
        with self.update.running():
            super()._drain_ready_buffers(ready_agents)

    def _generate_completions(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        made = super()._generate_completions(*args, **kwargs)
        self.prompt_tokens += made["prompt_input_ids"].numel()
        self.new_tokens += sum(len(ids) for ids in made["completion_input_ids"][0])
        return made

    def _update_from_samples(self, agent_idx: int, samples: list[Any]) -> None:
        super()._update_from_samples(agent_idx, samples)
        self.num_steps += 1


_Trainer = TypeVar("_Trainer", bound=TimedTrainer)


def do(work: Work) -> Measured:
    trainer = make_trainer(TimedTrainer, work)
    trainer.train(min_new_tokens=work.max_new_tokens)
    return Measured(
        generation_s=trainer.whole.seconds - trainer.update.seconds,
        update_s=trainer.update.seconds,
        num_agents=work.num_agents,
        new_tokens=trainer.new_tokens,
        prompt_tokens=trainer.prompt_tokens,
        num_optimizer_steps=trainer.num_steps / work.num_agents,
        peak_memory_mib=peak_memory_mib(work.device),
        versions=versions_of("comlrl", "transformers", "torch"),
    )


def make_trainer(
    trainer_class: type[_Trainer], work: Work, *, prompts_per_update: int = 1, epochs: int = 1
) -> _Trainer:
    refuse(work, "lora", "bf16", "same_prompts", "one_policy", "history", "num_agents")
    torch.manual_seed(work.seed)
    return trainer_class(
        agents=[
            AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.float32)
            for _ in range(work.num_agents)
        ],
        tokenizer=AutoTokenizer.from_pretrained(work.model),
        num_agents=work.num_agents,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in work.prompts]),
        reward_func=reward_of(work),
        external_transition=feedback,
        args=MAGRPOConfig(
            num_train_epochs=epochs,
            agent_learning_rate=work.learning_rate,
            num_agents=work.num_agents,
            agent_devices=work.device,
            num_generations=work.num_generations,
            max_new_tokens=work.max_new_tokens,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            num_turns=work.num_turns,
            joint_mode=work.joint_mode,
            early_termination_threshold=None,
            eval_interval=0,
            rollout_buffer_size=prompts_per_update * work.nodes_per_prompt,
        ),
    )


if __name__ == "__main__":
    run_side(do)
