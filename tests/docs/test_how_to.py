"""Every page of docs/how_to adds what it tells to add, looks at it, and all is as before when it is taken away.

Files that a page shows are written below a folder of its own, which the packages of the same names then search, too.
"""

import contextlib
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

from docs.draw.blocks import DOCS, ROOT, blocks, programs, run
from ops.torch.export_reader import RULES
from taskflow.bridges.exporting import SYSTEMS
from taskflow.collective.algorithms import ALGORITHMS
from taskflow.machine import machinefile
from taskflow.schedule.orders import NAMED
from tests.hidden import skip_without
from tests.models.tiny import TINY
from tests.ops.cases import CASES

PAGES = sorted(set((DOCS / "how_to").glob("*.md")) - {DOCS / "how_to" / "index.md"})
TABLES = {
    "collective": ALGORITHMS,
    "export": SYSTEMS,
    "model": TINY,
    "schedule": NAMED,
    "torch_layer": RULES,
}


def files(page: Path) -> list[str]:
    """Paths of the files that it shows."""
    return [block.path for block in blocks(page) if block.path]


def everything() -> dict[str, list[str]]:
    """What stands in every table."""
    names = {kind: [*table] for kind, table in TABLES.items()}
    return names | {"operator": [c.name for c in CASES], "machine": machinefile.preset_names()}


def modules(page: Path) -> list[str]:
    """Names of the modules that it shows."""
    return [path[:-3].replace("/", ".") for path in files(page) if path.endswith(".py")]


def search_too(folder: Path, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages have the modules of the page as well, and presets its machine."""
    for name in modules(page):
        folder_name, _, leaf = name.rpartition(".")
        package = import_module(folder_name)
        there = folder / Path(*package.__name__.split("."))
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(there)])
        # What an import puts there goes when these are undone.
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setattr(package, leaf, None, raising=False)
        del sys.modules[name]
        delattr(package, leaf)
    presets = folder / machinefile.PRESETS.relative_to(ROOT)
    presets.mkdir(parents=True)
    for preset in machinefile.PRESETS.iterdir():
        (presets / preset.name).symlink_to(preset)
    monkeypatch.setattr(machinefile, "PRESETS", presets)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.slow if "torch" in page.stem else ())
        for page in PAGES
    ],
)  # to import torch takes seconds
def test_what_a_page_adds_is_there_and_can_be_taken_away(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in programs(page):
        skip_without(block.text)
    before, cases = everything(), len(CASES)
    with monkeypatch.context() as patched, contextlib.ExitStack() as tables:
        for table in TABLES.values():
            tables.enter_context(mock.patch.dict(table))
        search_too(tmp_path, page, patched)
        patched.chdir(tmp_path)
        run(page)
        grown = {kind for kind, names in everything().items() if names != before[kind]}
        del CASES[cases:]
    assert grown == ({page.stem} & {*before})  # a move is in no table: a search takes it
    assert everything() == before
    assert not {sys.modules.get(name) for name in modules(page)} - {None}


def test_files_to_touch_are_there_and_pages_are_told_of() -> None:
    assert len(PAGES) == 8
    index = (DOCS / "how_to" / "index.md").read_text()
    for page in PAGES:
        assert f"]({page.name})" in index
        table = [line for line in page.read_text().splitlines() if line.startswith("| `")]
        named = {
            path for line in table for path in re.findall(r"`([\w/]+\.\w+)`", line.split("|")[1])
        }
        assert len(named) > 1
        missing = {path for path in named if not (ROOT / path).exists()}
        assert missing <= {*files(page), "docs/jobs/nanotron.md"}
