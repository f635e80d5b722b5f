"""The layers of design.md, held to the imports that the sources really have.

Read with `ast`, so an import inside a function counts as well. One that is only for the type checker never runs:
it may close a cycle within a layer, but it points up only where LOOKS_UP says why.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A folder, or a module beside the folders, belongs to the layer of its line.
LAYERS = (
    "core",
    "backend",
    "machine graph comm",
    "strategy",
    "tasks",
    "collective",
    "cost",
    "schedule lowering simulation",
    "execute",
    "searching",
    "train checkpoint report",
    "cli testing",
)
LAYER_OF = {name: layer for layer, names in enumerate(LAYERS) for name in names.split()}

# Importer, imported (for types only): why.
LOOKS_UP = {
    ("taskflow.graph.region", "taskflow.graph.graph"): "x.graph.launch(...) is how a custom operator is written",
}

# Who may import what; the first line that fits decides.
HOMES = {
    "cupy": "taskflow.backend.cuda",
    "cuda": "taskflow.backend.cuda",
    "cupyx": "taskflow.backend.cuda",
    "cudnn": "taskflow.backend.cuda",
    "mpi4py": "taskflow.comm.transport",
}

LIGHT = {"taskflow", "numpy", "rich"}  # what `import taskflow` imports beside the standard library


@dataclass(frozen=True)
class Import:
    importer: str
    name: str
    line: int
    is_for_types: bool

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}: imports {self.name}"


def sources(*folders: str) -> dict[str, Path]:
    """Dotted name -> file, for every module in these folders."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports_of(module: str, path: Path) -> Iterator[Import]:
    """Each imported name in full: `from .pattern import bind` gives `taskflow.graph.pattern.bind`."""
    tree = parse(path)
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    for_types = {child for guard in guards for statement in guard.body for child in ast.walk(statement)}
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            names = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (Import(module, name, node.lineno, node in for_types) for name in names)


def imports_in(*folders: str) -> list[Import]:
    return [each for module, path in sources(*folders).items() for each in imports_of(module, path)]


def refuse(violations: list[str]) -> None:
    assert not violations, "\n".join(violations)


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def owner(name: str, modules: dict[str, Path]) -> str:
    """The module that an imported name comes from: `taskflow.graph.pattern` for `taskflow.graph.pattern.bind`."""
    while name not in modules and "." in name:
        name = name.rpartition(".")[0]
    return name


def layer(module: str) -> int:
    """The package itself, which re-exports everything, lies above every layer."""
    return len(LAYERS) if module in ("taskflow", "taskflow.__main__") else LAYER_OF[module.split(".")[1]]


def test_every_module_has_a_layer():
    inner = [module for module in sources("taskflow") if module not in ("taskflow", "taskflow.__main__")]
    refuse([f"{module} is in no line of LAYERS" for module in inner if module.split(".")[1] not in LAYER_OF])


def points_up(each: Import, modules: dict[str, Path]) -> bool:
    imported = owner(each.name, modules)
    is_excused = each.is_for_types and (each.importer, imported) in LOOKS_UP
    return layer(imported) > layer(each.importer) and not is_excused


def test_imports_point_down():
    modules = sources("taskflow")
    inner = [each for each in imports_in("taskflow") if is_within(each.name, "taskflow")]
    refuse([str(each) for each in inner if points_up(each, modules)])


def test_no_imports_go_in_circles():
    modules = sources("taskflow")
    below: dict[str, set[str]] = {module: set() for module in modules}
    for each in imports_in("taskflow"):
        if is_within(each.name, "taskflow") and not each.is_for_types:
            below[each.importer].add(owner(each.name, modules))
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_taskflow_knows_no_client():
    clients = ("ops", "examples", "benchmarks", "tests")
    refuse([str(each) for each in imports_in("taskflow") if each.name.split(".")[0] in clients])


def uses_of_taskflow(module: str, path: Path) -> Iterator[tuple[str, str]]:
    """(place, name) for every `from taskflow import name`, `import taskflow.name` and `taskflow.name` of a client."""
    tree = parse(path)
    for each in imports_of(module, path):
        if is_within(each.name, "taskflow") and each.name != "taskflow":
            yield f"{module}, line {each.line}", each.name.removeprefix("taskflow.")
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    bound = {alias.asname or "taskflow" for alias in aliases if is_within(alias.name, "taskflow")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            yield f"{module}, line {node.lineno}", node.attr


def test_clients_use_only_public_names():
    import taskflow

    public = {*taskflow.__all__, "testing"}
    uses = [use for module, path in sources("ops", "examples").items() for use in uses_of_taskflow(module, path)]
    refuse([f"{place}: taskflow.{name} is not public" for place, name in uses if name.split(".")[0] not in public])


def is_at_home(each: Import) -> bool:
    home = next((home for library, home in HOMES.items() if is_within(each.name, library)), None)
    return home is None or is_within(each.importer, home)


def test_each_accelerator_is_imported_in_one_place():
    refuse([str(each) for each in imports_in("taskflow", "ops", "examples") if not is_at_home(each)])


def test_import_taskflow_is_light():
    script = "import sys; before = set(sys.modules); import taskflow; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    packages = {name.split(".")[0] for name in run.stdout.split()} - sys.stdlib_module_names
    assert packages == LIGHT, "import taskflow imports more, or less"
