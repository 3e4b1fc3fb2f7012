"""Trees are searched, sorted and filtered, also thousands of them."""

import re
from pathlib import Path
from typing import Any

import pytest
from viewer_pages import (
    focused,
    names_in_list,
    page_of,
    way_here,
)
from viewer_runs import drawn_rollout

from motet.algos import Rollout

expect = pytest.importorskip("playwright.sync_api", reason="no playwright").expect


def test_search_finds_texts_opens_them_and_marks_them(
    open_page: Any, run_page: Path, real_team: Rollout
) -> None:
    page = open_page(run_page)
    wanted = real_team.levels[1][5].completions["agent_1"][1].text[-24:]
    page.keyboard.press("/")
    page.keyboard.type(wanted.upper())
    count = expect(page.locator("#count"))
    count.to_have_text(re.compile(r"^[1-4] of 5 trees$"))
    assert wanted in page.locator("#reading").inner_text()
    assert page.locator("#tree .is-hit").count() >= 1
    above = page.locator("#tree > ul > .branch:has(.is-hit)").first
    assert "has-hit-below" in above.get_attribute("class")
    assert page.evaluate("CSS.highlights.get('hits').size") >= 1
    page.keyboard.press("Escape")
    assert focused(page) == "option"
    page.locator("#search").fill("nobody wrote this")
    count.to_have_text("0 of 5 trees")
    assert names_in_list(page) == []
    page.locator("#search").fill("")
    count.to_have_text("5 trees")


@pytest.mark.parametrize("by", ["reward", "spread", "length"])
def test_sorting(open_page: Any, run_page: Path, by: str) -> None:
    page = open_page(run_page)

    def values() -> list[float]:
        if by == "reward":
            return [float(text) for text in page.locator(".option-reward").all_inner_texts()]
        told = page.locator(".option-more").all_inner_texts()
        return [float(re.search(rf"{by} ([\d.]+)", text).group(1)) for text in told]

    page.locator("#sort").select_option(by)
    assert len(values()) == 5
    assert values() == sorted(values(), reverse=True)
    assert len(set(values())) > 2
    page.locator("#direction").click()
    assert values() == sorted(values())
    page.locator("#sort").select_option("number")
    assert names_in_list(page)[0] == "Rollout 1, row 3"


def test_filtering(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    page.locator("#kind input[value=evaluation]").check()
    assert names_in_list(page) == ["Evaluation at the start, row 0"]
    page.locator("#kind input[value=training]").check()
    assert len(names_in_list(page)) == 4
    assert page.locator("#count").inner_text() == "4 of 5 trees"


def test_thousands_of_trees(open_page: Any, tmp_path: Path) -> None:
    rollouts = [
        drawn_rollout(k, num_generations=1, num_turns=1, rows=range(30)) for k in range(100)
    ]
    page = open_page(page_of(rollouts, tmp_path / "p.html"))
    assert page.locator("#count").inner_text() == "3,000 trees"
    assert page.locator("#list .option").count() == 200
    page.get_by_role("button", name="Show 200 more of 2,800").click()
    assert page.locator("#list .option").count() == 400
    page.locator("#list .option").first.focus()
    page.keyboard.press("End")
    assert page.locator("#reading h3").inner_text() == "Rollout 100, row 29"
    assert page.locator("#list .option:focus").get_attribute("aria-posinset") == "3000"


def test_wide_trees_are_shown_a_part_at_a_time(open_page: Any, tmp_path: Path) -> None:
    rollout = drawn_rollout(0, num_generations=150, num_turns=1)
    page = open_page(page_of(rollout, tmp_path / "p.html"))
    assert page.locator("#tree .branch").count() == 64
    page.locator("#tree .branch").first.focus()
    page.keyboard.press("End")  # the item that stands for the rest
    assert page.locator("#tree .branch").count() == 128
    assert way_here(page) == ["turn 1: #65 + #65"]
    pills = page.get_by_role("group", name="Completions of agent_0").get_by_role("button")
    pills.nth(149).click()
    assert way_here(page) == ["turn 1: #150 + #150"]
    assert page.locator("#tree .branch").count() == 150
