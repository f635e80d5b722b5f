"""Collectives as they run: every algorithm on real ranks, and on emulated ones against its price.

    python -m benchmarks.collective_runs [--ranks 1 2 3 4 8]     sums against NumPy's, and their bits
    python -m benchmarks.collective_runs --emulated [--ranks 4 8]   measured over predicted seconds

The command starts `mpirun -n` itself. Sums: all collectives by all algorithms that serve them, on machines of 2 to 8
devices, as many as there are ranks or more; one host, two unequal hosts, a torus; boxes of a few elements, uneven ones
and one that is cut in parts; over shared memory and by messages, on CPUs,
emulated devices and fake GPUs. Each case runs twice. Bits are compared between runs, kinds of devices, transports and
numbers of ranks. Emulated: a step whose collective takes nearly all of it, the median of some steps.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from taskflow import CostModel, Device, Executor, Kind, MachineModel, TaskGraph, simulate
from taskflow.comm.launch import launch_environment
from taskflow.comm.transport import connect
from taskflow.machine.device import Link
from taskflow.machine.topology import torus
from tests.collectives import NAMED, fed, one_collective
from tests.fake_gpu.streams import FakeStreams

TOLERANCE = 1e-10
LEAST, MOST = 0.95, 1.05  # of measured over predicted
SHAPES = (3,), (37, 11), (1024, 3)  # the last one is large enough for its sum to be cut in parts
FAST = Device("emulated", 0, 1 << 34, 1e11, 1e11, 1e-6)
RUNS = (
    ("cpu", "shared"),
    ("cpu", "messages"),
    ("emulated", "shared"),
    ("cuda", "shared"),
)  # GPUs are fakes that compute
LAYOUTS = {
    1: range(2, 9),
    2: (2, 3, 5, 8),
    3: (3,),
    4: (4, 8),
    5: (5,),
    6: (6,),
    7: (7,),
    8: (8,),
}  # ranks -> devices
SIZES = 1 << 16, 1 << 20, 1 << 22  # bytes, emulated
WIDTH = 64  # of the boxes of emulated all-to-alls
MEGABYTES = 1e6
MEMORY = 5e8  # bytes/s of an emulated device: two cores fold for eight of them at once


class Case(NamedTuple):
    """A collective by an algorithm on a machine."""

    name: str
    algorithm: str
    machine: MachineModel
    shape: tuple[int, ...]
    devices: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}, {self.algorithm}, {self.machine.name}, {self.shape}, {self.devices}"

    def lower(self) -> TaskGraph:
        """Its task graph, whose collective is by that algorithm."""
        task_graph, found = one_collective(*self)
        assert found.get(self.name) == self.algorithm, (str(self), found)
        return task_graph


def hosts_of(count: int, first: int, kind: str = "cpu") -> MachineModel:
    """`count` devices, of which `first` are on host 0."""
    devices = tuple(Device(kind, host=int(d >= first)) for d in range(count))
    return MachineModel(devices, MachineModel.uniform(count).links, f"{first} + {count - first}")


def cases(count: int) -> Iterator[Case]:
    """All that `count` devices do."""
    every = tuple(range(count))
    machines = [hosts_of(count, count), hosts_of(count, count // 2 + 1)]
    if count in (4, 6, 8):
        machines.append(torus((2, count // 2), Device(sends_by_link=True)))
    for name, algorithm in NAMED:
        for machine in machines:
            for shape in SHAPES:
                if (name == "broadcast" and count == 2) or (
                    name in ("reduce-scatter", "all-gather") and shape[0] < count
                ):
                    continue
                if name == "all-to-all" and (len(shape) < 2 or (count == 2 and shape[0] % 2)):
                    continue  # two uneven tiles are gathered
                yield Case(name, algorithm, machine, shape, every)
        if name == "all-reduce":  # two parts on one device
            yield Case(name, algorithm, machines[1], SHAPES[1], (*every, 0))


def run(case: Case, kind: str, transport: str) -> np.ndarray:
    """What all that get the box have, after a check against NumPy's sum; bits of two runs are equal."""
    devices = tuple(
        replace(FAST, kind=kind, host=d.host, sends_by_link=d.sends_by_link)
        for d in case.machine.devices
    )
    task_graph = case._replace(machine=replace(case.machine, devices=devices)).lower()
    x = np.random.default_rng(7).standard_normal((len(case.devices), *case.shape))
    feeds = fed(case.name, x)
    found = []
    for _ in range(2):
        with Executor(
            task_graph, transport=transport, backend=FakeStreams() if kind == "cuda" else None
        ) as step:
            found += [step(feeds)["whole"], step(feeds)["whole"]]
    assert np.abs(found[0] - x.sum(axis=0)).max() <= TOLERANCE * np.abs(x.sum(axis=0)).max(), (
        f"{case}: sum"
    )
    assert all(np.array_equal(found[0], other) for other in found[1:]), (
        f"{case}: bits from run to run"
    )
    return found[0]


def sums() -> None:
    """A rank of the first table: prints cases and their bits."""
    transport = connect()
    for count in LAYOUTS[transport.size]:
        for case in cases(count):
            for kind, carrier in (
                RUNS if transport.size in (1, count) else RUNS[:3]
            ):  # a rank drives one GPU
                bits = hashlib.sha256(run(case, kind, carrier).tobytes()).hexdigest()[:16]
                if transport.rank == 0:
                    print(f"CASE {case}: {bits}", flush=True)


# -- emulated ----------------------------------------------------------------------------------------------------------


def emulated(count: int) -> Iterator[MachineModel]:
    """One host, two hosts, unequal links; nothing is shared. Slow enough for two cores to do the work of so many."""
    rate, latency = MEGABYTES * 4 / count, 5e-4 * count
    device = Device("emulated", 0, 1 << 32, 1e12, MEMORY, 1e-4)
    for name, first, rates in (
        ("one host", count, (100, 100)),
        ("two hosts", count // 2 + 1, (200, 50)),
        ("unequal", count, (150, 60)),
    ):
        host = [int(d >= first) for d in range(count)]
        links = [
            Link(
                (a, b),
                rates[host[a] != host[b] if first < count else (a * b + a + b) % 2] * rate,
                latency,
            )
            for a in range(count)
            for b in range(count)
            if a != b
        ]
        devices = tuple(replace(device, host=h) for h in host)
        yield MachineModel(devices, tuple(links), name)


class Ratio(NamedTuple):
    """Measured over predicted seconds: of the step, and until its first collective has ended everywhere.

    The simulation begins a row when all its devices are ready and ends it on all at once. A rank goes on as soon as its
    part is there, so a step of several collectives may take less than predicted; the first of them may not.
    """

    step: float
    first: float


def measured(case: Case, steps: int) -> tuple[float, Ratio]:
    """Predicted seconds of the step, and the medians over some steps, the first left out."""
    transport, task_graph, costs = connect(), case.lower(), CostModel.analytic(case.machine)
    told = simulate(task_graph, costs)
    row = int(np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)[0])
    feeds, taken = fed(case.name, np.ones((len(case.devices), *case.shape))), []
    with Executor(task_graph, costs=costs, record=True) as step:
        for _ in range(steps + 1):
            assert np.all(step(feeds)["whole"] == len(case.devices))
            took = step.timeline
            taken.append(transport.gather((took.seconds, took.end[row])))
    seconds, ended = np.median(
        np.nanmax(taken[1:], axis=1), axis=0
    )  # over the ranks, then over the steps
    return told.seconds, Ratio(float(seconds / told.seconds), float(ended / told.end[row]))


def compare(steps: int) -> None:
    """A rank of the second table: measured over predicted of every algorithm."""
    transport, ratios = connect(), dict[str, Ratio]()
    count = transport.size
    for machine in emulated(count):
        for name, algorithm in NAMED:
            for size in SIZES if name == "all-reduce" else SIZES[1:2]:
                shape = (size // 8 // WIDTH, WIDTH) if name == "all-to-all" else (size // 8,)
                predicted, ratio = measured(
                    Case(name, algorithm, machine, shape, tuple(range(count))), steps
                )
                ratios[f"{name} by {algorithm}, {size} B, {machine.name}"] = ratio
                if transport.rank == 0:
                    print(
                        f"{count} ranks, {machine.name:10s}{name:15s}{algorithm:24s}{size:>8d} B"
                        f"{predicted * 1e3:8.1f} ms {ratio.step:6.3f} {ratio.first:6.3f}",
                        flush=True,
                    )
    if transport.rank:
        return
    for what, least in (("step", 0.0), ("first", LEAST)):
        found = {name: getattr(ratio, what) for name, ratio in ratios.items()}
        low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        is_ok = least <= found[low] and found[high] <= MOST
        print(
            f"{count} emulated ranks, {what}, measured/predicted: {found[low]:.3f} ({low}) to {found[high]:.3f} "
            f"({high}) of {len(found)} (at least {least}, at most {MOST}): {'ok' if is_ok else 'MISSED'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--steps", type=int, default=7, help="of which the median counts")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        compare(options.steps) if options.emulated else sums()
        return
    bits: dict[str, set[str]] = {}
    runs = 0
    for ranks in options.ranks or ((4, 8) if options.emulated else LAYOUTS):
        command = [
            "mpirun",
            "--oversubscribe",
            "-n",
            str(ranks),
            sys.executable,
            "-m",
            "benchmarks.collective_runs",
            "--rank",
        ]
        command += ["--emulated"] * options.emulated + ["--steps", str(options.steps)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=launch_environment(os.environ, ranks)
        ) as process:
            for line in process.stdout:
                if line.startswith("CASE "):
                    case, found = line[5:].rsplit(": ", 1)
                    bits.setdefault(case, set()).add(found)
                    runs += 1
                else:
                    print(line, end="", flush=True)
        if process.returncode:
            sys.exit(f"{ranks} ranks: MISSED")
        if not options.emulated:
            print(f"{ranks} ranks: {runs} runs until now", flush=True)
    if not options.emulated:
        apart = [case for case, found in bits.items() if len(found) > 1]
        print(f"sums: {runs} runs of {len(bits)} cases equal NumPy's to {TOLERANCE}: ok")
        print(
            f"bits: equal from run to run; between transports and ranks {len(apart)} of {len(bits)} cases differ: "
            f"{'MISSED, ' + apart[0] if apart else 'ok'}"
        )


if __name__ == "__main__":
    main()
