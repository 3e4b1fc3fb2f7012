"""Curves say their values, along any axis and of any metric."""

from pathlib import Path
from typing import Any


def test_curves_say_their_values(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    chart = page.get_by_role("slider", name="Rewards by env steps")
    assert page.get_by_role("slider", name="Expected returns by env steps").is_visible()
    assert chart.locator("path.curve").count() == 3
    assert chart.locator("line.interval").count() == 2
    assert "eval/reward_mean 0.6 (0.50 to 0.70)" in chart.get_attribute("aria-valuetext")
    chart.focus()
    page.keyboard.press("Home")
    assert chart.get_attribute("aria-valuetext").startswith("env steps 0: ")
    page.keyboard.press("ArrowRight")
    said = chart.get_attribute("aria-valuetext")
    assert said.startswith("env steps 8: turn_1/reward_mean 0.2, turn_2/reward_mean 0.3")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 16, box["y"] + 90)
    assert "env steps 480" in page.locator(".chart").first.locator(".at").inner_text()
    page.locator(".chart-legend button").first.click()
    assert chart.locator("path.curve").count() == 2


def test_axes_are_switched(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    page.locator("#axis input[value=optimizer]").check()
    chart = page.locator(".plot").first
    assert chart.get_attribute("aria-label") == "Rewards by optimizer steps"
    assert chart.get_attribute("aria-valuetext").startswith("optimizer steps 120: ")
    page.keyboard.press("x")
    assert chart.get_attribute("aria-label") == "Rewards by wall time"
    assert chart.get_attribute("aria-valuetext").startswith("wall time 1 h 1 min: ")
    page.keyboard.press("x")
    assert chart.get_attribute("aria-label") == "Rewards by env steps"


def test_any_metric_can_be_chosen(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    select = page.locator(".chooser select").first
    options = select.locator("option").all_inner_texts()
    assert "train/grad_norm" in options
    assert not [name for name in options if name.endswith(("_low", "_high"))]
    select.select_option(label="train/grad_norm")
    assert "train/grad_norm 5" in page.locator(".chart-legend").first.inner_text().replace(
        "\n", " "
    )
