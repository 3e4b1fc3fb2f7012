"""Each registered task has a page in docs/envs, made from its module's docstring and an episode.

Make the page of a new task, or of one whose docstring changed, with

    MOTET_RECORD_GOLDEN=1 python -m pytest tests/envs/test_env_pages.py
"""

import importlib
import inspect
import itertools
import os
from pathlib import Path

import pytest

from motet.envs import make, registry

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "envs"
OURS = [id for id, spec in registry.items() if str(spec.entry_point).startswith("motet.envs.")]
ROWS_OF_A_TABLE = ("agents", "turns", "observation", "action", "reward")

# What to play on a task's page.
SETTINGS = {"story-length-ratio-v0": {"num_turns": 2}}
TURNS = (
    ("A city of mist.", "A city of mist, and of bridges between the towers."),
    ("A city of mist.", "A city of mist, and of bridges."),
)
TURNS_OF = {
    "story-name-match-v0": (
        ("Mira found a city in the clouds.", "Mira and her friend Tom flew to a city."),
    ),
    "story-budget-v0": (
        ("A city hung in the air.", "It was made of mist. Its towers leaned. Nobody lived there."),
        ("One day a bird came. It sang.", "The mist sang back. The city fell as rain."),
    ),
}


def page(id):
    module = importlib.import_module(registry[id].entry_point.partition(":")[0])
    settings = SETTINGS.get(id, {})
    env = make(id, render_mode="ansi", **settings)
    env.reset(seed=0)
    for texts in itertools.cycle(TURNS_OF.get(id, TURNS)):
        env.step(dict(zip(env.agents, texts, strict=False)))
        if not env.agents:
            break
    given = "".join(f", {name}={value!r}" for name, value in settings.items())
    return (
        f"# {id}\n\n{inspect.getdoc(module)}\n\n## An episode\n\n"
        f'```python\nfrom motet import envs\n\nenv = envs.make("{id}"{given})\n```\n\n'
        f"```\n{env.render()}\n```\n"
    )


@pytest.mark.parametrize("id", OURS)
def test_each_task_has_its_page(id):
    path = FOLDER / f"{id}.md"
    if os.environ.get("MOTET_RECORD_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(id), encoding="utf-8", newline="\n")
    assert path.read_text(encoding="utf-8") == page(id), "see this file's docstring"


@pytest.mark.parametrize("id", OURS)
def test_a_page_has_its_table_and_history(id):
    text = page(id)
    for row in ROWS_OF_A_TABLE:
        assert f"\n| {row} " in text, row
    assert f"| `{id}` " in text
    assert "\nVersion history:\n    v" in text


def test_no_page_is_left_of_a_task_that_is_gone():
    assert {path.stem for path in FOLDER.glob("*.md")} == set(OURS)
