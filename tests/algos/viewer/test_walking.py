"""A run is walked through, by mouse and by the keyboard alone."""

import math
from pathlib import Path
from typing import Any

from drawn_rollouts import REPEATABLE, rollouts, shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from viewer_pages import (
    Opened,
    focused,
    names_in_list,
    page_of,
    way_here,
)
from viewer_runs import AGENTS, drawn_rollout, one_turn, written

from motet.algos import Rollout


def test_the_head_says_what_the_run_was(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    assert page.title() == "story-length-ratio-v0 – Motet"  # noqa: RUF001
    assert page.get_by_role("heading", level=1).inner_text() == "story-length-ratio-v0"
    facts = page.locator("#facts").inner_text()
    for part in ("Learner", "magrpo", "Seed", "7", "Torch", "2.12.0"):
        assert part in facts
    assert "after 1 h 1 min" in page.locator("#run-when").inner_text()
    page.get_by_text("All settings").click()
    assert "discount: 0.5" in page.locator("#settings pre").inner_text()
    assert page.locator("#notices").inner_text() == ""


def test_a_run_is_walked_through_by_mouse(
    open_page: Any, run_page: Path, real_team: Rollout
) -> None:
    page = open_page(run_page)
    assert names_in_list(page) == [
        "Rollout 1, row 3",
        "Rollout 1, row 1",
        "Rollout 10, row 2",
        "Rollout 20, row 5",
        "Evaluation at the start, row 0",
    ]
    page.locator("#list .option").nth(1).click()
    node = real_team.levels[0][1]
    assert page.locator("#reading h3").inner_text() == "Rollout 1, row 1"
    tree = page.get_by_role("tree")
    assert tree.get_by_role("treeitem").count() == 4
    tree.get_by_role("treeitem").nth(2).locator(".branch-name").click()
    assert way_here(page) == ["turn 1: #2 + #1"]
    cards = page.locator("#reading .card .prose")
    assert cards.nth(0).inner_text() == node.completions["agent_0"][1].text
    assert cards.nth(1).inner_text() == node.completions["agent_1"][0].text
    assert f"{node.rewards['agent_0'][2]:.3f}" in page.locator("#reading .numbers").inner_text()

    page.get_by_role("treeitem", selected=True).locator(".twist").click()
    below = page.get_by_role("treeitem", selected=True).locator("ul [role=treeitem]")
    assert below.count() == 4
    below.nth(1).click()
    assert way_here(page) == ["turn 1: #2 + #1", "turn 2: #1 + #2"]
    assert "the task’s last" in page.locator(".fate-sentence").inner_text()  # noqa: RUF001
    child = real_team.levels[1][node.children[2]]
    prompts = page.locator("#reading .prompts .prose").all_inner_texts()
    assert prompts == list(child.observations.values())

    page.get_by_role("group", name="Completions of agent_1").get_by_role("button").first.click()
    assert way_here(page)[-1] == "turn 2: #1 + #1"
    page.get_by_role("button", name="the whole group").click()
    assert page.locator("#reading .card").count() == 4
    page.locator("#reading .path button").click()  # to the parent
    assert way_here(page) == ["turn 1: #2 + #1"]
    page.get_by_role("button", name="Next joint action").click()
    assert way_here(page) == ["turn 1: #2 + #2"]
    page.get_by_role("button", name="To the child").click()
    assert way_here(page)[-1] == "turn 2: #1 + #1"


def test_a_run_is_walked_through_by_keyboard_alone(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    press = page.keyboard.press
    press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the rollouts"
    press("Enter")
    press("Tab")
    assert focused(page) == "search"
    for _ in range(4):
        press("Tab")
    assert focused(page) == "option"
    press("ArrowDown")
    press("ArrowDown")
    assert page.locator("#reading h3").inner_text() == "Rollout 10, row 2"
    press("End")
    assert page.locator("#reading h3").inner_text() == "Evaluation at the start, row 0"
    press("Home")
    press("ArrowDown")
    press("Enter")
    assert focused(page) == "treeitem"
    press("ArrowDown")
    assert way_here(page) == ["turn 1: #1 + #2"]
    press("ArrowRight")  # unfold
    press("ArrowRight")  # go in
    press("End")
    assert page.get_by_role("treeitem", selected=True).get_attribute("aria-level") == "1"
    press("Home")
    press("ArrowDown")
    press("ArrowDown")
    press("ArrowDown")
    assert way_here(page) == ["turn 1: #1 + #2", "turn 2: #1 + #2"]
    press("ArrowLeft")  # to the parent
    assert way_here(page) == ["turn 1: #1 + #2"]
    press("ArrowLeft")  # fold
    assert page.get_by_role("treeitem", selected=True).get_attribute("aria-expanded") == "false"
    press("*")
    assert page.get_by_role("treeitem", expanded=True).count() == 4
    for key, expected in (
        ("j", ["turn 1: #2 + #1"]),
        ("l", ["turn 1: #2 + #1", "turn 2: #1 + #1"]),
        ("j", ["turn 1: #2 + #1", "turn 2: #1 + #2"]),
        ("k", ["turn 1: #2 + #1", "turn 2: #1 + #1"]),
        ("h", ["turn 1: #2 + #1"]),
    ):
        press(key)
        assert way_here(page) == expected
    press("Enter")
    assert focused(page) == "reading"
    press("n")
    assert page.locator("#reading h3").inner_text() == "Rollout 10, row 2"
    press("p")
    assert page.locator("#reading h3").inner_text() == "Rollout 1, row 1"


def test_every_control_is_reached_by_tab(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    for _ in range(3):
        page.keyboard.press("n")  # to a tree with tokens
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                """() => {
                  const e = document.activeElement;
                  return e.id || e.name || e.getAttribute("role") || e.className;
                }"""
            )
        )
    wanted = {"theme", "help-open", "axis", "smooth", "slider", "search", "kind", "sort"}
    wanted |= {"direction", "option", "unfold", "fold", "treeitem", "whole-group", "group"}
    assert wanted <= reached


def test_tokens_are_gone_through_and_say_their_numbers(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    page.locator("#list .option").nth(3).click()  # advantages by token
    rollout = drawn_rollout(2, num_generations=3, rows=(5,), per_token=True)
    values = rollout.levels[0][0].advantages["agent_0"][0]
    card = page.locator("#reading .card").first
    readout = card.locator(".readout")
    card.locator(".token").nth(4).hover()
    number = f"{abs(values[4]):.2f}"
    assert readout.inner_text().startswith(f"token 5 of {len(values)}")
    assert number in readout.inner_text()
    card.locator(".prose").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert readout.inner_text().startswith(f"token 2 of {len(values)}")
    assert ("+" if values[1] > 0 else "−") in readout.inner_text()  # noqa: RUF001
    signs = card.locator(".token").evaluate_all(
        "all => all.map((e) => (e.className.match(/(pos|neg)-\\d/) ?? ['none'])[0])"
    )
    sizes = sorted(
        abs(each)
        for node in rollout.nodes()
        for group in node.advantages.values()
        for own in group
        for each in own
    )
    darkest = sizes[math.ceil(0.99 * len(sizes)) - 1]
    assert f"≥ +{darkest:.2f}" in page.locator("#reading .legend").inner_text()
    for sign, value in zip(signs, values, strict=True):
        step = min(5, math.ceil(5 * abs(float(f"{value:.4g}")) / float(f"{darkest:.4g}")))
        assert sign == f"{'pos' if value > 0 else 'neg'}-{step}"


def test_completions_that_were_not_trained_are_marked(open_page: Any, tmp_path: Path) -> None:
    advantages = dict.fromkeys(AGENTS, (0.5, None, -0.5))
    page = open_page(page_of(one_turn(["a", "b", "c"], advantages=advantages), tmp_path / "p.html"))
    page.keyboard.press("g")
    chips = page.locator("#reading .column").nth(1).locator(".chip").all_inner_texts()
    assert [chip.split()[-1] for chip in chips] == ["+0.50", "trained", "−0.50"]  # noqa: RUF001
    pills = page.get_by_role("group", name="Completions of agent_0").get_by_role("button")
    assert pills.nth(1).get_attribute("aria-label") == "Completion 2, advantage not trained"


def test_advantages_without_token_ends_are_a_row_of_squares(open_page: Any, tmp_path: Path) -> None:
    advantages = dict.fromkeys(AGENTS, ((0.5, -0.5, 0.0),))
    page = open_page(page_of(one_turn(["abcdefgh"], advantages=advantages), tmp_path / "p.html"))
    strip = page.locator("#reading .strip").first
    assert strip.locator(".token").count() == 3
    strip.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "token 2 of 3" in page.locator("#reading .readout").first.inner_text()


def test_drafts_greedy_rewards_and_states_are_shown(open_page: Any, tmp_path: Path) -> None:
    rollout = one_turn(
        ["a"],
        drafts={"agent_1": (written("a first draft", 3),)},
        greedy_rewards=dict.fromkeys(AGENTS, (0.5, 0.75)),
        greedy_turns_credited=2,
        state="what the critic reads",
    )
    page = open_page(page_of(rollout, tmp_path / "p.html"))
    for summary in page.locator("#reading summary").all():
        summary.click()
    text = page.locator("#reading").inner_text()
    for part in ("a first draft", "0.500, then 0.750", "counts for 2 turns", "the critic reads"):
        assert part in text


@settings(REPEATABLE, max_examples=12)
@given(st.data())
def test_any_tree_is_walked_through(browser: Any, walked_file: Path, data: st.DataObject) -> None:
    """Agents that wait or leave, branches that end early, rewards of each agent's own."""
    rollout = data.draw(rollouts(data.draw(shapes(greedy=True))))
    opened = Opened(browser, page_of(rollout, walked_file))
    page = opened.go()
    page.keyboard.press("g")
    visited = set()
    for tree in range(len(rollout.levels[0])):
        page.locator("#list .option").nth(tree).click()
        page.locator("#unfold").click()
        page.locator("#tree .branch").first.focus()
        for _ in range(page.get_by_role("treeitem").count()):
            visited.add(page.locator("#reading").get_attribute("aria-label"))
            page.keyboard.press("ArrowDown")
    assert len(visited) >= len(rollout.levels[0])
    opened.context.close()
    assert opened.problems == []
