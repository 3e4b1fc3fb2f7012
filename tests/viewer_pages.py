"""A page in a browser that notes all that goes wrong in it, and what tests ask such a page."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

from motet.algos import Rollout
from motet.algos.viewer import view_rollout

DATA = re.compile(
    r'(<script type="application/octet-stream" id="data">)(.*?)(</script>)', re.DOTALL
)


class Opened:
    """A page, and all that went wrong in it."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.problems: list[str] = []
        self.url = path.as_uri()
        self.context = browser.new_context(
            **{"viewport": {"width": 1440, "height": 1000}, "offline": True} | options
        )
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._requested)

    def _requested(self, request: Any) -> None:
        if request.url != self.url:
            self.problems.append(f"a request to {request.url}")

    def go(self) -> Any:
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)
        return self.page


def page_of(rollout: Rollout | list[Rollout], path: Path) -> Path:
    path.write_text(view_rollout(rollout), encoding="utf-8")
    return path


def names_in_list(page: Any) -> list[str]:
    return page.locator("#list .option-name").all_inner_texts()


def way_here(page: Any) -> list[str]:
    return page.locator("#reading .path li").all_inner_texts()


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.getAttribute('role')")


def background(page: Any) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backs = (element) => {
    const list = [];
    for (let at = element; at; at = at.parentElement) {
      list.unshift(getComputedStyle(at).backgroundColor);
    }
    return list;
  };
  const contrast = (element) => {
    const back = backs(element);
    const [a, b] = [light(over(back)), light(over([...back, getComputedStyle(element).color]))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const worst = {};
  for (const element of document.querySelectorAll("main *, header *")) {
    const text = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const left = element.closest("svg, :disabled, select, .visually-hidden");
    if (!text || !element.offsetParent || left) continue;
    const name = element.className || element.tagName;
    worst[name] = Math.min(worst[name] ?? 99, contrast(element));
  }
  return worst;
}"""


LONGEST_FREEZE = """() => {
  window.longest = 0;
  let last = performance.now();
  const watch = (now) => {
    window.longest = Math.max(window.longest, now - last);
    last = now;
    requestAnimationFrame(watch);
  };
  requestAnimationFrame(watch);
}"""


def read_page(page: str) -> Any:
    """What the script of a page reads, as the browser does."""
    found = DATA.search(page)
    assert found is not None
    return json.loads(zlib.decompress(base64.b64decode(found.group(2))))
