"""A real browser for tests of pages: Debian's or Google's Chromium, driven by Playwright from PyPI.

Where one of them is not there, tests skip and say which. `.ci/run` installs both where it may.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = "chromium", "chromium-browser", "google-chrome"
LONGEST_MILLISECONDS = 10_000


@contextmanager
def started() -> Iterator[Any]:
    """The browser; the sandbox of Chromium does not start for root, as CI is."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: make browser"
    )
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class OpenPage:
    """A page in a window of its own, with what it said and asked for while it was open.

    Attributes:
        page: Playwright's.
        messages: console errors and warnings, and exceptions that nobody caught.
        requests: addresses that were asked for, the file itself left out.
    """

    def __init__(self, browser: Any, path: Path, dark: bool = False, width: int = 1300) -> None:
        scheme = "dark" if dark else "light"
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(LONGEST_MILLISECONDS)
        self.messages: list[str] = []
        self.requests: list[str] = []
        address = path.resolve().as_uri()
        self.page.on(
            "console",
            lambda m: self.messages.append(m.text) if m.type in ("error", "warning") else None,
        )
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on(
            "request",
            lambda r: self.requests.append(r.url) if r.url.partition("#")[0] != address else None,
        )
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.page.evaluate(script)

    def text(self, selector: str) -> str:
        """What an element says."""
        found: str = self.page.locator(selector).inner_text()
        return found

    def close(self) -> None:
        """Close it, and refuse a page that complained or asked for something."""
        self.page.close()
        assert self.messages == [], self.messages
        assert [url for url in self.requests if not url.startswith("data:")] == []
