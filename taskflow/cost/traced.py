"""Costs from a trace: what a job of PyTorch took, put onto the rows of a graph of it.

Operators of both are of families ("dense", "norm", ...) and of forward, backward or update; what is of one family and
part is a class. The rows of the job that was traced say how much work each class is; from then on a row takes

    factor of its class x (seconds by the roofline of its device, or by the products of its size in the trace) + share

where the share is of all that has no row: the interpreter, gaps, operators without counterpart. So the traced step has
the seconds that it took, and another batch or split of it what its work says. `match_table` says what was put where.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs

from taskflow.core.files import fit, naming, parse_json, read_text, replace_file, without_head
from taskflow.cost.model import AnalyticCosts, CostModel
from taskflow.cost.traces import UPDATE, Trace, TracedCollective, TracedOperator
from taskflow.graph.phases import Phase
from taskflow.machine import MachineModel
from taskflow.machine.library import LibraryTimes
from taskflow.tasks.task_graph import Array, Kind, Launch, TaskGraph

FORMAT = "taskflow-traced-costs"
VERSION = 1
_PARTS = {Phase.FORWARD: "forward", Phase.BACKWARD: "backward", Phase.WEIGHT: "backward"}
_OTHERS = "others"  # rows of no class that was traced
_LEAST_PRODUCTS = 2  # of different sizes, for a curve


class TracedClasses(Struct, forbid_unknown_fields=True):
    """What a file of traced costs says.

    Attributes:
        factors: class -> how many times the roofline its rows take; "others" are all without a class.
        share_seconds: of every row on a device.
        products: (flops, seconds per flop) of products in the trace, by size.
    """

    factors: dict[str, float]
    share_seconds: float
    products: list[tuple[float, float]] = []


class Match(NamedTuple):
    """A class: what it took in the trace, and how many rows have it now; "" in `name` is what has no rows."""

    name: str
    traced: tuple[str, ...]
    traced_seconds: float
    rows: int
    roofline_seconds: float


class TracedCosts(CostModel):
    """See the module.

    Args:
        machine: as for `CostModel.analytic`.
        classes: of a trace.
    """

    is_shared_out = False

    def __init__(self, machine: MachineModel, classes: TracedClasses) -> None:
        super().__init__(machine)
        self.classes = classes
        self._work = AnalyticCosts(machine)
        self.within = self._work.within

    @staticmethod
    def load(path: str | Path, machine: MachineModel) -> TracedCosts:
        """Costs that were saved; ValueError: what is wrong in the file."""
        with naming(f"cost file '{path}'"):
            table = without_head(parse_json(read_text(path)), FORMAT, VERSION)
            return TracedCosts(machine, fit(table, TracedClasses))

    def save(self, path: str | Path) -> None:
        """Write a file, atomically."""
        table = {"format": FORMAT, "version": VERSION, **structs.asdict(self.classes)}
        replace_file(path, json.dumps(table, indent=1) + "\n")

    def on(self, machine: MachineModel) -> CostModel:
        """The same factors of another machine's roofline."""
        return TracedCosts(machine, self.classes)

    def source(self, task_graph: TaskGraph, row: int) -> str:
        """The class and its factor."""
        if task_graph.kind[row] != Kind.POINT:
            return self._work.source(task_graph, row)
        name = class_of(task_graph.launches[int(task_graph.launch[row])])
        name = name if name in self.classes.factors else _OTHERS
        return f"trace: {name}, {self.classes.factors[name]:.3g} x the roofline"

    def _points(self, task_graph: TaskGraph, rows: Array) -> Array:
        classes = self.classes
        names = [class_of(launch) for launch in task_graph.launches]
        factors = np.array([classes.factors.get(n, classes.factors[_OTHERS]) for n in names])
        seconds = work_seconds(self._work, task_graph, rows, classes.products)
        shared: Array = factors[task_graph.launch[rows]] * seconds + classes.share_seconds
        return shared


def is_traced(path: str | Path) -> bool:
    """Whether a file is one of these costs."""
    return Path(path).is_file() and f'"{FORMAT}"' in read_text(path)[:200]


def class_of(launch: Launch) -> str:
    """The family of a launch, by the folder of its kernel, and its part of a step."""
    if launch.phase == Phase.UPDATE:
        return UPDATE
    *folders, module = launch.kernel.function.__module__.split(".")
    return f"{folders[-1] if folders else module} {_PARTS[launch.phase]}"


def work_seconds(
    costs: AnalyticCosts,
    task_graph: TaskGraph,
    rows: Array,
    products: Sequence[tuple[float, float]],
) -> Array:
    """Of points, before factors: by the rate of traced products of their size where they are products, else a roofline.

    What is launched for nothing is in the shares of a trace, so the roofline is without.
    """
    device = task_graph.device[rows]
    seconds: Array = costs._points(task_graph, rows) - costs.within.overhead[device]
    if products:
        size, rate = np.array(products).T
        dense = np.array([class_of(launch).startswith("dense ") for launch in task_graph.launches])
        here = dense[task_graph.launch[rows]]
        flops = task_graph.flops[rows][here]
        slower = costs.within.flops[0][0] / costs.within.flops[0][device[here]]
        seconds[here] = (
            flops * np.interp(np.log(np.maximum(flops, 1.0)), np.log(size), rate) * slower
        )
    return seconds


def trace_costs(
    trace: Trace, task_graph: TaskGraph, device: int = 0
) -> tuple[TracedCosts, list[Match]]:
    """Costs of a job from a trace of one of its devices, and what was matched.

    Args:
        trace: of `read_trace`.
        task_graph: the rows of the job that was traced: its sizes, its plan. Their machine has the links; library times
            of the trace's collectives are added to those that it has.
        device: whose rows the trace is of.

    Raises:
        ValueError: the device has no rows, or nothing of the trace is like them.
    """
    analytic = AnalyticCosts(with_collectives(task_graph.machine, trace.collectives))
    here = task_graph.device == device
    rows = np.flatnonzero((task_graph.kind == Kind.POINT) & here)
    if not len(rows):
        raise ValueError(f"trace: device {device} computes nothing")
    products = _products(trace)
    work = work_seconds(analytic, task_graph, rows, products)
    names = [class_of(task_graph.launches[k]) for k in task_graph.launch[rows].tolist()]
    matches = _matches(trace, names, work)
    compared = [match for match in matches if match.traced_seconds > 0 < match.roofline_seconds]
    if not compared:
        raise ValueError("trace: none of its operators is of the family of a row")
    factors = {match.name: match.traced_seconds / match.roofline_seconds for match in compared}
    factors[_OTHERS] = _ratio(compared)
    moves = here & ~task_graph.is_communication & (task_graph.kind != Kind.POINT)
    moved = float(analytic.seconds(task_graph)[moves].sum())
    others = sum(match.roofline_seconds for match in matches if match.name not in factors)
    lost = _without_rows(trace, matches) - moved - factors[_OTHERS] * others
    classes = TracedClasses(factors, max(lost, 0.0) / len(rows), products)
    return TracedCosts(analytic.machine, classes), matches


def _matches(trace: Trace, names: Sequence[str], work: Array) -> list[Match]:
    """A match for every class of the rows, whose names and seconds these are, and one for what is of none."""
    rows: dict[str, list[int]] = defaultdict(list)
    for k, name in enumerate(names):
        rows[name].append(k)
    traced: dict[str, list[TracedOperator]] = defaultdict(list)
    for op in trace.operators:
        part = "" if op.family == UPDATE else f" {_PARTS.get(op.phase, '')}"
        traced[name if (name := f"{op.family}{part}") in rows else ""].append(op)
    made = [
        Match(
            name,
            tuple(dict.fromkeys(op.name for op in traced[name])),
            sum(op.seconds for op in traced[name]),
            len(rows.get(name, ())),
            float(work[rows.get(name, [])].sum()),
        )
        for name in ("", *rows)
    ]
    return sorted(made, key=lambda match: -match.traced_seconds)


def _without_rows(trace: Trace, matches: Iterable[Match]) -> float:
    """Seconds of the step that are nobody's: of operators without rows, and between operators but for collectives."""
    together = sum(one.seconds for one in trace.collectives)
    together += sum(trace.unknown_collectives.values())
    alone = sum(match.traced_seconds for match in matches if not match.name)
    return alone + max(trace.gap_seconds - together, 0.0)


def _ratio(matches: Iterable[Match]) -> float:
    traced, roofline = np.array([(m.traced_seconds, m.roofline_seconds) for m in matches]).sum(
        axis=0
    )
    return float(traced / roofline)


def _products(trace: Trace) -> list[tuple[float, float]]:
    """Flops of a product, seconds per flop, of the operators all of whose work are products; by size, sizes once."""
    sizes: dict[float, list[float]] = defaultdict(list)
    for op in trace.operators:
        if op.family == "dense" and op.flops > 0:
            sizes[op.flops / op.calls].append(op.seconds / op.flops)
    is_whole = all(op.flops > 0 for op in trace.operators if op.family == "dense")
    if not is_whole or len(sizes) < _LEAST_PRODUCTS:
        return []
    return [(size, float(np.median(rates))) for size, rates in sorted(sizes.items())]


def with_collectives(
    machine: MachineModel, collectives: Iterable[TracedCollective]
) -> MachineModel:
    """The machine with library times of these collectives, where there are two sizes or more among as many devices.

    How many hosts so many devices are on is that of the machine's first ones. What it has already is kept.
    """
    sizes: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in collectives:
        sizes[one.collective, one.devices][one.bytes].append(one.seconds)
    have = {(t.collective, t.hosts, t.devices) for t in machine.library}
    more = []
    for (name, devices), times in sizes.items():
        hosts = len({d.host for d in machine.devices[:devices]})
        if len(times) > 1 and devices % hosts == 0 and (name, hosts, devices) not in have:
            seconds = tuple(float(np.median(times[size])) for size in sorted(times))
            more.append(LibraryTimes(name, hosts, devices, tuple(sorted(times)), seconds))
    return replace(machine, library=(*machine.library, *more)) if more else machine


def match_table(matches: Sequence[Match], trace: Trace) -> list[tuple[str, ...]]:
    """For people: class, what it took of the step, its rows, how many times the roofline that is, and its operators."""
    head = ("class", "traced ms", "%", "rows", "x roofline", "operators of the trace")
    table: list[tuple[str, ...]] = [head]
    for match in matches:
        ratio = match.traced_seconds / match.roofline_seconds if match.roofline_seconds else 0.0
        table.append(
            (
                match.name or "no rows",
                f"{match.traced_seconds * 1e3:.3f}",
                f"{100 * match.traced_seconds / trace.seconds:.1f}",
                str(match.rows),
                f"{ratio:.3g}" if ratio else "",
                ", ".join(match.traced[:4]) + (", ..." if len(match.traced) > 4 else ""),
            )
        )
    gap = trace.gap_seconds
    table.append(
        ("between operators", f"{gap * 1e3:.3f}", f"{100 * gap / trace.seconds:.1f}", "", "", "")
    )
    for name, seconds in trace.unknown_collectives.items():
        table.append(
            (name, f"{seconds * 1e3:.3f}", f"{100 * seconds / trace.seconds:.1f}", "", "", "")
        )
    return table
