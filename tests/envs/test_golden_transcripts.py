"""Golden transcripts: the registered tasks say today what they said when they were recorded.

A line that differs means that the task changed, and with it what can be learned from it: give it a
new version. Record the transcript of a new task or a new version with

    MOTET_RECORD_GOLDEN=1 python -m pytest tests/envs/test_golden_transcripts.py

which writes only files that do not exist yet: delete one to record it again.
"""

import json
import os
from pathlib import Path

import pytest

from motet.envs.registration.by_id import make, registry

FOLDER = Path(__file__).parent / "golden"

# Joint actions, taken in this order and repeated: on target, too short, too long, and odd texts.
SCRIPT = (
    ("A cloud.", "A cloud drifts by."),
    ("Rain falls on the tin roof.", "It stops."),
    ("Hm", "This second answer is much longer than the first."),
    ("", "Only one of us answers."),
    ("é世🎵", "Zwölf Zeichen"),
    ("line\nline\n", ""),
)

# Of tasks for which those texts would be all alike.
SCRIPTS = {
    "story-name-match-v0": (
        ("Mira met Tom.", "Tom met Mira."),
        ("Mira met Tom.", "Mira, and Mira again."),
        ("Long ago Ada slept.", "Hugo slept."),
        ("", "Only Leo answers."),
        ("A mirage, a tomb.", "mira"),
        ("Finn's kite", "Ruth, Finn and Ivy"),
    ),
}

# What to play beside a task's defaults; a task that is not named here is played with them alone.
SETTINGS = {
    "story-length-ratio-v0": [{}, {"num_turns": 2}, {"split": "eval", "num_turns": 3}],
    "story-name-match-v0": [{}, {"split": "eval", "num_turns": 2}],
    "story-budget-v0": [{}, {"split": "eval", "num_turns": 3, "budget": 4}],
}
OURS = [id for id, spec in registry.items() if str(spec.entry_point).startswith("motet.envs.")]
NUM_EPISODES = 4


def transcript(id, settings):
    """Play the script and write every value down, one a line."""
    lines = []
    script = SCRIPTS.get(id, SCRIPT)
    turn = 0
    for kwargs in settings:
        env = make(id, **kwargs)
        lines.append(f"# make({', '.join([id, *(f'{k}={v!r}' for k, v in kwargs.items())])})")
        for episode in range(NUM_EPISODES):
            observations, infos = env.reset(seed=0 if episode == 0 else None)
            lines += written(f"reset {episode}", observations=observations, infos=infos)
            while env.agents:
                texts = script[turn % len(script)]
                actions = dict(zip(env.agents, texts, strict=True))
                turn += 1
                names = ("observations", "rewards", "terminations", "truncations", "infos")
                results = dict(zip(names, env.step(actions), strict=True))
                lines += written("step", actions=actions, **results)
    return lines


def written(event, **parts):
    lines = [event]
    for name, part in parts.items():
        for agent, value in part.items():
            shown = f"{value:.9f}" if isinstance(value, float) else in_json(value)
            lines.append(f"  {name} {agent}: {shown}")
    return lines


def in_json(value):
    if isinstance(value, dict):
        value = {k: round(v, 9) if isinstance(v, float) else v for k, v in value.items()}
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("id", OURS)
def test_golden_transcript(id):
    path = FOLDER / f"{id}.txt"
    lines = transcript(id, SETTINGS.get(id, [{}]))
    if os.environ.get("MOTET_RECORD_GOLDEN") and not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    golden = path.read_text(encoding="utf-8").split("\n")
    assert golden.pop() == ""
    for number, (now, then) in enumerate(zip(lines, golden, strict=False), start=1):
        assert now == then, f"line {number} of {path.name}"
    assert len(lines) == len(golden)
