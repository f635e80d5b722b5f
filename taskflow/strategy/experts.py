"""Strategies that place whole operators: the rules of experts for recurrent networks and for large tables.

Takes a graph and a machine; gives a Strategy. `rules` splits operators, these choose their devices as well.
"""

from __future__ import annotations

from math import prod

import numpy as np

from taskflow.graph.graph import Graph, Operator
from taskflow.machine import MachineModel
from taskflow.strategy.rules import along, data_parallel, leaders, sample_axes
from taskflow.strategy.strategy import ParallelConfig, Strategy


def operator_placement(graph: Graph, machine: MachineModel) -> Strategy:
    """Data parallel across hosts; within each host, layers on different devices.

    Operators of one depth share a device: the depths are cut into stages of about equal operations, one per device of a
    host. Encoder and decoder lie beside each other, as in Wu et al., arXiv 1609.08144 (2016); FlexFlow (Jia, Zaharia
    and Aiken, MLSys 2019) compares its recurrent networks with this rule.
    """
    sample = sample_axes(graph)
    chosen: dict[str, ParallelConfig] = {}
    for name, middle in _middles(graph).items():
        devices = [host[min(int(middle * len(host)), len(host) - 1)] for host in machine.hosts]
        chosen[name] = along(graph.operator(name), sample.get(name), devices)
    return Strategy.of_graph(graph, chosen)


def placed_tables(graph: Graph, machine: MachineModel) -> Strategy:
    """Data parallel, but each table whole on one device, that with the fewest bytes of tables so far; largest first.

    A table is a parameter of more elements than all operations of its readers: most of it is not even read in a step,
    yet data parallelism would exchange a gradient of all of it.
    """
    strategy, held = data_parallel(graph, machine), [0] * len(machine.devices)
    tables = _tables(graph)
    for table in sorted(tables, key=lambda name: -graph.regions[name].size_bytes):
        device = held.index(min(held))
        held[device] += graph.regions[table].size_bytes
        strategy.update({op.name: ParallelConfig({}, (device,)) for op in tables[table]})
    return strategy


def _middles(graph: Graph) -> dict[str, float]:
    """Operator -> where the middle of its depth lies within the operations of a step, from 0 to 1."""
    depths = _depths(graph)
    flops = np.zeros(max(depths.values(), default=0) + 1)
    for op in graph.operators:
        flops[depths[op.follows or op.name]] += _flops(op)
    ends = np.cumsum(flops)
    middles = (ends - flops / 2) / max(ends[-1], 1.0)
    return {name: float(middles[depth]) for name, depth in depths.items()}


def _depths(graph: Graph) -> dict[str, int]:
    """Operator -> how many lie before it, each the first input of the next.

    Successive ones that share a parameter (the steps of a recurrent layer) have one depth: two devices would need it.
    """
    depths: dict[str, int] = {}
    made: dict[str, int] = {}  # region -> depth of the operators that read it first
    held: set[str] = set()
    depth = 0
    for op in graph.operators:
        if op.follows is None:
            parameters = {r.name for r in op.inputs if r.role == "parameter"}
            if not parameters & held:
                depth, held = made.get(op.inputs[0].name, 0) if op.inputs else 0, set()
            depths[op.name], held = depth, held | parameters
        made.update({r.name: depths.get(op.follows or op.name, 0) + 1 for r in op.outputs})
    return depths


def _tables(graph: Graph) -> dict[str, list[Operator]]:
    """Tables (see `placed_tables`) and their readers."""
    readers: dict[str, list[Operator]] = {}
    for op in leaders(graph):
        for region in op.inputs:
            if region.role == "parameter":
                readers.setdefault(region.name, []).append(op)
    return {n: ops for n, ops in readers.items() if sum(map(_flops, ops)) < prod(graph.regions[n].shape)}


def _flops(op: Operator) -> float:
    return op.flops * prod(op.extents.values())
