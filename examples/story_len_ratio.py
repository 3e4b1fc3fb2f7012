"""Train two writers so that the second story is two to three times as long as the first.

Each of them sees the instruction and nothing of the other. Shows a progress bar, then stories
before and after on instructions held out from training, and reward curves as a picture.

    make demo                                             # the embedded model, two turns
    python examples/story_len_ratio.py --preset demo-one-turn
    make real                                             # SmolLM2-135M-Instruct, a few updates
    python examples/story_len_ratio.py --model Qwen/Qwen2.5-0.5B --num-turns 2 --wandb
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
import tyro
from rich.console import Console
from rich.table import Table
from smollm2 import smollm2_folder
from transformers.utils.logging import disable_progress_bar

from motet import agents, algos, envs
from motet.algos.reports.drawing import require_matplotlib
from motet.envs.story_length_ratio import EVAL_PROMPTS

MARKDOWN_WIDTH = 600


Preset = Literal["none", "demo", "demo-one-turn", "real"]


@dataclass(frozen=True, kw_only=True)
class PresetFlag:
    """What the settings start from; other flags override it."""

    preset: Preset = "none"
    """Settings of `make demo`, of the same in one turn, or of `make real`."""


@dataclass(frozen=True, kw_only=True)
class Args(PresetFlag):
    """Train two writers on story-length-ratio-v0."""

    model: str = "pocket"
    """Hub id or folder of a causal language model; "pocket" is the embedded one, and "smollm2" is
    SmolLM2-135M-Instruct, with or without a hub in reach."""
    chat_template: bool = False
    """Send the instructions through the model's chat template."""
    num_turns: int = 1
    """Turns of an episode; from the second on the writers get feedback."""
    num_train_epochs: int = 3
    """Passes over the ten training instructions."""
    num_generations: int = 4
    """Stories of each writer per instruction."""
    joint_mode: algos.JointMode = "aligned"
    """How stories are paired: the k-th with the k-th, or all with all."""
    rollout_batch_size: int = 5
    """Instructions per update."""
    agent_learning_rate: float = 5e-5
    """Learning rate of each writer."""
    lr_scheduler_type: algos.LRSchedulerType = "constant"
    """Bring the learning rate down to zero over the run, or do not."""
    advantage_normalization: bool = True
    """Divide advantages by the spread of their group."""
    max_new_tokens: int = 128
    """Most tokens of a story."""
    temperature: float = 1.0
    """Divides the logits while sampling."""
    top_p: float | None = None
    """Sample from the smallest set of tokens with this mass."""
    top_k: int | None = None
    """Sample from the k most likely tokens."""
    seed: int = 42
    """Seed of sampling and of the order of instructions."""
    eval_num_samples: int = 4
    """Stories per held-out instruction in the evaluation before and after."""
    eval_interval: int = 10
    """Updates between evaluations while training."""
    num_threads: int | None = None
    """Threads of torch. One is the steadiest for a small model: more of them wait for each other,
    for seconds where another program wants a core."""
    output_dir: Path = Path("out/story_len_ratio")
    """Folder for models, metrics.jsonl, stories.md, reward.png and the episodes of evaluations."""
    wandb: bool = False
    """Log to Weights & Biases as well."""
    wandb_project: str = "motet"
    """Project there."""
    wandb_entity: str | None = None
    """Entity there."""


DEMO = Args(
    preset="demo",
    num_turns=2,
    num_train_epochs=4,
    joint_mode="cross",
    rollout_batch_size=1,
    agent_learning_rate=1e-3,
    lr_scheduler_type="linear",
    advantage_normalization=False,
    max_new_tokens=96,
    temperature=0.7,
    num_threads=1,
)

PRESETS: dict[Preset, Args] = {
    "none": Args(),
    "demo": DEMO,
    "demo-one-turn": replace(
        DEMO,
        preset="demo-one-turn",
        num_turns=1,
        num_train_epochs=16,
        num_generations=8,
        rollout_batch_size=2,
    ),
    "real": Args(
        preset="real",
        model="smollm2",
        chat_template=True,
        num_train_epochs=1,
        rollout_batch_size=2,
        agent_learning_rate=1e-5,
        max_new_tokens=48,
        eval_num_samples=1,
        eval_interval=0,
    ),
}


def parse() -> Args:
    """Read the command line: flags override the settings of the preset."""
    given, _ = tyro.cli(PresetFlag, add_help=False, return_unknown_args=True)
    return tyro.cli(Args, default=PRESETS[given.preset])


def load(args: Args) -> agents.LMAgent:
    """Return one writer."""
    generation = agents.GenerationConfig(max_new_tokens=args.max_new_tokens)
    if args.model == "pocket":
        return agents.pocket(generation=generation)
    name = smollm2_folder() if args.model == "smollm2" else args.model
    return agents.LMAgent.from_pretrained(
        name, generation=generation, chat_template=args.chat_template
    )


Row = tuple[str, str, str, str]


def story_rows(evaluation: algos.Evaluation, when: str, limit: int = 2) -> list[Row]:
    """Return rows of the before/after table: instruction, when and ratio, both last stories."""
    rows: list[Row] = []
    seen = set()
    for node in reversed(list(evaluation.rollout.nodes())):
        if node.row in seen or not node.ended[0]:
            continue
        seen.add(node.row)
        first, second = (group[0].text.strip() for group in node.completions.values())
        ratio = f"{len(second) / len(first):.2f}" if first else "-"
        reward = sum(values[0] for values in node.rewards.values()) / len(node.rewards)
        instruction = EVAL_PROMPTS[node.row]
        rows.append((instruction, f"{when}: ratio {ratio}, reward {reward:.2f}", first, second))
    return sorted(rows, key=lambda row: EVAL_PROMPTS.index(row[0]))[:limit]


def show(rows: Sequence[Row], means: str, console: Console, path: Path) -> None:
    """Print the stories before and after, and write them as Markdown below the means."""
    header = ("instruction", "", "first story", "second story")
    table = Table(*header, title="Stories of the last turn, held-out instructions", show_lines=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)

    def shortened(text: str) -> str:
        return text if len(text) <= MARKDOWN_WIDTH else f"{text[:MARKDOWN_WIDTH]}..."

    stories = algos.markdown_table(header, [[shortened(text) for text in row] for row in rows])
    path.write_text(f"{means}\n{stories}", encoding="utf-8")


def main(args: Args) -> None:
    """Train, compare, save."""
    require_matplotlib()  # before the time is spent that the picture is of
    disable_progress_bar()  # transformers' bars for loading and saving would cut through ours
    if args.num_threads is not None:
        torch.set_num_threads(args.num_threads)
    args.output_dir.mkdir(parents=True, exist_ok=True)
    console = Console()
    env = envs.make("story-length-ratio-v0", num_turns=args.num_turns)
    held_out = envs.make("story-length-ratio-v0", num_turns=args.num_turns, split="eval")
    trainer = algos.MAGRPOTrainer(
        env,
        {name: load(args) for name in env.possible_agents},
        algos.MAGRPOConfig(
            num_train_epochs=args.num_train_epochs,
            num_generations=args.num_generations,
            joint_mode=args.joint_mode,
            rollout_batch_size=args.rollout_batch_size,
            agent_learning_rate=args.agent_learning_rate,
            lr_scheduler_type=args.lr_scheduler_type,
            advantage_normalization=args.advantage_normalization,
            max_new_tokens=args.max_new_tokens,
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=args.top_k,
            seed=args.seed,
            eval_interval=args.eval_interval,
            output_dir=str(args.output_dir),
        ),
        eval_env=held_out,
        wandb_config=(
            {"project": args.wandb_project, "entity": args.wandb_entity} if args.wandb else None
        ),
    )
    before = trainer.evaluate(num_samples=args.eval_num_samples)
    trainer.train()
    trainer.save_model(args.output_dir / "models")
    after = trainer.evaluate(num_samples=args.eval_num_samples)

    pairs = zip(story_rows(before, "before"), story_rows(after, "after"), strict=True)
    show(
        [row for pair in pairs for row in pair],
        algos.before_after_table(before, after),
        console,
        args.output_dir / "stories.md",
    )
    algos.plot_metrics(args.output_dir, title="story-length-ratio-v0")
    console.print(
        f"Mean reward on held-out instructions: {before.metrics['reward_mean']:.3f} before, "
        f"{after.metrics['reward_mean']:.3f} after. Models, stories.md, reward.png, metrics.jsonl "
        f"and evaluations/ are in {args.output_dir}."
    )


if __name__ == "__main__":
    main(parse())
