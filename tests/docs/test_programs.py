"""Every program of every page runs, as it stands there, and the timelines of a page are those of its program."""

import argparse
import re
import shlex
import warnings
from pathlib import Path

import pytest

from docs.draw.blocks import DOCS, ROOT, blocks, pages, programs, run
from docs.draw.pages import TIMELINES, timelines_of
from taskflow.cli import main
from tests.hidden import skip_without

LANGUAGES = {"python", "sh", "console", "text", "", "{eval-rst}", "{toctree}", "{family} *"}
LANGUAGES |= {"{literalinclude} *.py"}  # a program with a test of its own
LANGUAGES |= {"cuda", "toml"}  # files that programs read
# With tests of their own: tests/test_readme.py and tests/docs/test_how_to.py.
ELSEWHERE = {ROOT / "README.md", *(DOCS / "how_to").glob("*.md")}
PAGES = [page for page in pages() if programs(page) and page not in ELSEWHERE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
@pytest.mark.slow
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in programs(page):
        skip_without(block.text)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch")
        scope, _ = run(page)
    drawn = dict(timelines_of(page, scope))
    assert drawn.keys() == {name for name, (path, _, _) in TIMELINES.items() if DOCS / path == page}
    for name, text in drawn.items():
        assert (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == text, (
            f"run `make docs`: {name}"
        )


def test_every_block_is_of_a_kind_that_is_run_or_is_no_program() -> None:
    found = {re.sub(r"\} \w+", "} *", block.language) for page in pages() for block in blocks(page)}
    assert found <= LANGUAGES, found - LANGUAGES
    assert len(PAGES) >= 18


def commands(language: str) -> list[tuple[str, str]]:
    """Page and line of every command in blocks of that language; what follows `#` is a comment."""
    return [
        (page.relative_to(ROOT).as_posix(), line)
        for page in pages()
        for block in blocks(page)
        if block.language == language
        for line in block.text.splitlines()
        if shlex.split(line, comments=True)
    ]


def test_commands_that_run_stand_in_pages_with_a_test_of_their_own() -> None:
    """Of the README (tests/test_readme.py) and of jobs (tests/bridges/test_pages.py)."""
    jobs = {path.relative_to(ROOT).as_posix() for path in (DOCS / "jobs").glob("*.md")}
    assert {page for page, _ in commands("sh")} == {"README.md"} | jobs


class Parsed(Exception):
    """The command line was read without an error."""


@pytest.mark.parametrize(("page", "line"), commands("console"))
def test_a_command_that_no_test_can_run_is_one(
    page: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For want of a network, hosts or a GPU; but its options and files are there."""
    program, *arguments = shlex.split(line, comments=True)
    if program == "mpirun":
        program, *arguments = arguments[arguments.index("python") :]
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(arguments) <= set(targets)
    elif program == "python":
        if arguments[0] != "-m":
            assert (ROOT / arguments[0]).is_file()
    elif program.startswith("benchmarks/"):
        assert (ROOT / program).is_file()
    else:
        parse = argparse.ArgumentParser.parse_args

        def parse_alone(self: argparse.ArgumentParser, given: list[str]) -> None:
            parse(self, given)
            raise Parsed

        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_alone)
        assert program == "taskflow"
        with pytest.raises(Parsed):
            main(arguments)
