"""The page in light and dark, at every width, and for those who hear it instead."""

import re
from pathlib import Path
from typing import Any

import pytest
from viewer_pages import (
    CONTRASTS,
    background,
    page_of,
)
from viewer_runs import HOSTILE, one_turn


def test_light_and_dark(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page, color_scheme="light")
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert light != dark
    button = page.locator("#theme")
    button.click()
    assert (background(page), button.inner_text()) == (light, "Theme: light")
    page.keyboard.press("t")
    assert (background(page), button.inner_text()) == (dark, "Theme: dark")
    page.emulate_media(color_scheme="light")
    assert background(page) == dark
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert background(page) == dark
    button.click()
    assert (background(page), button.inner_text()) == (light, "Theme: system")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(open_page: Any, run_page: Path, scheme: str) -> None:
    page = open_page(run_page, color_scheme=scheme)
    page.locator("#list .option").nth(3).click()
    page.keyboard.press("g")
    worst = page.evaluate(CONTRASTS)
    assert {name for name in worst if "pos-" in name} | {name for name in worst if "neg-" in name}
    assert {name: value for name, value in worst.items() if value < 4.5} == {}


@pytest.mark.parametrize("width", [320, 390, 800, 1100, 1440, 2200])
def test_nothing_is_wider_than_the_window(
    open_page: Any, run_page: Path, tmp_path: Path, width: int
) -> None:
    viewport = {"width": width, "height": 844}
    hostile = page_of(one_turn(list(HOSTILE.values()), prompt="x" * 5000), tmp_path / "p.html")
    for path in (run_page, hostile):
        page = open_page(path, viewport=viewport)
        page.keyboard.press("g")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = page.evaluate(
            """() => [...document.querySelectorAll("main *")]
              .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("svg"))
              .filter((e) => e.offsetParent && !e.closest(".excerpt")) // cut off by its line
              .map((e) => e.className || e.tagName)"""
        )
        assert wide == []


def test_pictures_for_those_who_look(open_page: Any, run_page: Path, tmp_path: Path) -> None:
    for scheme in ("light", "dark"):
        for width in (390, 1440):
            viewport = {"width": width, "height": 900}
            page = open_page(run_page, color_scheme=scheme, viewport=viewport)
            page.keyboard.press("l")
            picture = tmp_path / f"{scheme}-{width}.png"
            page.screenshot(path=picture, full_page=True)
            assert picture.stat().st_size > 20_000


def test_roles_and_names(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, [role]")]
          .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length))
          .filter((e) => !["none", "status"].includes(e.getAttribute("role")))
          .filter((e) => e.getAttribute("role") !== "group" || e.tagName !== "UL")
          .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    first = page.get_by_role("treeitem").first
    assert re.fullmatch(
        r"turn 1, completions #1 \+ #1, reward [\d.]+, goes on", first.get_attribute("aria-label")
    )
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    assert dialog.is_visible()
    assert "next joint action" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_single_letters_can_be_switched_off(open_page: Any, run_page: Path) -> None:
    page = open_page(run_page)
    page.locator("#help-open").click()
    page.get_by_label("Single-letter keys").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("n")
    assert page.locator("#reading h3").inner_text() == "Rollout 1, row 3"
