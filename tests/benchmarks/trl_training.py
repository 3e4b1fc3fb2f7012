"""TRL's side of `make bench`: its `GRPOTrainer`, one policy and one turn.

Generation is `_generate_and_score_completions`; the update is the rest of the time between
`on_step_begin` and `on_step_end`. `min_new_tokens` of `generation_kwargs` forbids the end token.
Gradient checkpointing, on by default, is off, as it would only make it slower; the optimizer is
the fused AdamW of its defaults. Prompts that come together are sampled in one batch and trained on
in one step with as many micro-batches, its own way to many prompts.
"""

import tempfile
from typing import Any

import torch
from datasets import Dataset
from training_work import (
    WEIGHT_DECAY,
    Clock,
    Measured,
    Work,
    peak_memory_mib,
    refuse,
    run_side,
    versions_of,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class TimedTrainer(GRPOTrainer):
    """TRL's trainer, with a clock around its generation."""

    def __init__(self, **kwargs: Any) -> None:
        self.new_tokens = self.prompt_tokens = 0
        super().__init__(**kwargs)
        self.generation = Clock(self.accelerator.device.type)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        with self.generation.running():
            made = super()._generate_and_score_completions(inputs)
        self.new_tokens += int(made["completion_mask"].sum())
        self.prompt_tokens += int(made["prompt_mask"].sum()) // self.num_generations
        return made


class StepClock(TrainerCallback):
    """The time of whole steps."""

    def __init__(self, device: str) -> None:
        self.clock = Clock(device)
        self._running: Any = None

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        self._running = self.clock.running()
        self._running.__enter__()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        self._running.__exit__(None, None, None)


def num_characters(completions: list[str], **columns: Any) -> list[float]:
    del columns
    return [float(len(text)) for text in completions]


def do(work: Work) -> Measured:
    refuse(work, "joint_mode", "lora", "half_without_spread", "same_prompts", "history")
    if work.num_turns != 1:
        raise RuntimeError("Expected one turn, all that GRPOTrainer does without tools.")
    steps = StepClock(work.device)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(work, folder, steps)
        trainer.train()
    return Measured(
        generation_s=trainer.generation.seconds,
        update_s=steps.clock.seconds - trainer.generation.seconds,
        num_agents=1,
        new_tokens=trainer.new_tokens,
        prompt_tokens=trainer.prompt_tokens,
        num_optimizer_steps=trainer.state.global_step,
        peak_memory_mib=peak_memory_mib(work.device),
        versions=versions_of("trl", "transformers", "torch"),
    )


def make_trainer(work: Work, folder: str, steps: StepClock) -> TimedTrainer:
    return TimedTrainer(
        model=AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(work.model),
        reward_funcs=num_characters,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in work.prompts]),
        callbacks=[steps],
        args=GRPOConfig(
            output_dir=folder,
            use_cpu=work.device == "cpu",
            bf16=work.bf16,
            gradient_checkpointing=False,
            per_device_train_batch_size=work.num_generations,
            gradient_accumulation_steps=work.prompts_at_once,
            max_steps=len(work.prompts) // work.prompts_at_once,
            num_generations=work.num_generations,
            max_completion_length=work.max_new_tokens,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            generation_kwargs={"min_new_tokens": work.max_new_tokens},
            learning_rate=work.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=WEIGHT_DECAY,
            max_grad_norm=0.0,  # never clip
            shuffle_dataset=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            seed=work.seed,
        ),
    )


if __name__ == "__main__":
    run_side(do)
