"""Two writers answer the same instruction; their tales should be about the same people.

Neither writer sees the other's tale, and nothing tells them which names to take: any name is as
good as another as long as both take it. That is the matching game of Schelling's "The Strategy of
Conflict" (1960, chapter 3), played with texts. It has as many solutions as there are names, all
equally good, so that two writers who begin alike must break the tie.

| property    | value                                                                         |
|-------------|-------------------------------------------------------------------------------|
| id          | `story-name-match-v0`                                                         |
| agents      | 2: `agent_0` and `agent_1` write a tale each; neither sees the other's        |
| turns       | 1 by default; with `num_turns=2` each reads the other's names in between      |
| observation | turn 1: the instruction; later turns: the instruction and the feedback        |
| action      | any text                                                                      |
| reward      | shared, in [0, 1]: `name_match_reward`                                        |
| rows        | `split="train"`: ten instructions; `split="eval"`: ten others, held out       |

The instructions are those of `story-length-ratio-v0`, and the names those of the embedded model's
tales. They are not in the instruction: for another model give `names`, or tell it with
`formatters`.

Version history:
    v0: first version.
"""

import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Literal

from motet.envs.story_length_ratio import EVAL_PROMPTS, PROMPTS
from motet.envs.text_env import TextEnv

NAMES = (
    "Mira",
    "Ada",
    "Nora",
    "Ivy",
    "Ruth",
    "Wren",
    "Tilda",
    "Tom",
    "Oskar",
    "Finn",
    "Hugo",
    "Leo",
    "Kofi",
    "Ravi",
)


def names_in(text: str, names: Collection[str] = NAMES) -> list[str]:
    """Return the names that a text mentions as whole words, each once, in order of appearance."""
    return list(dict.fromkeys(word for word in re.findall(r"\w+", text) if word in names))


def name_match_reward(
    first: Sequence[str], second: Sequence[str], *, names: Collection[str] = NAMES
) -> list[float]:
    """Score how far two tales are about the same people.

    With A and B the sets of names in the two texts: |A and B| / |A or B|, the Jaccard index, and 0
    where neither text mentions anybody. It is 1 only where both mention the same people, so that
    to list all names is no way out unless both do, and silence never pays.

    Args:
        first: (J,) texts of the first writer.
        second: (J,) texts of the second writer.
        names: what counts as a name.

    Returns:
        (J,) rewards in [0, 1].
    """
    rewards = []
    for one, other in zip(first, second, strict=True):
        mine, theirs = set(names_in(one, names)), set(names_in(other, names))
        either = mine | theirs
        rewards.append(len(mine & theirs) / len(either) if either else 0.0)
    return rewards


def name_feedback(
    prompt: str,
    agent_completions: Sequence[str],
    num_agents: int,
    *,
    names: Collection[str] = NAMES,
) -> list[str]:
    """Tell each writer the names in its own last tale and in the other's.

    Args:
        prompt: the instruction of the row.
        agent_completions: the two texts of the turn.
        num_agents: always 2 here; part of every transition's signature.
        names: what counts as a name.

    Returns:
        Two prompts, one per writer.
    """
    mentioned = [", ".join(names_in(text, names)) or "nobody" for text in agent_completions]
    return [
        f"{prompt}\n\nYour last answer was about {own}, the other about {other}; the goal is the "
        "same people in both. Write an improved answer:"
        for own, other in (mentioned, mentioned[::-1])
    ]


def story_name_match(
    *,
    split: Literal["train", "eval"] = "train",
    names: Collection[str] = NAMES,
    **kwargs: Any,
) -> TextEnv:
    """Build `story-name-match-v0`.

    Args:
        split: "train" for the training instructions, "eval" for others.
        names: what counts as a name: single words.
        **kwargs: passed on to `TextEnv`: `num_turns`, `dataset`, `formatters`, ...

    Raises:
        ValueError: where the split is unknown, or a name is not one word.
    """
    splits = {"train": PROMPTS, "eval": EVAL_PROMPTS}
    if split not in splits:
        raise ValueError(f"Expected split 'train' or 'eval', got {split!r}.")
    if isinstance(names, str) or not names:
        raise ValueError(f"Expected names as a collection of words, got {names!r}.")
    for name in names:
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"Expected names of one word each, got {name!r}.")
    known: Any = {"names": tuple(names)}
    parts: dict[str, Any] = {
        "dataset": [{"prompt": prompt} for prompt in splits[split]],
        "reward_func": partial(name_match_reward, **known),
        "transition": partial(name_feedback, **known),
    }
    return TextEnv(**{**parts, **kwargs})
