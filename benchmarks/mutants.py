"""Whether the tests notice a wrong line: `python benchmarks/mutants.py` (an hour at most on two cores).

80 seeded changes (`mutants_changes`) in lowering, tasks, collective, simulation, schedule and ops; of what no test can
notice `mutants.json` says why, and another one is drawn instead. A first run of the tests, interpreted, under
`coverage` (`pip install coverage`) tells which of them reach a line; each change is then held against those, in a copy
of the checkout: first the tests of its file, then the quickest. Prints each change with the test that
fails, and what survives; the exit status is 1 where more than a tenth does. The changes depend on the sources and the
seed alone, so that two states of the tests are compared by running this in both.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue

from mutants_changes import AREAS, ROOT, Mutant, draw
from pytest import ExitCode

# They start processes of their own, or compare with what is not here: no line of theirs would be seen.
IGNORED = ("gpu", "peer", "stub", "docs", "cli", "programs")
TEST_SECONDS = 10.0  # of the processor; a test that takes longer as Python is left out
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
WAITED = (
    8  # times these seconds until a change counts as one that never ends: a machine may be busy
)
STAMPS = itertools.count(1)
CHECKED = 500  # tests, the quickest, that must pass without any change


# -- which tests reach a line ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """Which tests passed as Python, in how many seconds, and which reach a line of a file."""

    seconds: dict[str, float]
    tests: dict[tuple[str, int], set[str]]

    def of(self, mutant: Mutant) -> set[str]:
        """Tests that reach its line; of what is compiled, and of defaults, those of its function or a caller."""
        is_run = mutant.line in _function_at(mutant.path, mutant.line)[1]
        tests = self._at([(mutant.path, mutant.line)] if is_run else [])
        places, seen = [(mutant.path, mutant.line)], set[str]()
        while not tests and places:
            functions = [(path, *_function_at(path, line)) for path, line in places]
            tests = self._at((path, line) for path, _, lines in functions for line in lines)
            names = {name for _, name, _ in functions} - seen - {""}
            seen |= names
            places = [place for name in names for place in _places_of(name)]
            tests = tests or self._at(places)
        return tests

    def _at(self, places: Iterable[tuple[str, int]]) -> set[str]:
        return set[str]().union(*(self.tests.get(place, ()) for place in places))


@cache
def _functions(path: str) -> list[tuple[range, str, range]]:
    """The lines of a file's functions, the innermost last, their names, and the lines of their bodies."""
    tree = ast.parse((ROOT / path).read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    ends = [(node.end_lineno or 0) + 1 for node in functions]
    return [
        (range(node.lineno, end), node.name, range(node.body[0].lineno, end))
        for node, end in zip(functions, ends, strict=True)
    ]


def _function_at(path: str, line: int) -> tuple[str, range]:
    """The name of the function in which the line is, and the lines of its body."""
    around = [(name, body) for lines, name, body in _functions(path) if line in lines]
    return around[-1] if around else ("", range(0))


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
            *(f"--ignore=tests/{name}" for name in IGNORED),
        ]
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
    """Tests that reach its line, those of its file first, then the quickest, of a budget of seconds."""
    own = f"/test_{Path(mutant.path).stem}.py:"

    def turn(test: str) -> tuple[bool, float, str]:
        return own not in test, reached.seconds[test], test

    tests = sorted(reached.of(mutant), key=turn)
    ends = list(accumulate(reached.seconds[test] for test in tests))
    return tests[: max(1, bisect(ends, BUDGET_SECONDS))]


def killed_by(checkout: Path, mutant: Mutant, tests: list[str], seconds: float) -> str:
    """The test that fails, "time" where they do not end; nothing where all pass."""
    path = checkout / mutant.path
    source = path.read_text()
    write(path, mutant.applied(source))
    try:
        return failing(checkout, tests, seconds)
    finally:
        write(path, source)


def write(path: Path, source: str) -> None:
    """Python takes what it has compiled for that of a file as large and, to the second, as old."""
    path.write_text(source)
    second = next(STAMPS)
    os.utime(path, (second, second))


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
    files = sorted({test.partition("::")[0] for test in tests})
    if process.returncode == ExitCode.USAGE_ERROR and files != tests:  # tests have other names now
        return failing(checkout, files, seconds)
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", text, re.MULTILINE)
    return failed[1] if failed else f"exit status {process.returncode}: {text[-2000:]}"


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
    quickest = sorted(reached.seconds, key=lambda test: reached.seconds[test])
    if failed := failing(checkout, quickest[:CHECKED], 600):
        raise SystemExit(f"{failed} fails without any change")
    queue.put(checkout)


def judge(mutants: list[Mutant], reached: Reach, workers: int) -> Iterator[tuple[Mutant, int, str]]:
    """Each with the number of tests that reach its line, and what kills it."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        queue = copies(workers, folder)
        check_copy(queue, reached)

        def run(mutant: Mutant) -> tuple[Mutant, int, str]:
            tests, checkout = chosen(reached, mutant), queue.get()
            expected = sum(reached.seconds[test] for test in tests)
            try:
                killer = killed_by(checkout, mutant, tests, 60 + WAITED * expected) if tests else ""
            finally:
                queue.put(checkout)
            return mutant, len(reached.of(mutant)), killer

        yield from pool.map(run, mutants)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="*", default=[""], help="of these, those whose place has one of these texts"
    )
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
    drawn = [
        each
        for each in draw(options.count, options.seed)
        if any(text in str(each) for text in options.only)
    ]
    for mutant, count, killer in judge(drawn, reached, options.workers):
        area = next(area for area in AREAS if mutant.path.startswith(area))
        killed[area] += bool(killer)
        survivors += [] if killer else [mutant]
        print(f"{mutant}\n    {count} tests reach it; {killer or 'SURVIVES'}", flush=True)
    print()
    for each in survivors:
        print(f"survives: {each}")
    for area in AREAS:
        print(f"{area:22s} {killed[area]:3d} killed")
    print(f"{killed.total()} of {len(drawn)} are killed, in {time.monotonic() - begin:.0f} s")
    return int(killed.total() < 0.9 * len(drawn))


if __name__ == "__main__":
    sys.exit(main())
