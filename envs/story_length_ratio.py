"""Two writers answer the same instruction; the second answer should be two to three times as long.

| property    | value                                                                         |
|-------------|-------------------------------------------------------------------------------|
| id          | `story-length-ratio-v0`                                                       |
| agents      | 2: `agent_0` writes the first answer, `agent_1` the second; neither sees both |
| turns       | 1 by default; with `num_turns=2` feedback comes between the turns             |
| observation | turn 1: the instruction; later turns: the instruction and the feedback        |
| action      | any text                                                                      |
| reward      | shared, in [0, 1]: `length_ratio_reward`                                      |
| rows        | `split="train"`: ten instructions; `split="eval"`: ten others, held out       |

The task and the ten training instructions are those of CoMLRL's quick start.

Version history:
    v0: first version.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from motet.envs.text_env import TextEnv

PROMPTS = (
    "Describe a city in the clouds:",
    "Invent a new holiday and explain it:",
    "Write a bedtime story for a dragon:",
    "Explain how teleportation might work:",
    "Tell a joke about dinosaurs:",
    "Describe a world without electricity:",
    "Create a superhero with a unique power:",
    "Write a scene where the moon talks:",
    "Invent a new type of fruit:",
    "Design a playground on Mars:",
)

EVAL_PROMPTS = (
    "Describe a library under the sea:",
    "Invent a new sport and explain it:",
    "Write a bedtime story for a robot:",
    "Explain how time travel might work:",
    "Tell a joke about penguins:",
    "Describe a world without money:",
    "Create a villain with a strange weakness:",
    "Write a scene where the river sings:",
    "Invent a new type of bread:",
    "Design a garden on the moon:",
)


def length_ratio_reward(
    first: Sequence[str],
    second: Sequence[str],
    *,
    ratio_min: float = 2.0,
    ratio_max: float = 3.0,
) -> list[float]:
    """Score how near the second text's length is to its goal, from the first text's.

    With r = characters of the second / characters of the first: 1 where
    ratio_min <= r <= ratio_max, otherwise exp(-distance of r to the nearer bound), and 0 where the
    first text is empty.

    Args:
        first: (J,) texts of the first writer.
        second: (J,) texts of the second writer.
        ratio_min: lower bound of r that earns 1.
        ratio_max: upper bound of r that earns 1.

    Returns:
        (J,) rewards in [0, 1].
    """
    rewards = []
    for text, longer in zip(first, second, strict=True):
        if not text:
            rewards.append(0.0)
            continue
        ratio = len(longer) / len(text)
        distance = max(ratio_min - ratio, ratio - ratio_max, 0.0)
        rewards.append(math.exp(-distance))
    return rewards


def length_feedback(
    prompt: str,
    agent_completions: Sequence[str],
    num_agents: int,
    *,
    ratio_min: float = 2.0,
    ratio_max: float = 3.0,
) -> list[str]:
    """Tell each writer its last length, the ratio and the goal, and ask for an improved answer.

    Args:
        prompt: the instruction of the row.
        agent_completions: the two texts of the turn.
        num_agents: always 2 here; part of every transition's signature.
        ratio_min: lower bound of the goal.
        ratio_max: upper bound of the goal.

    Returns:
        Two prompts, one per writer.
    """
    lengths = [len(text) for text in agent_completions]
    if lengths[0]:
        ratio = f"The second was {lengths[1] / lengths[0]:.2f} times as long as the first"
    else:
        ratio = "The first was empty"
    goal = f"the goal is {ratio_min:g} to {ratio_max:g} times"
    return [
        f"{prompt}\n\nYour last answer, the {name} of two, had {length} characters. "
        f"{ratio}; {goal}. Write an improved answer:"
        for name, length in zip(("first", "second"), lengths, strict=True)
    ]


def story_length_ratio(
    *,
    split: Literal["train", "eval"] = "train",
    ratio_min: float = 2.0,
    ratio_max: float = 3.0,
    **kwargs: Any,
) -> TextEnv:
    """Build `story-length-ratio-v0`.

    Args:
        split: "train" for `PROMPTS`, "eval" for `EVAL_PROMPTS`.
        ratio_min: lower bound of the length ratio that earns 1.
        ratio_max: upper bound of the length ratio that earns 1.
        **kwargs: passed on to `TextEnv`: `num_turns`, `dataset`, `reward_processor`, ...

    Raises:
        ValueError: where the split is unknown or the bounds are not in order.
    """
    splits = {"train": PROMPTS, "eval": EVAL_PROMPTS}
    if split not in splits:
        raise ValueError(f"Expected split 'train' or 'eval', got {split!r}.")
    if not 0 < ratio_min <= ratio_max:
        raise ValueError(
            f"Expected 0 < ratio_min <= ratio_max, got ratio_min={ratio_min} and "
            f"ratio_max={ratio_max}."
        )
    bounds: Any = {"ratio_min": ratio_min, "ratio_max": ratio_max}
    parts: dict[str, Any] = {
        "dataset": [{"prompt": prompt} for prompt in splits[split]],
        "reward_func": partial(length_ratio_reward, **bounds),
        "transition": partial(length_feedback, **bounds),
    }
    return TextEnv(**{**parts, **kwargs})
