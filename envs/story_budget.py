"""Two writers share a budget of sentences for all turns, and are paid at the last turn alone.

All that both have written by the end should be eight sentences, give or take one. Neither sees what
the other writes in the same turn; between the turns both read how many sentences there are and how
many are left. What the first turn was worth shows only at the end, in a reward that depends on both
writers and on all turns: credit has to be passed back through turns that pay nothing.

| property    | value                                                                         |
|-------------|-------------------------------------------------------------------------------|
| id          | `story-budget-v0`                                                             |
| agents      | 2: `agent_0` and `agent_1` write a part each in every turn                    |
| turns       | 2 by default                                                                  |
| observation | turn 1: the instruction; later turns: the instruction and the feedback        |
| action      | any text                                                                      |
| reward      | shared, in [0, 1]: `budget_reward` at the last turn, 0 before                 |
| rows        | `split="train"`: ten instructions; `split="eval"`: ten others, held out       |

The instructions are those of `story-length-ratio-v0`.

Version history:
    v0: first version.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from motet.envs.story_length_ratio import EVAL_PROMPTS, PROMPTS
from motet.envs.task.parts import checked_count
from motet.envs.text_env import TextEnv

History = Mapping[str, Sequence[tuple[str, str]]]


def num_sentences(text: str) -> int:
    """Count the sentences of a text: words up to a full stop, exclamation or question mark.

    One that is cut off before its end is none.
    """
    # one pass: a pattern from the first letter to the stop would try every letter of a long text
    *ended, _ = re.split(r"[.!?]", text)
    return sum(re.search(r"\w", sentence) is not None for sentence in ended)


def budget_reward(
    first: Sequence[str],
    second: Sequence[str],
    turn: Sequence[int],
    histories: Sequence[History],
    *,
    num_turns: int = 2,
    budget: int = 8,
) -> list[float]:
    """Score at the last turn how near the sentences of all turns are to the budget.

    With S = sentences of both writers in all turns and d = |S - budget|: 1 where d <= 1, otherwise
    exp(-(d - 1) / 2). Every turn but the last earns 0.

    Args:
        first: (J,) texts of the first writer.
        second: (J,) texts of the second writer.
        turn: (J,) turn that the texts belong to, 1 for the first.
        histories: (J,) by writer, the earlier turns as (observation, action) pairs.
        num_turns: turns of an episode.
        budget: sentences that are wanted.

    Returns:
        (J,) rewards in [0, 1].
    """
    rewards = []
    for texts, now, history in zip(zip(first, second, strict=True), turn, histories, strict=True):
        if now < num_turns:
            rewards.append(0.0)
            continue
        earlier = [text for own in history.values() for _, text in own]
        distance = abs(sum(map(num_sentences, (*earlier, *texts))) - budget)
        rewards.append(math.exp(-max(distance - 1, 0) / 2))
    return rewards


def budget_feedback(
    prompt: str,
    agent_completions: Sequence[str],
    num_agents: int,
    response_history_per_agent: Sequence[Sequence[str]],
    *,
    budget: int = 8,
) -> list[str]:
    """Tell both writers how many sentences there are and how many are left.

    Args:
        prompt: the instruction of the row.
        agent_completions: the two texts of the turn.
        num_agents: always 2 here; part of every transition's signature.
        response_history_per_agent: by writer, the texts of all turns so far.
        budget: sentences that are wanted.

    Returns:
        Two prompts, one per writer.
    """
    written = sum(num_sentences(text) for own in response_history_per_agent for text in own)
    left = max(budget - written, 0)
    return [
        f"{prompt}\n\nYour last answer, the {name} of two, had {num_sentences(text)} sentences. "
        f"Together you have written {written}; the goal is {budget}, {left} are left. Write the "
        "next part:"
        for name, text in zip(("first", "second"), agent_completions, strict=True)
    ]


def story_budget(
    *,
    split: Literal["train", "eval"] = "train",
    num_turns: int = 2,
    budget: int = 8,
    **kwargs: Any,
) -> TextEnv:
    """Build `story-budget-v0`.

    Args:
        split: "train" for the training instructions, "eval" for others.
        num_turns: turns of an episode.
        budget: sentences that are wanted of both writers in all turns together.
        **kwargs: passed on to `TextEnv`: `dataset`, `reward_processor`, ...

    Raises:
        ValueError: where the split is unknown, or `num_turns` or `budget` is below 1.
        TypeError: where one of these is no integer.
    """
    splits = {"train": PROMPTS, "eval": EVAL_PROMPTS}
    if split not in splits:
        raise ValueError(f"Expected split 'train' or 'eval', got {split!r}.")
    num_turns = checked_count("num_turns", num_turns)
    budget = checked_count("budget", budget)
    parts: dict[str, Any] = {
        "dataset": [{"prompt": prompt} for prompt in splits[split]],
        "reward_func": partial(budget_reward, num_turns=num_turns, budget=budget),
        "transition": partial(budget_feedback, budget=budget),
    }
    return TextEnv(**{**parts, "num_turns": num_turns, **kwargs})
