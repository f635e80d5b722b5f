"""Machines on which so many devices exchange by copies, and more of them in collectives; graphs of one collective."""

import numpy as np

from taskflow import Graph, Kind, MachineModel, ParallelConfig, Strategy, lower
from taskflow.collective.algorithms import ALGORITHMS, serving

NAMED = [(name, each) for each, algorithm in ALGORITHMS.items() for name in algorithm.serves]
NAMED += [("all-to-all", each) for each in serving("all-to-all")]
ONCE = "reduce-scatter", "reduce", "all-to-all"  # every element is read once


def by_copies(machine: MachineModel, devices: int) -> MachineModel:
    """`devices`: 1, or all of the machine's, or 4 as by default."""
    named = {1: "fastest", len(machine.devices): "copies"}.get(devices)
    if named is None:
        assert devices == 4
        return machine
    return machine.with_collectives({"all-reduce": named, "all-gather": named, "all-to-all": named})


def one_collective(name, algorithm, machine, shape, devices=None):
    """A graph whose one collective moves a box of `shape`, lowered; the algorithm of its rows is checked.

    Output `whole` is the box as every device that gets it has it: once, or as often as there are devices. Input `x` is
    a partial sum for each device. An all-to-all is from tiles of the first dimension to tiles of the second.
    """
    devices = devices or tuple(range(len(machine.devices)))
    points, axes = len(devices), " ".join("nmk"[: len(shape)])
    graph = Graph()
    x = graph.input("x", (points, *shape), "float64")
    named = {"all-reduce": "fastest", "all-gather": "fastest"} | {name: algorithm}
    many, one, tiles = (
        ParallelConfig(*c)
        for c in (({"d": points}, devices), ({}, devices[-1:]), ({"n": points}, devices))
    )
    sums = name in ("all-reduce", "reduce-scatter", "reduce")
    made = graph.launch("made", f"d {axes} -> {axes}", [x], kernel=_sum)
    if not sums:
        made = graph.launch("held", f"{axes} -> {axes}", [made], kernel=_copy)
    if name in ONCE:
        whole = graph.launch("read", f"{axes} -> {axes}", [made], kernel=_copy)
    else:
        z = graph.input("z", (points,), "float64")
        whole = graph.launch("read", f"{axes}, d -> d {axes}", [made, z], kernel=_spread)
    graph.output("whole", whole)
    across = ParallelConfig({"m": (count := min(points, shape[-1]))}, devices[:count])
    reads = {"reduce-scatter": tiles, "reduce": one, "all-to-all": across}.get(name, many)
    strategy = (
        {"made": many, "read": reads}
        if sums
        else {"made": one, "held": one if name == "broadcast" else tiles, "read": reads}
    )
    task_graph = lower(graph, Strategy(strategy), machine, collectives=named)
    found = {
        t.collective: task_graph.ways[task_graph.algorithm[t.row]].algorithm
        for t in task_graph
        if t.kind == Kind.COLLECTIVE
    }
    return task_graph, found


def fed(name, x):
    """The feeds of `one_collective`."""
    return {"x": x} if name in ONCE else {"x": x, "z": np.zeros(len(x))}


def _sum(ctx, x, y):
    np.sum(x, axis=0, out=y)


def _copy(ctx, x, y):
    y[...] = x


def _spread(ctx, x, z, y):
    y[...] = x
