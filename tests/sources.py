"""What the sources say of themselves, read with `ast`: modules, imports, arguments. Nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("taskflow", "ops")


@dataclass(frozen=True)
class Import:
    """One imported name in full: `from .pattern import bind` gives `taskflow.graph.pattern.bind`."""

    importer: str
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}: imports {self.name}"


@cache
def sources(*folders: str) -> dict[str, Path]:
    """Dotted name -> file, for every module in these folders."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports_of(module: str, path: Path) -> Iterator[Import]:
    """All imports of a module, those inside functions and those for the type checker included."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            names = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (Import(module, name, node.lineno) for name in names)


@cache
def imports_in(*folders: str) -> list[Import]:
    """All imports of all modules in these folders."""
    return [each for module, path in sources(*folders).items() for each in imports_of(module, path)]


def is_within(name: str, package: str) -> bool:
    """Whether a dotted name is a package's, or the package."""
    return name == package or name.startswith(package + ".")


def owner(name: str, modules: dict[str, Path]) -> str:
    """The module that an imported name comes from: `taskflow.graph.pattern` for `taskflow.graph.pattern.bind`."""
    while name not in modules and "." in name:
        name = name.rpartition(".")[0]
    return name


def refuse(violations: list[str]) -> None:
    """Fail with one violation a line, if there is any."""
    assert not violations, "\n".join(violations)
