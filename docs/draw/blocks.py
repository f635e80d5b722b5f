"""The programs of a page: what stands in its fenced blocks, and in comments of HTML that hold one.

A page is one program: its `python` blocks run in order, in one scope. A block in a comment runs, too, and is not shown:
what a reader need not see, such as a file that a program reads. `sh` blocks are commands that run; `console` blocks are
commands that no test can run, for want of a network, a GPU or other hosts. `text` and blocks without a language are no
programs. A block whose first line is a comment with a path is that file, for the program. tests/docs holds the pages to
this.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
_FENCE = re.compile(
    r"^(?P<ticks>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=ticks)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)

_PATH = re.compile(r"(?:#|//) ([\w/]+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and the number of its first line."""

    language: str
    text: str
    line: int

    @property
    def path(self) -> str:
        """That of the file which it is; "": it does not say."""
        named = _PATH.match(self.text)
        return named[1] if named else ""


def pages() -> list[Path]:
    """Every page of the site and the README."""
    found = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
    return [ROOT / "README.md", *found]


def blocks(path: Path) -> list[Block]:
    """The blocks of a page, in order."""
    page = path.read_text(encoding="utf-8")
    return [
        Block(found["language"].strip(), found["text"], page[: found.start()].count("\n") + 2)
        for found in _FENCE.finditer(page)
    ]


def programs(path: Path) -> list[Block]:
    """The blocks in Python that are no files."""
    return [block for block in blocks(path) if block.language == "python" and not block.path]


def run(path: Path) -> tuple[dict[str, Any], str]:
    """What the program of a page leaves behind, and what it prints; an error names page and line.

    Blocks that say their paths are files, which are written below the working directory.
    """
    scope: dict[str, Any] = {"__name__": path.stem}
    printed = io.StringIO()
    for block in blocks(path):
        if block.path:
            file = Path(block.path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    with contextlib.redirect_stdout(printed):
        for block in programs(path):
            exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), scope)
    return scope, printed.getvalue()
