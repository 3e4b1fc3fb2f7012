"""One HTML file from data: everything inlined, nothing loaded, and no data in the markup.

The data travels as deflated JSON in base64, whose alphabet has nothing that HTML could read as
markup; the script puts texts into the page as text alone. A policy in the page forbids every other
script and every connection.
"""

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

# in this order one script: later files use names of earlier ones
SCRIPTS = (
    "inflate.js",
    "dom.js",
    "texts.js",
    "completions.js",
    "series.js",
    "chart.js",
    "rollout_list.js",
    "branch_tree.js",
    "reading.js",
    "shortcuts.js",
    "view.js",
)
LINE = 4096  # of base64, so that editors can open the file
_SURROGATE = re.compile("[\ud800-\udfff]")


class Page(str):
    """The HTML of a page. It is a string, and a notebook shows it as a page of its own."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return a frame with the page: its styles and scripts stay inside."""
        return (
            '<iframe sandbox="allow-scripts" title="Rollout" '
            'style="width:100%;height:48rem;border:0" '
            f'srcdoc="{html.escape(self)}"></iframe>'
        )


def make_page(data: Mapping[str, Any]) -> Page:
    """Return the page that shows what `page_data` returned."""
    style = _asset("view.css")
    script = '"use strict";\n{\n' + "\n".join(map(_asset, SCRIPTS)) + "\n}\n"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    template = Template(_asset("view.html"))
    return Page(template.substitute(policy=policy, style=style, script=script, data=encoded(data)))


def encoded(data: Mapping[str, Any]) -> str:
    """Return data as JSON, deflated, in base64.

    Halves of surrogate pairs, which Python's texts can hold and UTF-8 cannot, are escaped in JSON.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = _SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", text)
    letters = base64.b64encode(zlib.compress(text.encode("utf-8"), 9)).decode("ascii")
    return "\n".join(letters[start : start + LINE] for start in range(0, len(letters), LINE))


def _asset(name: str) -> str:
    return (files("motet.algos.viewer") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
