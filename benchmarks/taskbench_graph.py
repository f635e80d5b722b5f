"""Task graphs to measure runtimes with: rows of columns, where a task reads some columns of the row before.

The dependence patterns and the idea of kernels whose length is set by an iteration count are those of Slaughter et al.,
"Task Bench: A Parameterized Benchmark for Evaluating Parallel Runtime Performance", SC20; all code is our own. A task
writes a cell that starts with (row, column), so that whoever reads it can verify what it got.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

import taskflow

RADIX, PERIOD, KEPT = (
    5,
    3,
    0.25,
)  # of nearest and spread; of spread; of what random_nearest keeps of nearest
KIB_PER_COLUMN = 4096  # working set of the memory-bound kernel
STREAMED = 64  # numbers that one iteration of it reads and writes

PATTERNS: dict[
    str, Callable[[int, int, int], list[int]]
] = {  # (row, column, width) -> columns read of row - 1
    "trivial": lambda t, i, n: [],
    "no_comm": lambda t, i, n: [i],
    "stencil_1d": lambda t, i, n: [i - 1, i, i + 1],
    "stencil_1d_periodic": lambda t, i, n: [(i - 1) % n, i, (i + 1) % n],
    "dom": lambda t, i, n: [i - 1, i],
    "tree": lambda t, i, n: [i // 2],
    "fft": lambda t, i, n: [i - (d := 1 << (t - 1) % max(1, (n - 1).bit_length())), i, i + d],
    "nearest": lambda t, i, n: list(range(i - RADIX // 2, i + (RADIX - 1) // 2 + 1)),
    "spread": lambda t, i, n: [
        (i + k * n // RADIX + (k > 0) * (t % PERIOD)) % n for k in range(RADIX)
    ],
    "random_nearest": lambda t, i, n: [
        j for j in PATTERNS["nearest"](t, i, n) if j == i or _chance(t, i, j) < KEPT
    ],
}


def _chance(*numbers: int) -> float:
    """A number in [0, 1) fixed by `numbers`."""
    mixed = 0
    for number in numbers:
        mixed = (mixed ^ number) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
        mixed ^= mixed >> 29
    return mixed / 2.0**64


@dataclass(frozen=True)
class TaskRows:
    """`rows` rows of up to `width` tasks under a dependence pattern; cells of `cell` int64."""

    pattern: str
    width: int
    rows: int
    cell: int = 2

    def columns(self, row: int) -> range:
        """The columns of a row: a growing and shrinking, sliding window for `dom`, a growing one for `tree`."""
        if self.pattern == "dom":
            first = max(0, row + self.width - self.rows)
            return range(first, first + min(self.width, row + 1, self.rows - row))
        return range(min(self.width, 2 ** min(row, 62)) if self.pattern == "tree" else self.width)

    def reads(self, row: int, column: int) -> list[int]:
        """The columns of the row before that a task reads."""
        if row == 0:
            return []
        there = self.columns(row - 1)
        return sorted({j for j in PATTERNS[self.pattern](row, column, self.width) if j in there})

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return sum(len(self.columns(t)) for t in range(self.rows))

    def windows(self, row: int) -> list[taskflow.Window] | None:
        """The dependences of a row as windows on the one before, each of one column: nothing else moves or is gathered.

        Every distance between columns is an offset. None where not all columns read at the same distances.
        """
        columns = self.columns(row)
        if self.pattern == "tree":
            return [taskflow.Window("w", size=2, stride=2, transposed=True)] if row else []
        reads = {i: self.reads(row, i) for i in columns}
        distances = sorted({j - i for i in columns for j in reads[i]})
        there = self.columns(row - 1) if row else range(0)
        if any(i + d in there and i + d not in reads[i] for i in columns for d in distances):
            return None
        return [taskflow.Window("w", padding=there.start - columns.start - d) for d in distances]


@njit(cache=True, nogil=True)
def compute(memory, cell, iterations, row, column):
    """Compute-bound: four chains of multiplications and additions."""
    a = b = c = d = 1.0 + column
    for _ in range(iterations):
        a, b, c, d = a * 0.999 + 0.001, b * 0.998 + 0.002, c * 0.997 + 0.003, d * 0.996 + 0.004
    cell[0, 0], cell[0, 1] = row, column + (a + b + c + d < 0.0)


@njit(cache=True, nogil=True)
def stream(memory, cell, iterations, row, column):
    """Memory-bound: goes on through the column's memory where its last task stopped, however few the iterations."""
    held = memory[column]
    place = row * iterations * STREAMED
    for _ in range(iterations):
        place %= held.size
        for k in range(place, place + STREAMED):
            held[k] += 1.0
        place += STREAMED
    cell[0, 0], cell[0, 1] = row, column


@njit(cache=True, nogil=True)
def imbalance(memory, cell, iterations, row, column):
    """Compute-bound, with 0.5 to 1.5 times the iterations, evenly distributed and fixed by (row, column)."""
    mixed = (row * 7919 + column) * 2654435761 & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 15) * 2246822519 & 0xFFFFFFFF
    compute(memory, cell, iterations // 2 + (iterations * (mixed >> 8) >> 24), row, column)


def empty(memory, cell, iterations, row, column):
    """Nothing: what is left of a task's time is the runtime's."""


KERNELS = {"compute": compute, "memory": stream, "imbalance": imbalance, "empty": empty}
Cells = list[np.ndarray]
Work = functools.partial[None]  # of a kernel with its working set: (cell, iterations, row, column)
System = Callable[[int], object]  # runs all tasks with so many iterations


@functools.cache
def counted(kernel: Callable[..., None]) -> Callable[..., None]:
    """The kernel with the iteration count in an array: so its arguments are the same in every run."""

    def run(memory, cell, iterations, row, column):
        kernel(memory, cell, iterations[0], row, column)

    return run if kernel is empty else njit(nogil=True)(run)


def work(name: str, width: int) -> Work:
    """A compiled kernel with its working set."""
    memory = np.zeros((width, KIB_PER_COLUMN * 128 if name == "memory" else STREAMED))
    run = KERNELS[name]
    return functools.partial(run, memory)


def verify(shape: TaskRows, row: int, column: int, cells: Sequence[np.ndarray]) -> None:
    """Check that the cells that a task reads are the right ones.

    Raises:
        AssertionError: they are not; with the task.
    """
    found = sorted((int(c[0, 0]), int(c[0, 1])) for c in cells)
    expected = [(row - 1, j) for j in shape.reads(row, column)]
    if found != expected:
        raise AssertionError(
            f"{shape.pattern}: task ({row}, {column}) read {found}, not {expected}"
        )


@dataclass(frozen=True)
class Job:
    """What a system is to run: the tasks, the kernel, on how many ranks or threads, and whether readers verify."""

    shape: TaskRows
    work: Work
    ranks: int
    verifies: bool

    def place(self, column: int) -> int:
        """The rank of a column."""
        return column * self.ranks // self.shape.width

    def task(self, row: int, column: int, iterations: int, cells: Cells) -> np.ndarray:
        """A task as a function, for systems that pass values."""
        if self.verifies:
            verify(self.shape, row, column, cells)
        cell = np.empty((1, self.shape.cell), np.int64)
        self.work(cell, iterations, row, column)
        return cell


def two_rows(shape: TaskRows) -> tuple[np.ndarray, list[Cells]]:
    """Memory for the current row and the one before, and its cells."""
    memory = np.zeros((2, shape.width, 1, shape.cell), np.int64)
    return memory, [list(half) for half in memory]
