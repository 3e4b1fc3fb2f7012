"""`motet bench`: how fast this machine samples from a model, trains it, and steps a task.

A width is how many completions are written side by side: four to each prompt. The rates are the
medians over rollouts of tokens written per second, and of tokens computed per second in an update
with MAGRPO; the first rollout of a width warms up and does not count. What is trained is thrown
away.
"""

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from motet.agents import LMAgent
from motet.algos.cli.flags import Flag, parsed
from motet.algos.cli.members import joined, member_flags, members_of
from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.settings_file import SettingsFile
from motet.algos.cli.show import console, print_json, print_table
from motet.algos.cli.tasks import find_spec, make_env
from motet.algos.cli.teams import build_team
from motet.algos.cli.train import set_threads
from motet.algos.group.magrpo import MAGRPOTrainer
from motet.algos.group.magrpo_config import MAGRPOConfig
from motet.envs import TextEnv

COMMAND = "motet bench"
ABOUT = (
    "Measure how many tokens per second this machine samples and trains, by width, and how many "
    "steps a task takes. Nothing is kept."
)
GENERATIONS = 4
PROMPT = "Write a short story about a lighthouse keeper who finds a letter:"
FLAGS = [
    Flag("widths", tuple[int, ...], (4, 16, 64), "completions side by side; multiples of four"),
    Flag("max_new_tokens", int, 64, "most tokens of a completion"),
    Flag("seconds", float, 2.0, "how long each number is measured for, at least"),
    Flag("env", str, "story-length-ratio-v0", "the task whose steps are counted"),
    Flag("num_threads", int | None, None, "threads of torch"),
    Flag("json", bool, False, "print JSON, for other programs"),
]


@dataclass(frozen=True)
class Rate:
    """What was measured at a width.

    Attributes:
        width: completions side by side.
        sampled: tokens written per second.
        trained: tokens computed per second in updates.
    """

    width: int
    sampled: float
    trained: float


def run(words: list[str]) -> None:
    """Run `motet bench ...`."""
    team = [flag for flag in member_flags() if flag.name not in ("frozen", "generation")]
    said = parsed(COMMAND, {"bench": FLAGS, "model": team}, joined(words), ABOUT)
    own = {flag.name: flag.default for flag in FLAGS} | said["bench"]
    _check(own)
    set_threads(own["num_threads"])
    env = make_env(find_spec(own["env"]), {})
    member = members_of(["agent_0"], SettingsFile(), said["model"])["agent_0"]
    if not member.has_weights:
        raise UsageError(f"Expected a language model to measure, got {member.model!r}.")
    agent = build_team(env, {"agent_0": member})["agent_0"]
    assert isinstance(agent, LMAgent)  # since it has weights
    about = _about(member.model, agent)
    if not own["json"]:
        console().print(", ".join(f"{name} {value}" for name, value in about.items()))
    rates = [_measured(agent, width, own) for width in own["widths"]]
    steps = steps_per_second(env, own["seconds"])
    _show(about, rates, steps, own)


def _check(own: dict[str, Any]) -> None:
    for width in own["widths"]:
        if width < GENERATIONS or width % GENERATIONS:
            raise UsageError(f"Expected widths that are multiples of {GENERATIONS}, got {width}.")
    if not own["widths"] or not own["seconds"] > 0:
        raise UsageError(
            f"Expected at least one width and seconds above 0, got {own['widths']} and "
            f"{own['seconds']}."
        )


def _about(model: str, agent: LMAgent) -> dict[str, Any]:
    device = agent.model.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    return {
        "model": model,
        "parameters": sum(weight.numel() for weight in agent.model.parameters()),
        "device": f"{device} {name}".strip(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _spread(texts: Sequence[str]) -> list[float]:
    """Pay every completion something else, so that all of them are trained on."""
    return [float(index % GENERATIONS) for index, _ in enumerate(texts)]


def _measured(agent: LMAgent, width: int, own: dict[str, Any]) -> Rate:
    prompts = width // GENERATIONS
    rows = [{"prompt": f"{number + 1}. {PROMPT}"} for number in range(prompts)]
    with as_mistakes():
        config = MAGRPOConfig(
            num_generations=GENERATIONS,
            rollout_batch_size=prompts,
            max_new_tokens=own["max_new_tokens"],
            progress_bar=False,
        )
        trainer = MAGRPOTrainer(TextEnv(rows, _spread, num_agents=1), {"agent_0": agent}, config)
    sampled: list[float] = []
    trained: list[float] = []
    spent = 0.0
    while len(sampled) < 2 or spent < own["seconds"]:
        rollout, sampling_s = timed(agent, partial(trainer.collect, range(prompts)))
        metrics, update_s = timed(agent, partial(trainer.update, rollout))
        sampled.append(rollout.num_tokens / sampling_s)
        trained.append(metrics["train/tokens_computed"] / update_s)
        spent += (sampling_s + update_s) * (len(sampled) > 1)
    return Rate(width, statistics.median(sampled[1:]), statistics.median(trained[1:]))


def timed(agent: LMAgent, work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work gives, and its seconds on the clock, a GPU's included."""
    begun = time.perf_counter()
    result = work()
    if agent.model.device.type == "cuda":
        torch.cuda.synchronize(agent.model.device)
    return result, time.perf_counter() - begun


def steps_per_second(env: Any, seconds: float) -> float:
    """Return how many joint actions of fixed texts an env takes per second, resets included.

    Args:
        env: a parallel env of texts.
        seconds: how long to measure.
    """
    steps, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(20):
            env.reset()
            while env.agents:
                env.step({name: PROMPT * (place + 1) for place, name in enumerate(env.agents)})
                steps += 1
    return steps / (time.perf_counter() - begun)


def _show(about: dict[str, Any], rates: Sequence[Rate], steps: float, own: dict[str, Any]) -> None:
    if own["json"]:
        print_json(
            {
                **about,
                "rates": [vars(rate) for rate in rates],
                "env": own["env"],
                "env_steps_per_second": steps,
            }
        )
        return
    rows = [(str(r.width), f"{r.sampled:,.0f}", f"{r.trained:,.0f}") for r in rates]
    rows.append((own["env"], f"{steps:,.0f} steps/s", ""))
    print_table(("width", "sampled, tokens/s", "trained, tokens/s"), rows)
