"""The links of the pages: those within the repository are checked, those that lead out are listed in external.md.

`python docs/links.py` writes that list anew; `--try` asks each address once, and says which do not answer. Takes the
Markdown of the pages; what stands in code is no link. An anchor is a heading in small letters, as GitHub and MyST name
it.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from collections import defaultdict
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
EXTERNAL = DOCS / "external.md"
_FENCE = re.compile(r"^(```+).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)\)")


def pages() -> list[Path]:
    """Every page of the site, the README and the texts beside it."""
    found = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *found]


def prose(path: Path) -> str:
    """The text of a page without its blocks of code and what stands in backticks, but with the text of its links."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]*`", "code", text)


def links(path: Path) -> list[str]:
    """The targets of all links and pictures of a page."""
    return _LINK.findall(prose(path))


def anchors(path: Path) -> set[str]:
    """What a link may name behind `#`."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead(path: Path) -> list[str]:
    """Links of a page within the repository that lead nowhere."""
    found = []
    for link in links(path):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def external() -> dict[str, list[str]]:
    """Address -> the pages that link to it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in pages():
        if path != EXTERNAL:
            for link in dict.fromkeys(links(path)):
                if "://" in link:
                    found[link].append(path.relative_to(ROOT).as_posix())
    return dict(sorted(found.items()))


def listed() -> str:
    """external.md as it should be."""
    head = EXTERNAL.read_text(encoding="utf-8").partition("|---|---|\n")
    return "".join(head[:2]) + "".join(
        f"| <{link}> | {', '.join(on)} |\n" for link, on in external().items()
    )


def answers(link: str) -> bool:
    """Whether an address gives anything but an error."""
    request = urllib.request.Request(link, headers={"User-Agent": "Mozilla/5.0"}, method="GET")
    try:
        with urllib.request.urlopen(request, timeout=20) as found:
            return bool(found.status < 400)
    except OSError:
        return False


if __name__ == "__main__":
    EXTERNAL.write_text(listed(), encoding="utf-8")
    if "--try" in sys.argv:
        lost = [link for link in external() if not answers(link)]
        sys.stdout.write("".join(f"no answer: {link}\n" for link in lost) or "all answer\n")
        sys.exit(bool(lost))
