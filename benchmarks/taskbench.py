"""Overhead per task and METG(50 %) of taskflow beside a serial loop, mpi4py by hand, dask and ray, in one run.

`mpirun -n 2 python benchmarks/taskbench.py`, or without mpirun for one process. METG(50 %) is the smallest average task
granularity (seconds x cores / tasks) at which kernels still run at half of their peak rate: a measure of Slaughter et
al., "Task Bench: A Parameterized Benchmark for Evaluating Parallel Runtime Performance", SC20. The figures are not Task
Bench's: patterns and kernels are our own code (`taskbench_graph.py`).

It is found by shrinking the iteration count by the square root of 2 until the rate falls below half of the peak, with
interpolation between the two last counts, and is the median of several such rounds; systems take turns in a round,
but dask and ray, which are far slower, come last. With `--kernel empty` a task does nothing, and what it takes is the
runtime's overhead alone: a compiled kernel takes half a microsecond to be called.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import os
import time
from dataclasses import dataclass, field, replace

import numpy as np
from mpi4py import MPI
from taskbench_graph import KERNELS, PATTERNS, Job, System, TaskRows, work
from taskbench_mpi import mpi_blocking, mpi_persistent
from taskbench_systems import dask_threads, ray_tasks, replayed, serial

COMM = MPI.COMM_WORLD
CORES = min(COMM.size, len(os.sched_getaffinity(0)))
SYSTEMS = {
    "serial": serial,
    "mpi4py persistent": mpi_persistent,
    "mpi4py blocking": mpi_blocking,
    "taskflow": replayed,
    "taskflow recorded": functools.partial(replayed, record=True),
    "dask threads": dask_threads,
    "ray": ray_tasks,
}
ALONE = ("serial", "dask threads", "ray")  # rank 0 runs them, the others sleep
SLOW_ROWS = {"dask threads": 100, "ray": 20}  # a thousand rows of these take minutes
REPEAT = 7  # runs behind each other at every iteration count
STEP = math.sqrt(2.0)
_SHORTEST_TICK = 1e-10  # seconds of an iteration that does something


@dataclass
class Measured:
    """A system under measurement: its cores and tasks, and what each round found, in seconds."""

    name: str
    run: System
    cores: int
    tasks: int
    repeat: int
    overheads: list[float] = field(default_factory=list)
    metgs: list[float] = field(default_factory=list)

    def granularity(self, iterations: int) -> float:
        """Seconds x cores / tasks, on the slowest rank; median of runs behind each other."""
        return (
            float(np.median([self._seconds(iterations) for _ in range(self.repeat)]))
            * self.cores
            / self.tasks
        )

    def _seconds(self, iterations: int) -> float:
        if self.name not in ALONE:
            COMM.Barrier()
        begin = time.perf_counter()
        self.run(iterations)
        seconds = time.perf_counter() - begin
        return seconds if self.name in ALONE else COMM.allreduce(seconds, MPI.MAX)

    def round(self, tick: float) -> None:
        """One overhead and one METG, when an iteration takes `tick` seconds at the peak rate."""
        self.overheads.append(overhead := self.granularity(0))
        if tick < _SHORTEST_TICK:  # an empty kernel has no granularity
            self.metgs.append(math.nan)
            return
        count = max(2.0, 8 * overhead / tick)
        limit = 64 * count
        while (efficiency := self._efficiency(count, tick))[0] < 0.5:
            if count > limit:  # others use the cores: this round found nothing
                self.metgs.append(math.inf)
                return
            count *= 2
        while count >= 2:
            above, count = efficiency, count / STEP
            if (efficiency := self._efficiency(count, tick))[0] < 0.5:
                share = (above[0] - 0.5) / (above[0] - efficiency[0])
                self.metgs.append(above[1] ** (1 - share) * efficiency[1] ** share)
                return
        self.metgs.append(efficiency[1])

    def _efficiency(self, count: float, tick: float) -> tuple[float, float]:
        granularity = self.granularity(round(count))
        return round(count) * tick / granularity, granularity


def quiet_barrier() -> None:
    """A barrier whose waiting ranks leave their cores alone."""
    request = COMM.Ibarrier()
    while not request.Test():
        time.sleep(1e-3)


def peak_tick(job: Job) -> float:
    """Seconds of an iteration, when all ranks run one long kernel after the other."""
    cell, count, rows, found = np.zeros((1, job.shape.cell), np.int64), 5_000, 64, []
    COMM.Barrier()
    for _ in range(5):
        begin = time.perf_counter()
        for row in range(rows):
            job.work(cell, count, row, COMM.rank * job.shape.width // job.ranks)
        found.append((time.perf_counter() - begin) / (rows * count))
    return float(COMM.allreduce(np.median(found)) / COMM.size)


def measure(job: Job, names: list[str], rounds: int) -> list[Measured]:
    """All systems of this rank; first those that take turns, then the slow ones, whose servers would disturb them."""
    quick = [n for n in names if n not in SLOW_ROWS]
    slow = [n for n in names if n in SLOW_ROWS]
    return take_turns(job, quick, rounds) + take_turns(job, slow, min(rounds, 3))


def take_turns(job: Job, names: list[str], rounds: int) -> list[Measured]:
    """Some systems of this rank, measured."""
    found = []
    for name in names:
        if COMM.rank and name in ALONE:
            continue
        shape = replace(job.shape, rows=min(job.shape.rows, SLOW_ROWS.get(name, job.shape.rows)))
        system = SYSTEMS[name](replace(job, shape=shape))
        cores, repeat = 1 if name == "serial" else CORES, 1 if name in SLOW_ROWS else REPEAT
        found.append(Measured(name, system, cores, shape.tasks, repeat))
        if name not in ALONE or job.verifies:
            for _ in range(3):
                system(1)
    for _ in range(rounds):
        tick = peak_tick(job)
        for system in sorted(found, key=lambda s: s.name in ALONE):
            system.round(tick)
        quiet_barrier()
    return found


def report(job: Job, found: list[Measured]) -> None:
    """The rows of the table for one pattern."""
    by_hand = {s.name: s for s in found if s.name.startswith("mpi4py")}
    metgs = {s.name: float(np.median(s.metgs)) for s in found}
    best = min((metgs[name] for name in by_hand), default=math.nan)
    for system in found:
        overhead, metg = float(np.median(system.overheads)), metgs[system.name]
        print(
            f"{job.shape.pattern:20s} {job.shape.width:5d}  {system.name:18s}"
            f"{overhead * 1e6:12.2f} {metg * 1e6:10.2f} {metg / best:8.2f}",
            flush=True,
        )


def report_seconds(job: Job, found: list[Measured], iterations: int) -> None:
    """The seconds of one run of every system: the same work can be compared at other numbers of ranks."""
    for system in found:
        seconds = system.granularity(iterations) * system.tasks / system.cores
        if COMM.rank == 0:
            print(
                f"{job.shape.pattern:20s} {job.shape.width:5d}  {system.name:18s}{seconds:10.4f} s",
                flush=True,
            )
    quiet_barrier()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=list(PATTERNS))
    parser.add_argument("--kernel", choices=KERNELS, default="compute")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 4], help="columns per rank")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--iterations", type=int, help="only print the seconds of a run with so many per task"
    )
    parser.add_argument(
        "--width", type=int, help="columns of all ranks together, instead of --columns"
    )
    parser.add_argument(
        "--verify", action="store_true", help="only check that every task reads the right cells"
    )
    options = parser.parse_args()
    names = [n for n in options.systems if COMM.size > 1 or not n.startswith("mpi4py")]
    for module, name in (("dask", "dask threads"), ("ray", "ray")):
        if name in names and not importlib.util.find_spec(module):
            names.remove(name)
            if COMM.rank == 0:
                print(f"{module} is not installed: skipped")
    if COMM.rank == 0:
        rows = ", ".join(
            [str(options.rows), *(f"{SLOW_ROWS[n]} for {n}" for n in names if n in SLOW_ROWS)]
        )
        print(
            f"{COMM.size} ranks on {CORES} cores, kernel '{options.kernel}', {rows} rows, "
            f"median of {options.rounds} rounds"
        )
        print(
            f"{'pattern':20s} {'width':>5s}  {'system':18s}{'us per task':>12s} {'METG us':>10s} {'/ mpi4py':>8s}"
        )
    for width in [options.width] if options.width else [c * COMM.size for c in options.columns]:
        for pattern in options.patterns:
            shape = TaskRows(pattern, width, options.rows)
            job = Job(shape, work(options.kernel, width), COMM.size, options.verify)
            only_run = options.verify or options.iterations is not None
            found = measure(job, names, 0 if only_run else options.rounds)
            if options.iterations is not None:
                report_seconds(job, found, options.iterations)
            elif COMM.rank == 0 and options.verify:
                print(f"{pattern:20s} {width:5d}  verified: {', '.join(names)}", flush=True)
            elif COMM.rank == 0:
                report(job, found)


if __name__ == "__main__":
    main()
