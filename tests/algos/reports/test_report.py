"""Tables and pages of a run: every number by hand, and texts that try to break out."""

import html
import re
from pathlib import Path

import matplotlib.image
import pytest
from markdown_it import MarkdownIt
from tiny import LETTERS, letter_agent, matching_env

from motet import algos
from motet.agents import FixedAgent
from motet.algos import (
    Evaluation,
    before_after_table,
    evaluate,
    evaluation_table,
    markdown_table,
    plot_before_after,
    write_report,
)
from motet.algos.reports import drawing
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")


def paid_by_length(num_turns: int = 1) -> TextEnv:
    """Pays the length of the first text, and 1 in row 1 besides."""
    return TextEnv(
        [{"prompt": "p", "more": 0.0}, {"prompt": "q", "more": 1.0}],
        lambda a, b, more: [len(text) + own for text, own in zip(a, more, strict=True)],
        transition=lambda prompt: [prompt, prompt],
        num_turns=num_turns,
    )


def played(text: str, num_turns: int = 1) -> Evaluation:
    return evaluate(paid_by_length(num_turns), dict.fromkeys(NAMES, FixedAgent(text)))


def test_a_table_by_hand() -> None:
    # rewards 1 and 2, then 3 and 4: mean 1.5, error 1/2, t of one degree 12.706; change 2 in both
    table = before_after_table(played("x"), played("xxx"))
    assert table.splitlines() == [
        "|  | before | after | change |",
        "| --- | --- | --- | --- |",
        "| reward | 1.500 [-4.853, 7.853] | 3.500 [-2.853, 9.853] | +2.000 [+2.000, +2.000] |",
        "| tokens of a completion | 0.0 | 0.0 | +0.0 |",
        "| completions cut | 0.000 | 0.000 | +0.000 |",
        "",
        "Means over 2 episodes of 2 rows; in brackets 95 % intervals over rows. Changes are paired "
        "by row.",
    ]


def test_several_turns_have_rows_of_their_own() -> None:
    table = before_after_table(played("x", 2), played("xx", 2))
    labels = re.findall(r"^\| ([^|]*\S) \|", table, re.MULTILINE)
    assert labels == [
        "---",
        "reward, all turns",
        "return",
        "reward, last turn played",
        "reward, turn 1",
        "reward, turn 2",
        "turns of an episode",
        "tokens of a completion",
        "completions cut",
        "episodes ended early",
    ]
    assert "| return | 3.000 " in table
    assert "| turns of an episode | 2.0 [2.0, 2.0] |" in table


def test_one_row_has_a_table_without_intervals() -> None:
    team = dict.fromkeys(NAMES, FixedAgent("x"))
    table = evaluation_table(evaluate(paid_by_length(), team, [1], num_samples=3))
    assert "| reward | 2.000 |" in table
    assert table.endswith("\nMeans over 3 episodes of 1 row, which has no interval.\n")


def test_cells_stay_cells() -> None:
    assert markdown_table(["a", "b"], [["x|y", "1\n2"]]) == (
        "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |\n"
    )


def test_hostile_texts_in_cells_are_nothing_but_text() -> None:
    cells = [
        "a | b",
        "a \\| b \\",
        "<img src=x onerror=alert(1)>",
        "**bold** _x_ `code` ~~gone~~",
        "[link](http://x) ![i](y) [z]: w",
        "&lt; &#124;",
        "agent_0 _all_ __of__ it",
        "1.500 [-4.853, 7.853]",
    ]
    shown = (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .render(markdown_table(["one", "two"], [[cell, "end"] for cell in cells]))
    )
    found = [html.unescape(each) for each in re.findall(r"<td>(.*?)</td>", shown)]
    assert found == [each for cell in cells for each in (cell, "end")]
    assert "\u202e" not in markdown_table(["x"], [["safe \u202egnp.exe"]])
    assert "| agent_0 |" in markdown_table(["x"], [["agent_0"]])  # plain where it can be


def test_a_name_with_dollars_is_no_formula(tmp_path: Path) -> None:
    names = ("$\\x$", "agent_1")
    env = TextEnv(
        [{"prompt": "p"}],
        lambda a, b: {names[0]: [1.0] * len(a), names[1]: [2.0] * len(b)},
        agent_names=names,
    )
    played = evaluate(env, dict.fromkeys(names, FixedAgent("x")))
    assert plot_before_after(played, played, tmp_path / "table.png").stat().st_size > 0


def test_the_picture_grows_with_the_table(tmp_path: Path) -> None:
    small = plot_before_after(played("x"), played("xx"), tmp_path / "small.png")
    large = plot_before_after(played("x", 2), played("xx", 2), tmp_path / "large.png")
    heights = [matplotlib.image.imread(path).shape[0] for path in (small, large)]
    assert heights[1] > 1.4 * heights[0]


def trained(folder: Path, **settings: object) -> algos.Algorithm:
    config = algos.MAGRPOConfig(
        num_train_epochs=3,
        rollout_batch_size=4,
        agent_learning_rate=0.02,
        eval_interval=2,
        output_dir=str(folder),
        progress_bar=False,
        **settings,
    )
    team = {name: letter_agent(i) for i, name in enumerate(NAMES)}
    trainer = algos.make("magrpo", matching_env(2), team, config, eval_env=matching_env(2))
    trainer.train()
    return trainer


def test_a_run_on_a_page(tmp_path: Path) -> None:
    trainer = trained(tmp_path, eval_episodes_per_row=3)
    files = sorted(path.name for path in (tmp_path / "evaluations").iterdir())
    assert files == ["000000.jsonl", "000002.jsonl", "000003.jsonl"]
    (tmp_path / "run.yaml").write_text("env: matching\n", encoding="utf-8")
    page = write_report(tmp_path, command="motet train x", num_transcripts=1)
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^#.*$", text, re.MULTILINE)[1:6] == [
        "## Command",
        "## Settings",
        "## Held-out rows",
        "## Curves",
        "## Transcripts",
    ]
    assert "```bash\nmotet train x\n```" in text
    assert "```yaml\nenv: matching\n```" in text
    after = trainer.evaluate().metrics["return_mean"]
    assert re.search(rf"^\| return \| .* \| {after:.3f} \[", text, re.MULTILINE)
    assert "Means over 12 episodes of 4 rows" in text
    for name in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert len(re.findall(r"^### Row 0, (before|after): return", text, re.MULTILINE)) == 2
    assert text.count("agent\\_1 reads") == 4  # two episodes of two turns


def test_texts_cannot_break_out_of_their_blocks(tmp_path: Path) -> None:
    hostile = "```\n# Title\n<script>alert(1)</script>\u202e\n````` " + "x" * 2000
    config = algos.ScriptedConfig(output_dir=str(tmp_path))
    env = TextEnv([{"prompt": "a | b\n```"}], lambda a, b: [0.5] * len(a))
    algos.make("scripted", env, dict.fromkeys(NAMES, hostile), config, eval_env=env).train()
    text = write_report(tmp_path).read_text(encoding="utf-8")
    outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "Title" in text
    for words in ("Title", "<script", "xxx", "a | b"):
        assert words not in outside
    assert "\u202e" not in text
    assert f"... ({len(hostile):,} characters)" in text
    assert "before" not in text


def test_without_matplotlib_the_page_says_why_it_has_no_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path)
    monkeypatch.setattr(drawing.importlib.util, "find_spec", lambda name: None)
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert 'There are none: expected matplotlib for pictures; pip install "motet[plots]".' in text
    assert "![" not in text
    assert not list(tmp_path.glob("*.png"))


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"folder of a run, with metrics\.jsonl or eval"):
        write_report(tmp_path)


def test_trees_of_training_are_no_evaluations() -> None:
    team = {name: letter_agent(i) for i, name in enumerate(NAMES)}
    tree = algos.collect_rollouts(matching_env(), team, range(len(LETTERS)), num_generations=2)
    with pytest.raises(ValueError, match="one joint action at each node, got 2 at row 0, turn 1"):
        Evaluation.of(tree)
