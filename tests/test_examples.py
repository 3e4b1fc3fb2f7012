"""The examples run as a newcomer runs them: one command each, here with small settings."""

import ast
import json
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from motet import algos

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SHORT = (
    "custom_algorithm",
    "custom_loop",
    "early_termination",
    "lora_team",
    "mixed_team",
    "register_task",
    "sb3_choices",
    "swap_algorithm",
)
LEARNERS = ("magrpo", "marloo", "mareinforce")
PROMPT = "Describe a city in the clouds:"
NUMBER = r"-?\d+\.\d+"


def run(name: str, *arguments: str, folder: Path) -> str:
    """Run an example in a folder and return what it prints."""
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_loop_plays_its_turns_with_feedback_between_them(tmp_path: Path) -> None:
    printed = run("custom_loop", "--num-turns", "3", folder=tmp_path)
    assert re.findall(r"^--- turn (\d) ---$", printed, re.MULTILINE) == ["1", "2", "3"]
    assert printed.count(f"reads:  {PROMPT}") == 6
    assert printed.count("Write an improved answer:") == 4
    rewards = [float(text) for text in re.findall(rf"Both earn ({NUMBER})\.", printed)]
    assert len(rewards) == 3
    assert all(0 <= reward <= 1 for reward in rewards)
    written = re.findall(r"^agent_\d writes: (.*)$", printed, re.MULTILINE)
    assert len(set(written)) > 2
    assert not list(tmp_path.iterdir())


def test_a_new_task_is_checked_played_and_trained(tmp_path: Path) -> None:
    printed = run("register_task", "--num-updates", "2", folder=tmp_path)
    transcript, training = printed.split("\nstep ", maxsplit=1)
    title, first, second = re.split(r"\n\nTurn \d\n", transcript)
    assert title == "Episode of unison-v0, row 0"
    assert "agent_0 sees\n    | Write a bedtime story for a dragon:" in first
    assert "agent_1 sees\n    | Tell a joke about dragons:" in first
    assert second.count("The other voice began with ") == 2
    assert len(re.findall(rf"turn_1/reward_mean {NUMBER}", training)) == 2
    (result,) = re.findall(
        rf"Mean reward ({NUMBER}) before 2 updates, ({NUMBER}) after\.", training
    )
    assert all(0 <= float(reward) <= 1 for reward in result)
    assert not list(tmp_path.iterdir())


def test_one_name_swaps_the_learner(tmp_path: Path) -> None:
    curves = []
    for algo in LEARNERS:
        printed = run("swap_algorithm", "--algo", algo, "--num-updates", "1", folder=tmp_path)
        (result,) = re.findall(
            rf"^{algo}: .*held-out.* ({NUMBER}) before, ({NUMBER}) after\.$", printed, re.MULTILINE
        )
        assert all(0 < float(reward) < 1 for reward in result)
        rewards = re.findall(rf"^step +\d+  turn_1/reward_mean ({NUMBER})", printed, re.MULTILINE)
        curves.append((*rewards, *result))
    first, before, after = map(set, zip(*curves, strict=True))
    assert len(first) == len(before) == 1, "the same team, before anything is learnt"
    assert len(after) == len(LEARNERS), "each learner goes its own way"
    assert not list(tmp_path.iterdir())


def test_a_learner_of_ones_own_is_trained(tmp_path: Path) -> None:
    printed = run("custom_algorithm", "--num-updates", "1", folder=tmp_path)
    (result,) = re.findall(rf"instructions ({NUMBER}) before, ({NUMBER}) after\.$", printed, re.M)
    before, after = map(float, result)
    assert 0 < before < 1
    assert before != after
    assert not list(tmp_path.iterdir())


def test_it_refuses_averages_over_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(algos.registry, "gspo", raising=False)
    config = runpy.run_path(str(EXAMPLES / "custom_algorithm.py"))["GSPOConfig"]
    with pytest.raises(ValueError, match="loss_type='sequence_sum' with GSPO, got 'token_mean'"):
        config(loss_type="token_mean")


def test_its_loss_clips_whole_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: ratios are the exponentials of mean differences, e^0.5 and e^-1."""
    monkeypatch.delitem(algos.registry, "gspo", raising=False)  # others run the example as well
    loss_of = runpy.run_path(str(EXAMPLES / "custom_algorithm.py"))["gspo_loss"]
    old = torch.tensor([[-1.0, -2.0], [-3.0, 7.0]])
    log_probs = old + torch.tensor([[0.75, 0.25], [-1.0, 9.0]])
    log_probs.requires_grad_()
    mask = torch.tensor([[True, True], [True, False]])
    for advantages, gains, clipped in (
        # min(A e^0.5, 1.2 A) and min(A e^-1, 0.8 A), for A = 2 and A = -1
        ((2.0, 2.0), (2 * 1.2, 2 * math.exp(-1)), (True, False)),
        ((-1.0, -1.0), (-math.exp(0.5), -0.8), (False, True)),
    ):
        sampled = SimpleNamespace(
            old_log_probs=old,
            mask=mask,
            advantages=torch.tensor(advantages).unsqueeze(-1) * mask,
            weights=torch.tensor([0.5, 0.25]),
        )
        loss = loss_of(log_probs, sampled, 0.8, 1.2)
        assert loss.item() == pytest.approx(-0.5 * gains[0] - 0.25 * gains[1])
        (gradient,) = torch.autograd.grad(loss, log_probs)
        assert [not row.any() for row in gradient] == list(clipped)
        assert gradient[1, 1] == 0  # there is no token


def test_writers_with_an_adapter_each_share_a_model(tmp_path: Path) -> None:
    settings = ("--num-updates", "1", "--rank", "2", "--output-dir", "out")
    printed = run("lora_team", *settings, folder=tmp_path)
    sizes = re.findall(r"^(agent_\d) trains ([\d,]+) weights, beside ([\d,]+) of", printed, re.M)
    assert [name for name, *_ in sizes] == ["agent_0", "agent_1"]
    for name, trained, size in sizes:
        adapter = load_file(tmp_path / "out" / name / "adapter_model.safetensors")
        count = sum(weight.numel() for weight in adapter.values())
        assert f"{count:,}" == trained
        assert count < 0.02 * int(size.replace(",", ""))
    (result,) = re.findall(rf"instructions ({NUMBER}) before, ({NUMBER}) after", printed)
    assert all(0 < float(reward) < 1 for reward in result)
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


@pytest.mark.parametrize("scripted", [False, True])
def test_writers_that_have_little_in_common_are_trained(scripted: bool, tmp_path: Path) -> None:
    settings = ["--num-updates", "1", *(["--scripted"] if scripted else [])]
    printed = run("mixed_team", *settings, folder=tmp_path)
    written = re.findall(r"^(agent_\d) writes (\d+) characters: (.*)$", printed, re.MULTILINE)
    assert [name for name, *_ in written] == ["agent_0", "agent_1"]
    first = written[0][2]
    assert not set(first) & set(".!?"), "it ends before its stop string"
    assert (first == "A dragon lived beside the sea") == scripted
    (result,) = re.findall(rf"instructions ({NUMBER}) before, ({NUMBER}) after", printed)
    assert all(0 < float(reward) < 1 for reward in result)
    assert result[0] != result[1]
    assert not list(tmp_path.iterdir())


def test_ppo_chooses_how_frozen_writers_begin(tmp_path: Path) -> None:
    printed = run("sb3_choices", "--num-steps", "256", "--num-samples", "3", folder=tmp_path)
    (result,) = re.findall(
        rf"^Mean reward on held-out instructions ({NUMBER}) before, ({NUMBER}) after\.$",
        printed,
        re.MULTILINE,
    )
    assert all(0 < float(reward) < 1 for reward in result)
    pattern = r"^(agent_\d) mostly begins with '.*': (\d+) times of (\d+)\.$"
    begun = re.findall(pattern, printed, re.MULTILINE)
    assert [agent for agent, _, _ in begun] == ["agent_0", "agent_1"]
    assert all(1 <= int(times) <= int(total) for _, times, total in begun)
    assert not list(tmp_path.iterdir())


def test_the_demo_script_leaves_models_metrics_stories_and_a_picture(tmp_path: Path) -> None:
    settings = ["--num-turns=2", "--num-train-epochs=1", "--num-generations=2"]
    settings += ["--max-new-tokens=16", "--eval-num-samples=1", "--output-dir=out"]
    printed = run("story_len_ratio", *settings, folder=tmp_path)
    assert re.search(rf"held-out instructions: {NUMBER} before, {NUMBER} after", printed)
    out = tmp_path / "out"
    names = {path.name for path in out.iterdir()}
    written = {"models", "metrics.jsonl", "rollouts", "evaluations", "stories.md", "reward.png"}
    assert names == written
    entries = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {"turn_1/reward_mean", "turn_2/reward_mean"} <= {key for e in entries for key in e}
    stories = (out / "stories.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| reward, turn 2 \| {NUMBER} \[{NUMBER}, {NUMBER}\] \|", stories, re.M)
    assert "before: ratio" in stories
    assert "after: ratio" in stories
    assert (out / "reward.png").read_bytes().startswith(b"\x89PNG")
    for name in ("agent_0", "agent_1"):
        AutoModelForCausalLM.from_pretrained(out / "models" / name)


@pytest.mark.parametrize("name", SHORT)
def test_each_says_what_it_shows_and_how_to_run_it(name: str) -> None:
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    page = ast.get_docstring(tree)
    assert page is not None
    assert re.search(rf"^    python examples/{name}\.py( .+)?$", page, re.MULTILINE)
    assert "main" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert len(source.splitlines()) <= 100


def early_termination_rows(printed: str) -> dict[str, list[float]]:
    """Return turns used, hits in turn 1 and best reward by rule."""
    rows = re.findall(
        rf"^│ (.+?) +│ 1 +│ +({NUMBER}) +│ +({NUMBER}) +│ +({NUMBER}) +│$", printed, re.M
    )
    return {rule: [float(cell) for cell in cells] for rule, *cells in rows}


def test_four_rules_of_early_termination_are_compared(tmp_path: Path) -> None:
    small = ("--seeds", "0", "--gammas", "1", "--num-timesteps", "2048")
    rows = early_termination_rows(run("early_termination", *small, folder=tmp_path))
    assert list(rows) == [
        "never ends early",
        "ends at success",
        "ends at success, credited",
        "ends at success, pays improvement",
    ]
    assert rows["never ends early"][0] == 3
    for turns, hits, best in rows.values():
        assert 1 <= turns <= 3
        assert 0 <= hits <= 1
        assert 0 < best <= 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ppo_misses_on_purpose_unless_success_is_credited(tmp_path: Path) -> None:
    settings = ("--seeds", "0", "--gammas", "1", "--num-timesteps", "40960")
    rows = early_termination_rows(run("early_termination", *settings, folder=tmp_path))
    turns, hits, _ = rows["ends at success"]
    assert turns > 2.5
    assert hits < 0.1
    turns, hits, _ = rows["ends at success, credited"]
    assert turns < 1.5
    assert hits > 0.7


@pytest.mark.slow
def test_a_learner_of_ones_own_learns(tmp_path: Path) -> None:
    printed = run("custom_algorithm", folder=tmp_path)
    (result,) = re.findall(rf"instructions ({NUMBER}) before, ({NUMBER}) after", printed)
    before, after = map(float, result)
    assert after > before + 0.2


@pytest.mark.slow
def test_ppo_learns_to_choose(tmp_path: Path) -> None:
    printed = run("sb3_choices", folder=tmp_path)
    (result,) = re.findall(rf"instructions ({NUMBER}) before, ({NUMBER}) after", printed)
    before, after = map(float, result)
    assert before < 0.5
    assert after > before + 0.2


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["demo", "demo-one-turn"])
def test_the_demo_takes_the_reward_from_below_a_half_to_nine_tenths(
    preset: str, tmp_path: Path
) -> None:
    printed = run("story_len_ratio", f"--preset={preset}", folder=tmp_path)
    pattern = rf"held-out instructions: ({NUMBER}) before, ({NUMBER}) after"
    (result,) = re.findall(pattern, printed)
    before, after = map(float, result)
    assert before < 0.5
    assert after >= 0.9
