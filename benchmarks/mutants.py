"""Whether the tests notice a wrong line: `python benchmarks/mutants.py` (an hour at most on two cores).

80 seeded changes of one place each: a comparison, an operator, a number, a condition that is turned around, a statement
that is left out, in lowering, tasks, collective, simulation, schedule and ops. A first run of the tests, interpreted,
under `coverage` (`pip install coverage`) tells which of them reach a line; each change is then held against those,
quickest first, in a copy of the checkout. Prints each change with the test that fails, and what survives; the exit
status is 1 where more than a tenth does. The changes depend on the sources and the seed alone, so that two states of
the tests are compared by running this in both.

Numbers of a module (they are tuned), messages, annotations and what needs a GPU or torch are left alone.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
AREAS = (
    "taskflow/lowering",
    "taskflow/tasks",
    "taskflow/collective",
    "taskflow/simulation",
    "taskflow/schedule",
    "ops",
)
SKIPPED = ("ops/torch", "ops/cuda", "ops/models")
# They start processes of their own, or compare with what is not here: no line of theirs would be seen.
IGNORED = ("gpu", "peer", "stub", "docs", "cli", "programs")
TEST_SECONDS = 10.0  # a test that takes longer as Python is left out
BUDGET_SECONDS = 100.0  # of the tests that one change is held against, as the first run took them
ENVIRONMENT = {
    **os.environ,
    "TASKFLOW_COMPILE": "never",  # operators' kernels are compiled: see `Reach.of`
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "",
    "HYPOTHESIS_PROFILE": "dev",
}
PYTEST = [
    sys.executable,
    *["-m", "pytest", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider"],
]
# What no test can notice, by file and change, and why.
REASONS: dict[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text())


# -- changes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One place of a file, from `begin` to before `end`, which reads `new` instead of `old`."""

    path: str
    line: int
    begin: int
    end: int
    old: str
    new: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: `{self.old}` -> `{self.new}` in `{self.text}`"

    @property
    def key(self) -> str:
        """What names it as long as the line stays, wherever it stands."""
        return f"{self.path}: `{self.old}` -> `{self.new}` in `{self.text}`"

    def applied(self, source: str) -> str:
        """The source with the change."""
        encoded = source.encode()
        return (encoded[: self.begin] + self.new.encode() + encoded[self.end :]).decode()


_SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_NAMES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
}


class _Sites(ast.NodeVisitor):
    """Collects the places of a source that may change."""

    def __init__(self, path: str, source: str) -> None:
        self.found = list[Mutant]()
        self._path, self._bytes = path, source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._is_in_function = False
        self.visit(ast.parse(source))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outside, self._is_in_function = self._is_in_function, True
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        is_documented = ast.get_docstring(node) is not None
        for statement in node.body[is_documented:]:
            self.visit(statement)
        self._is_in_function = outside

    def visit_Raise(self, node: ast.Raise) -> None:
        """A message."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Never false."""

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # nor that
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A message, mostly."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            self._swap(node.left, node.ops[0], node.comparators[0])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not (_is_listed(node.left) or _is_listed(node.right)):
            self._swap(node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if len(node.values) == 2:
            self._swap(node.values[0], node.op, node.values[1])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, self._at(node), self._at(node.operand), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, self._at(node), self._end(node), str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, self._at(node), self._end(node), str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func
        spelled = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
        if spelled in _NAMES:
            self._add(node, self._end(name) - len(spelled), self._end(name), _NAMES[spelled])
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        test = self._bytes[self._at(node.test) : self._end(node.test)].decode()
        self._add(node, self._at(node.test), self._end(node.test), f"not ({test})")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add(node, self._at(node), self._end(node), "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in (ast.Add, ast.Sub):
            self._swap(node.target, node.op, node.value)
        self.generic_visit(node)

    def _swap(self, left: ast.expr, operator: ast.AST, right: ast.expr) -> None:
        if type(operator) not in _SWAPS:
            return
        old, new = _SWAPS[type(operator)]
        begin, end = self._end(left), self._at(right)
        found = re.search(rf"(?<![\w/<>=!*]){re.escape(old)}", self._bytes[begin:end].decode())
        if found:
            at = begin + len(self._bytes[begin:end].decode()[: found.start()].encode())
            self._add(left, at, at + len(old), new)

    def _add(self, node: ast.expr | ast.stmt, begin: int, end: int, new: str) -> None:
        if self._is_in_function:
            line = next(k for k, start in enumerate(self._starts) if start > begin)
            text = self._bytes[self._starts[line - 1] : self._starts[line]].decode().strip()
            old = self._bytes[begin:end].decode()
            self.found.append(Mutant(self._path, line, begin, end, old, new, text))

    def _at(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_listed(node: ast.expr) -> bool:
    """A text or a sequence: these are only put together, and anything else is an error at once."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text or isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple))


def sites(area: str) -> list[Mutant]:
    """All places of an area that may change."""
    paths = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / area).rglob("*.py"))
    kept = [path for path in paths if not path.startswith(SKIPPED)]
    return [each for path in kept for each in _Sites(path, (ROOT / path).read_text()).found]


def draw(count: int, seed: int) -> list[Mutant]:
    """As many of each area, in a line each."""
    generator, drawn = random.Random(seed), list[Mutant]()
    for number, area in enumerate(AREAS):
        share = count // len(AREAS) + (number < count % len(AREAS))
        by_line = dict[tuple[str, int], Mutant]()
        for each in generator.sample(all_sites := sites(area), len(all_sites)):
            by_line.setdefault((each.path, each.line), each)
        drawn += list(by_line.values())[:share]
    return drawn


# -- which tests reach a line ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """Which tests passed as Python, in how many seconds, and which reach a line of a file."""

    seconds: dict[str, float]
    tests: dict[tuple[str, int], set[str]]

    def of(self, mutant: Mutant) -> set[str]:
        """Tests that reach its line; of what is compiled, and of defaults, those of its function or a caller."""
        is_run = mutant.line in _function_at(mutant.path, mutant.line)[1]
        found = self._at([(mutant.path, mutant.line)] if is_run else [])
        pending, seen = [(mutant.path, mutant.line)], set[str]()
        while not found and pending:
            functions = [(path, *_function_at(path, line)) for path, line in pending]
            found = self._at((path, line) for path, _, lines in functions for line in lines)
            names = {name for _, name, _ in functions} - seen - {""}
            seen |= names
            pending = [place for name in names for place in _places_of(name)]
            found = found or self._at(pending)
        return found

    def _at(self, places: Iterable[tuple[str, int]]) -> set[str]:
        return set[str]().union(*(self.tests.get(place, ()) for place in places))


@cache
def _functions(path: str) -> list[tuple[range, str, range]]:
    """The lines of a file's functions, the innermost last, their names, and the lines of their bodies."""
    tree = ast.parse((ROOT / path).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    ends = [(node.end_lineno or 0) + 1 for node in found]
    return [
        (range(node.lineno, end), node.name, range(node.body[0].lineno, end))
        for node, end in zip(found, ends, strict=True)
    ]


def _function_at(path: str, line: int) -> tuple[str, range]:
    """The name of the function in which the line is, and the lines of its body."""
    found = [(name, body) for lines, name, body in _functions(path) if line in lines]
    return found[-1] if found else ("", range(0))


@cache
def _places_of(name: str) -> list[tuple[str, int]]:
    """Where a function is named, but for its own line."""
    named = re.compile(rf"(?<!def )\b{name}\b")
    return [
        (path.relative_to(ROOT).as_posix(), number)
        for area in AREAS
        for path in sorted((ROOT / area).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if named.search(line)
    ]


def reach(folder: Path, workers: int) -> Reach:
    """By a run of all tests, or of what that has left in the folder."""
    if not folder.exists():
        folder.mkdir(parents=True)
        command = [
            *PYTEST,
            "tests",
            *f"-n {workers} --dist worksteal -p benchmarks.mutants_map".split(),
        ]
        command += [f"--ignore=tests/{each}" for each in IGNORED]
        environment = ENVIRONMENT | {"MUTANTS_MAP": str(folder), "PYTHONPATH": str(ROOT)}
        environment |= {"MUTANTS_SECONDS": str(TEST_SECONDS), "MUTANTS_AREAS": ":".join(AREAS)}
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
    from coverage import CoverageData

    seconds = dict[str, float]()
    for path in folder.glob("seconds.*"):
        seconds |= json.loads(path.read_text())
    tests = defaultdict[tuple[str, int], set[str]](set)
    for path in folder.glob("lines.*"):
        data = CoverageData(str(path))
        data.read()
        for name in data.measured_files():
            for line, contexts in data.contexts_by_lineno(name).items():
                tests[name, line] |= seconds.keys() & set(contexts)
    return Reach(seconds, tests)


# -- a change against its tests ----------------------------------------------------------------------------------------


def chosen(reached: Reach, mutant: Mutant) -> list[str]:
    """Tests that reach its line, quickest first, of a budget of seconds."""
    quickest = sorted(
        reached.of(mutant),
        key=lambda each: (reached.seconds[each], each),
    )
    found, spent = list[str](), 0.0
    for each in quickest:
        spent += reached.seconds[each]
        if found and spent > BUDGET_SECONDS:
            break
        found.append(each)
    return found


def killed_by(checkout: Path, mutant: Mutant, tests: list[str], seconds: float) -> str:
    """The test that fails, "time" where they do not end; nothing where all pass."""
    path = checkout / mutant.path
    source = path.read_text()
    path.write_text(mutant.applied(source))
    try:
        return failing(checkout, tests, seconds)
    finally:
        path.write_text(source)


def failing(checkout: Path, tests: list[str], seconds: float) -> str:
    """The first of the tests that fails; see `killed_by`."""
    names = checkout / "chosen.txt"
    names.write_text("\n".join(tests))
    environment = ENVIRONMENT | {"PYTHONPATH": str(checkout)}
    with subprocess.Popen(
        [*PYTEST, "-x", f"@{names}"],
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "time"
    if process.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", text, re.MULTILINE)
    return found[1] if found else f"exit status {process.returncode}: {text[-300:]}"


def copies(count: int, folder: str) -> SimpleQueue[Path]:
    """Copies of the files that git knows."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    queue = SimpleQueue[Path]()
    for number in range(count):
        for name in filter(lambda name: (ROOT / name).is_file(), names):
            target = Path(folder, str(number), name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        queue.put(Path(folder, str(number)))
    return queue


def check_copy(queue: SimpleQueue[Path], reached: Reach) -> None:
    """Nothing may fail without a change: else all changes would be killed."""
    checkout = queue.get()
    quickest = sorted(reached.seconds, key=lambda each: reached.seconds[each])
    if found := failing(checkout, quickest[: len(quickest) // 3], 600):
        raise SystemExit(f"{found} fails without any change")
    queue.put(checkout)


def judge(mutants: list[Mutant], reached: Reach, workers: int) -> Iterator[tuple[Mutant, int, str]]:
    """Each with the number of tests that reach its line, and what kills it."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        queue = copies(workers, folder)
        check_copy(queue, reached)

        def run(mutant: Mutant) -> tuple[Mutant, int, str]:
            tests, checkout = chosen(reached, mutant), queue.get()
            expected = sum(reached.seconds[each] for each in tests)
            try:
                found = killed_by(checkout, mutant, tests, 60 + 3 * expected) if tests else ""
            finally:
                queue.put(checkout)
            return mutant, len(reached.of(mutant)), found

        yield from pool.map(run, mutants)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="of these, those whose place has this text")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--map", type=Path, help="a folder: what it has of an earlier run is used")
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        reached = reach(options.map or Path(scratch, "map"), options.workers)
    print(
        f"{len(reached.seconds)} tests pass as Python, {time.monotonic() - begin:.0f} s", flush=True
    )
    survivors, killed = list[Mutant](), Counter[str]()
    drawn = [each for each in draw(options.count, options.seed) if options.only in str(each)]
    for mutant, count, killer in judge(drawn, reached, options.workers):
        area = next(area for area in AREAS if mutant.path.startswith(area))
        killed[area] += bool(killer)
        survivors += [] if killer else [mutant]
        print(f"{mutant}\n    {count} tests reach it; {killer or 'SURVIVES'}", flush=True)
    print()
    for each in survivors:
        print(f"survives: {each}\n    {REASONS.get(each.key, 'no reason is known')}")
    for area in AREAS:
        print(f"{area:22s} {killed[area]:3d} killed")
    print(f"{killed.total()} of {len(drawn)} are killed, in {time.monotonic() - begin:.0f} s")
    return int(killed.total() < 0.9 * len(drawn))


if __name__ == "__main__":
    sys.exit(main())
