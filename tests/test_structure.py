"""The structure of both packages, measured and held to its limits: `pytest -s tests/test_structure.py` prints it.

The limits are those of CONTRIBUTING.md. What the layers are is in `test_layers`.
"""

import ast
import importlib
import statistics
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.sources import PACKAGES, ROOT, imports_in, is_within, owner, parse, refuse, sources

ENTRIES = 21  # folders and modules at the top of a package
NO_ENTRIES = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
FILE_LINES, MEDIAN_LINES = 500, 180
PARAMETERS = 12  # of a function; `self` and `cls` are not counted
ANY_SHARE = 0.08  # of the arguments
GPU_ONLY = "taskflow.backend.cuda"  # modules that import cupy


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def arguments(function: ast.FunctionDef) -> list[ast.arg]:
    """Named, starred and keyword arguments, but `self` and `cls`."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [each for each in named if each is not None and each.arg not in ("self", "cls")]


@pytest.mark.parametrize("package", PACKAGES)
def test_few_entries_at_the_top(package):
    found = {path.name for path in (ROOT / package).iterdir()} - NO_ENTRIES
    print(f"{package}: {len(found)} entries at the top")
    assert 1 < len(found) <= ENTRIES, sorted(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_files_are_short(package):
    lengths = {str(path): len(lines_of(path)) for path in sources(package).values()}
    median = statistics.median(lengths.values())
    print(
        f"{package}: {len(lengths)} files, median {median:.0f} lines, longest {max(lengths.values())}"
    )
    assert median <= MEDIAN_LINES
    refuse([f"{path}: {length} lines" for path, length in lengths.items() if length > FILE_LINES])


def test_no_imports_go_in_circles():
    modules = sources(*PACKAGES)
    below: dict[str, set[str]] = {module: set() for module in modules}
    for each in imports_in(*PACKAGES):
        target = owner(each.name, modules)
        if target in modules and target != each.importer:
            below[each.importer].add(target)
    print(f"{len(modules)} modules, {sum(map(len, below.values()))} imports among them")
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_hidden(package):
    """`import a.b` gives the module: no function of its name in `a` hides it."""
    hidden = []
    for module in sources(package):
        parent, _, name = module.rpartition(".")
        if not parent or name == "__main__" or is_within(module, GPU_ONLY):
            continue
        found = importlib.import_module(module)
        if getattr(importlib.import_module(parent), name) is not found:
            hidden.append(
                f"{module} is hidden by {getattr(importlib.import_module(parent), name)!r}"
            )
    refuse(hidden)


@pytest.mark.parametrize("package", PACKAGES)
def test_few_parameters(package):
    refuse(
        [
            f"{path}, line {f.lineno}: {f.name} has {len(arguments(f))} parameters"
            for path in sources(package).values()
            for f in functions(parse(path))
            if len(arguments(f)) > PARAMETERS
        ]
    )


def test_a_class_name_has_one_meaning():
    where: dict[str, list[str]] = defaultdict(list)
    for module, path in sources(*PACKAGES).items():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(module)
    print(f"{len(where)} classes")
    refuse([f"{name}: {', '.join(modules)}" for name, modules in where.items() if len(modules) > 1])


@pytest.mark.parametrize("package", PACKAGES)
def test_arguments_have_types(package):
    aliases = {"Any"} | {
        name for path in sources(package).values() for name in aliases_of_any(parse(path))
    }
    every = [
        a
        for path in sources(package).values()
        for f in functions(parse(path))
        for a in arguments(f)
    ]
    vague = [a for a in every if a.annotation is not None and ast.unparse(a.annotation) in aliases]
    print(
        f"{package}: {len(vague)} of {len(every)} arguments are Any, {len(vague) / len(every):.1%}"
    )
    assert len(every) > 1000
    assert len(vague) <= ANY_SHARE * len(every)


def aliases_of_any(tree: ast.Module) -> Iterator[str]:
    """Names that a module gives to `Any`."""
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is not None and ast.unparse(value) in ("Any", "'Any'"):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield ast.unparse(target)


def test_what_is_public_says_what_it_does():
    """Classes, functions and methods without an underscore have a docstring, or override a method that has one."""
    classes = {c.name: c for path in sources(*PACKAGES).values() for c in classes_in(parse(path))}
    bare = []
    for path in sources(*PACKAGES).values():
        for outer in (parse(path), *classes_in(parse(path))):
            bare += [
                f"{path}, line {n.lineno}: {n.name}"
                for n in public(outer)
                if not is_said(n, outer, classes)
            ]
    refuse(bare)


def classes_in(tree: ast.Module) -> Iterator[ast.ClassDef]:
    yield from (
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def public(outer: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The public definitions of a module or class; of overloads the one that is called."""
    for node in outer.body:
        is_public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith(
            "_"
        )
        if is_public and not any("overload" in ast.unparse(each) for each in node.decorator_list):
            yield node


def is_said(node: ast.AST, outer: ast.AST, classes: dict[str, ast.ClassDef]) -> bool:
    """Whether a definition in `outer`, or what it overrides in a base class, has a docstring."""
    if ast.get_docstring(node) is not None:
        return True
    bases = [
        classes[ast.unparse(b)] for b in getattr(outer, "bases", ()) if ast.unparse(b) in classes
    ]
    return any(
        is_said(each, b, classes)
        for b in bases
        for each in b.body
        if getattr(each, "name", "") == node.name
    )


def test_state_is_read_by_names():
    """Compiled code of the runtime reads fields of records: no index is the number of a field times so many."""
    found = []
    compiled = {
        each.importer
        for each in imports_in("taskflow")
        if is_within(each.name, "taskflow.core.compiling")
    }
    for module, path in sources("taskflow").items():
        if module in compiled:
            for node in ast.walk(parse(path)):
                if isinstance(node, ast.Subscript) and is_offset(node.value, node.slice):
                    found.append(f"{path}, line {node.lineno}: {ast.unparse(node)}")
    refuse(found)


def is_offset(array: ast.expr, index: ast.expr) -> bool:
    """True for `m[m[AT] + k]` and `x[first + 3 * k]`: offsets within an array, or rows one after another."""
    if not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Add):
        return False
    own = ast.unparse(array)
    for term in terms(index):
        if isinstance(term, ast.Subscript) and ast.unparse(term.value) == own:
            return True
        sides = (
            (term.left, term.right)
            if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult)
            else ()
        )
        if any(isinstance(side, ast.Constant) and side.value > 1 for side in sides):
            return True
    return False


def terms(index: ast.expr) -> Iterator[ast.expr]:
    """The terms of a sum."""
    if isinstance(index, ast.BinOp) and isinstance(index.op, ast.Add):
        yield from terms(index.left)
        yield from terms(index.right)
    else:
        yield index
