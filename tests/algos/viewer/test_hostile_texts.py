"""Texts that try to run, to hide, to turn others around or to freeze the page."""

from pathlib import Path
from typing import Any

import pytest
from viewer_pages import LONGEST_FREEZE, page_of
from viewer_runs import HOSTILE, by_letters, one_turn, write_run

from motet.algos import Rollout
from motet.algos.viewer import write_view

expect = pytest.importorskip("playwright.sync_api", reason="no playwright").expect

LONG = ("All work and no play makes a long text. " * 2500)[:100_000]
ARABIC = "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 " * 12


def test_hostile_texts_are_only_texts(open_page: Any, tmp_path: Path) -> None:
    rollout = one_turn(list(HOSTILE.values()), prompt=HOSTILE["script"])
    page = open_page(page_of(rollout, tmp_path / "p.html"))
    page.keyboard.press("g")
    page.locator("#search").fill("<script>")
    expect(page.locator("#tree .is-hit").first).to_be_visible()
    assert page.evaluate("window.pwned === undefined")
    assert page.locator("script, img, svg").count() == 1  # the page's own script
    assert page.locator("#reading .prompts .prose").inner_text() == HOSTILE["script"]
    texts = (
        page.locator("#reading .column")
        .nth(1)
        .locator(".prose")
        .evaluate_all("all => all.map((e) => e.textContent)")
    )
    shown = dict(zip(HOSTILE, texts, strict=True))
    for name in ("script", "image", "comment", "template", "right-to-left", "emoji", "quotes"):
        assert shown[name] == HOSTILE[name]
    assert shown["overrides"] == "safe RLOgnp.exePDF and LRIisolatedPDI RLMLRMALM end"
    assert shown["controls"] == ("bell␇ nul␀ escape␛[31m backspace␈ return␍\n tab\t c1U+0085 del␡")
    assert shown["invisible"] == "zeroZWSPwidthBOM softSHYhyphen tagsU+E0041U+E0042"
    assert shown["separators"] == "lineLSEPparagraphPSEPend"
    assert shown["surrogates"] == "half U+D83D other U+DC00 end"
    assert shown["empty"] == "empty"
    assert shown["spaces"] == "12 characters of white space"


def test_hostile_names_are_only_names(open_page: Any, tmp_path: Path) -> None:
    """Of agents, metrics, settings and folders."""
    name = HOSTILE["image"]
    node = one_turn(["a"]).levels[0][0]
    own = {name: node.completions["agent_0"], "\u202eb": node.completions["agent_1"]}
    rollout = one_turn(
        ["a"],
        completions=own,
        observations=dict.fromkeys(own, "x"),
        rewards={name: (0.5,), "\u202eb": (1.0,)},
        drafts={name: own[name]},
    )
    run = write_run(tmp_path / "<b>run", {1: Rollout(tuple(own), rollout.levels)})
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 500, "<img src=x onerror=window.pwned=1>": 1}\n')
    (run / "run.yaml").write_text(f"env_id: '{HOSTILE['comment']}'\nalgo: <i>magrpo</i>\n")
    page = open_page(write_view(run))
    page.locator(".chooser select").first.select_option("one:<img src=x onerror=window.pwned=1>")
    assert page.evaluate("window.pwned === undefined")
    assert page.get_by_role("heading", level=1).inner_text() == HOSTILE["comment"]
    assert "<i>magrpo</i>" in page.locator("#facts").inner_text()
    assert page.locator("#reading .agent").all_inner_texts()[-2:] == [name, "RLOb"]


def test_right_to_left_text_keeps_to_itself(open_page: Any, tmp_path: Path) -> None:
    fields = by_letters(ARABIC, lambda i: (i % 9 - 4) / 4)
    page = open_page(page_of(one_turn([ARABIC], **fields), tmp_path / "p.html"))
    body = page.locator("#reading .card .prose").first
    assert body.evaluate("(e) => e.textContent") == ARABIC + "end"  # the mark of its last token
    box = body.bounding_box()
    first = body.locator(".token").first.bounding_box()
    assert first["x"] > box["x"] + box["width"] / 2  # begins at the right
    label = page.locator("#reading .card-title").first.bounding_box()
    assert label["x"] < box["x"] + box["width"] / 2  # what is around it begins at the left


def test_a_hundred_thousand_characters(open_page: Any, tmp_path: Path) -> None:
    fields = by_letters(LONG, lambda i: (i % 21 - 10) / 10)
    rollout = one_turn([LONG], prompt="y" * 100_000, **fields)
    page = open_page(page_of(rollout, tmp_path / "p.html"))
    body = page.locator("#reading .card .prose").first
    assert body.evaluate("(e) => e.textContent.length") < 4000
    page.evaluate(LONGEST_FREEZE)
    page.locator("#reading .card").first.get_by_role(
        "button", name="Show all 100,000 characters"
    ).click()
    page.locator("#reading .card .prose[data-whole]").wait_for(timeout=60_000)
    assert page.evaluate("window.longest") < 2000  # milliseconds without an answer
    assert body.evaluate("(e) => e.textContent") == LONG + "end"
    assert body.locator(".token").count() == 25_001
    page.keyboard.press("ArrowRight")
    assert "token 1 of 25001" in page.locator("#reading .readout").first.inner_text()
    page.locator("#reading .prompts").get_by_role("button").click()
    page.locator("#reading .prompts .prose[data-whole]").wait_for(timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
