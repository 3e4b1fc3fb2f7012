"""How the page unpacks its data, what it cannot reach, and runs that are not whole."""

import base64
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from viewer_pages import (
    DATA,
    Opened,
    page_of,
)
from viewer_runs import HOSTILE, drawn_rollout, one_turn, write_run

from motet.algos import Rollout
from motet.algos.viewer import view_rollout, write_view


def test_a_browser_that_cannot_unpack_is_helped(
    open_page: Any, run_page: Path, tmp_path: Path
) -> None:
    hostile = page_of(one_turn(list(HOSTILE.values())), tmp_path / "p.html")
    noise = "".join(chr(0x4E00 + (k * 7919) % 20000) for k in range(40_000))
    packed_badly = page_of(one_turn([noise, noise[::-1]]), tmp_path / "noise.html")
    for path in (run_page, hostile, packed_badly):
        pages = [open_page(path), open_page(path, before="delete window.DecompressionStream;")]
        pages[1].evaluate("if ('DecompressionStream' in window) throw new Error('still there')")
        texts = [page.locator("main").inner_text() for page in pages]
        assert texts[0] == texts[1]


@pytest.mark.parametrize(("level", "strategy"), [(0, zlib.Z_DEFAULT_STRATEGY), (9, zlib.Z_FIXED)])
def test_every_kind_of_block_is_unpacked(
    open_page: Any, run_page: Path, tmp_path: Path, level: int, strategy: int
) -> None:
    """Stored blocks and those with fixed codes, which zlib would not choose for a run."""

    def packed_anew(found: re.Match[str]) -> str:
        packer = zlib.compressobj(level=level, strategy=strategy)
        data = zlib.decompress(base64.b64decode(found.group(2)))
        letters = base64.b64encode(packer.compress(data) + packer.flush()).decode()
        return f"{found.group(1)}{letters}{found.group(3)}"

    path = tmp_path / "p.html"
    path.write_text(DATA.sub(packed_anew, run_page.read_text(encoding="utf-8")), encoding="utf-8")
    helped = open_page(path, before="delete window.DecompressionStream;")
    assert helped.locator("main").inner_text() == open_page(run_page).locator("main").inner_text()


def test_the_page_reaches_nothing(browser: Any, run_page: Path) -> None:
    """Its policy stops what a hole in it would let through: other scripts, and every connection."""
    opened = Opened(browser, run_page)
    page = opened.go()
    page.evaluate(
        """() => {
          window.stopped = [];
          addEventListener("securitypolicyviolation", (e) => stopped.push(e.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.pwned = 1";
          document.body.append(script);
          const image = document.createElement("img");
          image.src = "https://example.org/pixel.png";
          document.body.append(image);
          return fetch("https://example.org/").then(() => {}, () => {});
        }"""
    )
    page.wait_for_timeout(500)
    assert page.evaluate("window.pwned === undefined")
    assert set(page.evaluate("window.stopped")) == {"script-src-elem", "img-src", "connect-src"}
    opened.context.close()


def test_a_notebook_shows_the_page_in_a_frame(browser: Any, real_team: Rollout) -> None:
    page = browser.new_page(offline=True)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_content(f"<p>above</p>{view_rollout(real_team)._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(timeout=60_000)
    assert frame.locator("#reading h3").inner_text() == "Rollout 1, row 3"
    assert errors == []
    page.close()


def test_a_run_with_nothing_in_it_says_so(open_page: Any, tmp_path: Path) -> None:
    page = open_page(write_view(tmp_path))
    assert "There is no metrics.jsonl" in page.locator("#notices").inner_text()
    assert page.locator("#loading").inner_text() == "No rollouts were saved yet."
    assert not page.locator("#curves").is_visible()
    for key in "njkhlxgbr":
        page.keyboard.press(key)


def test_a_cut_rollout_says_what_is_missing(open_page: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: drawn_rollout(0, num_generations=2)})
    path = run / "rollouts" / "000001.jsonl"
    path.write_text(path.read_text()[:-200])
    page = open_page(write_view(run))
    assert "rollouts/000001.jsonl ends early" in page.locator("#notices").inner_text()
    page.keyboard.press("j")
    sentence = page.locator(".fate-sentence").inner_text()
    assert sentence == "It went on, and the file ends before its next turn."
    assert "unknown" in page.locator("#reading .numbers").inner_text()
