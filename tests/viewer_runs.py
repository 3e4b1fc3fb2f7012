"""Runs to look at: trees of drawn texts of ordinary size, and texts that try to break a page."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from motet.agents import Completion
from motet.algos import Node, Rollout

AGENTS = ("agent_0", "agent_1")
LETTERS = "etaoinshrdlcumwfgypbvk"

HOSTILE = {
    "script": "</script><script>window.pwned = 1</script>",
    "image": "<img src=x onerror=\"window.pwned = 2\"><svg onload='window.pwned = 3'>",
    "comment": "<!-- <script> ]]> --> </textarea></style></title>",
    "template": "${window.pwned = 4} $data {{pwned}} `${1}` javascript:window.pwned=5",
    "right-to-left": "שלום עולם، مرحبا بالعالم in the middle",
    "overrides": "safe \u202egnp.exe\u202c and \u2066isolated\u2069 \u200f\u200e\u061c end",
    "controls": "bell\x07 nul\x00 escape\x1b[31m backspace\x08 return\r\n tab\t c1\x85 del\x7f",
    "invisible": "zero\u200bwidth\ufeff soft\xadhyphen tags\U000e0041\U000e0042",
    "separators": "line\u2028paragraph\u2029end",
    "emoji": "family 👨‍👩‍👧‍👦 flag 🇫🇷 skin 👍🏽 heart ❤️ \U0001d4b3",
    "combining": "Z" + "\u0341\u0356\u0317\u031e" * 12 + "algo e\u0301 क्षि",
    "surrogates": "half \ud83d other \udc00 end",
    "empty": "",
    "spaces": "   \n\n\n   \t\n ",
    "one word": "unbroken" * 90,
    "quotes": "\" ' \\ \\u0041 \\ud800 &amp; &lt;",
}


def drawn_words(generator: random.Random, size: int = 4000) -> list[str]:
    """A vocabulary of words that are spelled at random: harder to pack than a language is."""
    lengths = [generator.choice([1, 2, 3, 4, 5, 6, 7, 9]) for _ in range(size)]
    return ["".join(generator.choices(LETTERS, k=length)) for length in lengths]


def drawn_completion(
    generator: random.Random, words: Sequence[str]
) -> tuple[Completion, list[int]]:
    """A completion of 64 to 128 tokens of a word each, and where each token ends."""
    count = generator.randint(64, 128)
    ends, parts, end = [], [], 0
    for word in generator.choices(words, k=count - 1):
        parts.append(f" {word}")
        end += len(parts[-1])
        ends.append(end)
    return written("".join(parts), count), [*ends, end]  # the last token ends it and shows nothing


def written(text: str, count: int) -> Completion:
    return Completion(
        text=text,
        prompt_ids=(1,),
        completion_ids=tuple(range(count)),
        log_probs=(-1.0,) * count,
        finish_reason="stop" if count % 3 else "length",
    )


def drawn_rollout(
    seed: int,
    *,
    num_generations: int = 4,
    num_turns: int = 2,
    rows: Sequence[int] = (0,),
    per_token: bool = False,
) -> Rollout:
    """Aligned trees of drawn texts: G + G^2 + ... joint actions for each row."""
    generator = random.Random(seed)
    words = drawn_words(random.Random(0))
    places = list(rows)
    levels: list[tuple[Node, ...]] = []
    for turn in range(1, num_turns + 1):
        nodes = []
        for index, row in enumerate(places):
            groups: dict[str, tuple[Completion, ...]] = {}
            offsets: dict[str, tuple[tuple[int, ...], ...]] = {}
            advantages: dict[str, Any] = {}
            for name in AGENTS:
                drawn = [drawn_completion(generator, words) for _ in range(num_generations)]
                groups[name] = tuple(completion for completion, _ in drawn)
                offsets[name] = tuple(tuple(ends) for _, ends in drawn)
                advantages[name] = tuple(
                    tuple(generator.gauss(0, 1) for _ in ends)
                    if per_token
                    else generator.gauss(0, 1)
                    for _, ends in drawn
                )
            last = turn == num_turns
            rewards = tuple(generator.random() for _ in range(num_generations))
            nodes.append(
                Node(
                    row=row,
                    turn=turn,
                    observations={
                        name: f"Row {row}. {' '.join(generator.choices(words, k=30))}"
                        for name in AGENTS
                    },
                    completions=groups,
                    joint_actions=tuple((k, k) for k in range(num_generations)),
                    rewards=dict.fromkeys(AGENTS, rewards),
                    ended=(last,) * num_generations,
                    children=tuple(
                        None if last else index * num_generations + k
                        for k in range(num_generations)
                    ),
                    turns_credited=(1,) * num_generations,
                    advantages=advantages,
                    token_offsets=offsets,
                )
            )
        levels.append(tuple(nodes))
        places = [row for row in places for _ in range(num_generations)]
    return Rollout(AGENTS, tuple(levels))


def one_turn(texts: Sequence[str], *, prompt: str = "Write.", **fields: Any) -> Rollout:
    """A node in which both agents wrote the same texts, a reward for each."""
    group = tuple(written(text, len(text) // 4 + 1) for text in texts)
    count = len(texts)
    made: dict[str, Any] = {
        "row": 0,
        "turn": 1,
        "observations": dict.fromkeys(AGENTS, prompt),
        "completions": dict.fromkeys(AGENTS, group),
        "joint_actions": tuple((k, k) for k in range(count)),
        "rewards": dict.fromkeys(AGENTS, tuple(k / count for k in range(count))),
        "ended": (True,) * count,
        "children": (None,) * count,
        "turns_credited": (1,) * count,
    }
    return Rollout(AGENTS, ((Node(**(made | fields)),),))


def by_letters(text: str, advantage: Callable[[int], float]) -> dict[str, Any]:
    """Advantages and offsets of the one completion of each agent, four characters a token."""
    ends = [*range(4, len(text), 4), len(text)]
    count = len(text) // 4 + 1
    ends = (ends + [len(text)] * count)[:count]
    values = tuple(advantage(i) for i in range(count))
    return {
        "advantages": dict.fromkeys(AGENTS, (values,)),
        "token_offsets": dict.fromkeys(AGENTS, (tuple(ends),)),
    }


def write_run(
    folder: Path, rollouts: dict[int, Rollout], evaluations: dict[int, Rollout] | None = None
) -> Path:
    """Write a run's folder with a log of sixty entries, two evaluations and its settings."""
    for name, saved in (("rollouts", rollouts), ("evaluations", evaluations or {})):
        (folder / name).mkdir(parents=True)
        for number, rollout in saved.items():
            rollout.save(folder / name / f"{number:06d}.jsonl")
    lines = []
    for k in range(60):
        if k % 30 == 0:
            middle = 0.3 + k / 100
            lines.append(
                {
                    "step": 8 * k,
                    "eval/reward_mean": middle,
                    "eval/reward_mean_low": middle - 0.1,
                    "eval/reward_mean_high": middle + 0.1,
                }
            )
        lines.append(
            {
                "step": 8 * (k + 1),
                "turn_1/reward_mean": 0.2 + k / 100,
                "turn_2/reward_mean": 0.3 + k / 120,
                "turn_1/expected_return": 0.5 + k / 60,
                "turn_2/expected_return": 0.3 + k / 120,
                "train/grad_norm": 2.0 + (k % 7),
                "time/optimizer_steps": 2.0 * (k + 1),
                "time/elapsed_seconds": 61.5 * (k + 1),
            }
        )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "run.yaml").write_text(
        "algo: magrpo\nenv:\n  id: story-length-ratio-v0\n  kwargs:\n    num_turns: 2\n"
        "config:\n  seed: 7\n  discount: 0.5\nversions:\n  motet: 0.1.0\n  torch: 2.12.0\n"
    )
    return folder
