"""The page: data, scripts and styles in one HTML file.

Its policy (Content-Security-Policy) forbids the browser to load anything from anywhere. The data is JSON in a script
element that runs nothing; `<` is escaped in it, so that no name of the user's ends that element.
"""

from __future__ import annotations

import html
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from taskflow.core.files import replace_file

SCRIPTS = (
    *("vendor/uPlot.iife.min.js", "base.js", "charts.js", "lanes.js", "timeline.js", "memory.js"),
    *("machine.js", "model.js", "choices.js", "main.js"),
)
STYLES = "vendor/uPlot.min.css", "page.css"
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def save_page(path: str | Path, data: dict[str, Any]) -> int:
    """Write the page of `report_data`, atomically; gives its bytes."""
    text = page_text(data)
    replace_file(path, text, sys.maxsize)
    return len(text.encode())


def page_text(data: dict[str, Any]) -> str:
    """The whole file."""
    text = _assets("page.html")
    parts = {
        "POLICY": html.escape(POLICY, quote=True),
        "TITLE": html.escape(data["title"]),
        "STYLES": _assets(*STYLES),
        "DATA": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "SCRIPTS": _assets(*SCRIPTS),
    }
    for name, value in parts.items():
        head, _, tail = text.partition(f"<!--{name}-->")
        text = head + value + tail
    return text


def _assets(*names: str) -> str:
    folder = files("taskflow.report.page") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
