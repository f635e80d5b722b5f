"""The layers of docs/architecture.md, held to the imports that the sources really have.

Read with `ast`, so an import inside a function, or one that is only for the type checker, counts as well.
"""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import taskflow
from tests.sources import (
    PACKAGES,
    ROOT,
    Import,
    imports_in,
    imports_of,
    is_within,
    owner,
    parse,
    refuse,
    sources,
)


def read_layers(package: str) -> dict[str, int]:
    """Folder, or module beside the folders -> its layer: the rows `| 3 | machine graph comm | ...` of the table."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition(f"## Layers of {package}")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([a-z ]+) \|", section, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1)), (
        "layers are numbered from 1"
    )
    return {name: int(number) for number, names in rows for name in names.split()}


LAYER_OF = {package: read_layers(package) for package in PACKAGES}

# Who may import what; the first line that fits decides.
HOMES = {
    "cupy": "taskflow.backend.cuda",
    "cuda": "taskflow.backend.cuda",
    "cupyx": "taskflow.backend.cuda",
    "cudnn": "taskflow.backend.cuda",
    "mpi4py": "taskflow.comm.transport",
}

LIGHT = {
    "taskflow",
    "numpy",
    "msgspec",
}  # what `import taskflow` imports beside the standard library


def layer(module: str) -> int:
    """The layer of a module; the package itself, which re-exports everything, lies above all unless it is named."""
    package, _, rest = module.partition(".")
    top = rest.split(".")[0].replace("__main__", "") or package
    return (
        LAYER_OF[package].get(top, 1 + max(LAYER_OF[package].values()))
        if top == package
        else LAYER_OF[package][top]
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_a_layer(package):
    tops = {module.split(".")[1] for module in sources(package) if "." in module} - {"__main__"}
    assert tops == {*LAYER_OF[package]} - {package}, (
        "the table of docs/architecture.md names others than there are"
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_down(package):
    modules = sources(package)
    inner = [each for each in imports_in(package) if is_within(each.name, package)]
    assert len(inner) > 100
    refuse([str(each) for each in inner if layer(owner(each.name, modules)) > layer(each.importer)])


def test_taskflow_knows_no_client():
    clients = ("ops", "examples", "benchmarks", "tests")
    refuse([str(each) for each in imports_in("taskflow") if each.name.split(".")[0] in clients])


def uses_of_taskflow(module: str, path: Path) -> Iterator[tuple[str, str]]:
    """(place, name) for every `from taskflow import name`, `import taskflow.name` and `taskflow.name` of a client."""
    tree = parse(path)
    for each in imports_of(module, path):
        if is_within(each.name, "taskflow") and each.name != "taskflow":
            yield f"{module}, line {each.line}", each.name.removeprefix("taskflow.")
    aliases = [
        alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    ]
    bound = {alias.asname or "taskflow" for alias in aliases if is_within(alias.name, "taskflow")}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in bound
        ):
            yield f"{module}, line {node.lineno}", node.attr


def test_clients_use_only_public_names():
    import taskflow

    public = {*taskflow.__all__, "testing"}
    uses = [
        use
        for module, path in sources("ops", "examples").items()
        for use in uses_of_taskflow(module, path)
    ]
    refuse(
        [
            f"{place}: taskflow.{name} is not public"
            for place, name in uses
            if name.split(".")[0] not in public
        ]
    )


def is_at_home(each: Import) -> bool:
    home = next((home for library, home in HOMES.items() if is_within(each.name, library)), None)
    return home is None or is_within(each.importer, home)


def test_each_accelerator_is_imported_in_one_place():
    refuse(
        [str(each) for each in imports_in("taskflow", "ops", "examples") if not is_at_home(each)]
    )


def test_import_taskflow_is_light():
    """It imports what is asked of it, and all of it nothing but the light."""
    script = "import sys; before = set(sys.modules); import taskflow, ops; print(*set(sys.modules) - before)"
    every = "; [getattr(p, n) for p in (taskflow, ops) for n in p.__all__]; print(*set(sys.modules) - before)"
    run = subprocess.run(
        [sys.executable, "-c", script + every], cwd=ROOT, capture_output=True, text=True, check=True
    )
    first, whole = (
        {name.split(".")[0] for name in line.split()} - sys.stdlib_module_names
        for line in run.stdout.splitlines()
    )
    assert first == {"taskflow", "ops"}, "import taskflow imports more, or less"
    whole.discard("typing_extensions")  # msgspec asks for it where it happens to be
    assert whole == LIGHT | {"ops"}, "its public names import more, or less"


def test_a_public_module_is_there_before_anything_else_is_asked_for():
    """Each in a process of its own; names that are no modules are imported with what defines them."""
    modules = [n for n in taskflow.__all__ if isinstance(getattr(taskflow, n), ModuleType)]
    assert {"callbacks", "rates", "schedule"} <= {*modules}
    children = "".join(
        f"child = os.fork(); child or (taskflow.{name}, os._exit(0)); assert not os.waitpid(child, 0)[1]; "
        for name in modules
    )
    command = [sys.executable, "-c", f"import os, taskflow; {children}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not run.returncode, run.stderr


@pytest.mark.parametrize("package", ["taskflow", "ops"])
def test_a_package_has_its_names_and_no_other(package):
    module = importlib.import_module(package)
    assert {*module.__all__} <= {*dir(module)}
    assert all(getattr(module, name) is getattr(module, name) for name in dir(module))
    with pytest.raises(AttributeError, match=f"^module '{package}' has no attribute 'nothing'$"):
        module.nothing  # noqa: B018 (it raises)
