"""What is optional, and how to hide it: modules by an import hook, programs by a PATH without them."""

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

# Beside what `import taskflow, ops` needs: of extras, and what tests compare with or look with.
MODULES = (
    *("cuda", "cudnn", "cupy", "ml_dtypes", "perfetto", "playwright", "sklearn"),
    *("tensorboard", "torch", "torchvision", "transformers"),
)
PROGRAMS = (
    "bash",
    "chromium",
    "chromium-browser",
    "fish",
    "g++",
    "gcc",
    "google-chrome",
    "rsh",
    "ssh",
)


class Without(MetaPathFinder):
    """A finder that finds what another one does, but for hidden packages: they look as if never installed."""

    def __init__(self, finder: MetaPathFinder, hidden: frozenset[str]) -> None:
        self._finder, self._hidden = finder, hidden

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for a hidden package and all that is in it."""
        return (
            None
            if fullname.partition(".")[0] in self._hidden
            else self._finder.find_spec(fullname, path, target)
        )

    def __getattr__(self, name: str) -> object:
        return getattr(self._finder, name)  # `find_distributions`, of importlib.metadata


def hide(*modules: str) -> None:
    """Let this process find no module of these names."""
    assert not [name for name in modules if name in sys.modules]
    sys.meta_path[:] = [Without(finder, frozenset(modules)) for finder in sys.meta_path]


def variables_without(folder: Path, *modules: str) -> dict[str, str]:
    """Variables of a process that finds no module of these names, nor do those that it starts."""
    start = folder / "sitecustomize.py"  # Python runs it first
    start.write_text(f"import runpy\nrunpy.run_path({__file__!r})['hide'](*{modules!r})\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parents[1])])}


def path_without(folder: Path, *programs: str) -> str:
    """A PATH of one folder, which links to every program of this process's PATH but to those."""
    for place in map(Path, os.get_exec_path()):
        for program in place.iterdir() if place.is_dir() else ():
            if program.name not in programs and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def imported(program: ast.AST) -> Iterator[str]:
    """The modules that a program imports, by their full names."""
    for node in ast.walk(program):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def skip_without(program: str) -> None:
    """Skip a test, by name, if the text of a program imports an optional module that is not here."""
    import pytest  # not by each process that hides something

    for name in imported(ast.parse(program)):
        if (package := name.partition(".")[0]) in MODULES:
            pytest.importorskip(name, reason=f"{package} is not installed")
