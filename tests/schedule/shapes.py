"""Placements of `placements.py` as models: a cell a block, joint backward passes, rows and what a cell costs."""

from typing import NamedTuple

import ops
from taskflow import Graph, lower, stages
from tests.schedule.cells import CellCosts, cell, chain, shift


class Shape(NamedTuple):
    """A model on a machine.

    Attributes:
        graph, rows: of the model, and of its stages.
        joint: units of a backward pass.
        bound: no step takes fewer units.
    """

    graph: Graph
    rows: object
    joint: float
    bound: float

    def costs(self, unit_seconds=1.0):
        """Seconds of cells."""
        return CellCosts(unit_seconds, unit_seconds, unit_seconds, self.joint * unit_seconds)


def shape(graph, machine, parts, devices, cuts, joint, bound):
    plan = stages(graph, machine, parts=parts, cuts=cuts, devices=devices)
    return Shape(graph, lower(graph, plan, machine), joint, bound)


def cuts_of(count):
    return [f"cell{k}" for k in range(1, count)]


def v_shape(machine, parts):
    """A cell a device."""
    count = len(machine.devices)
    graph = chain(count, parts, is_joint=True)
    return shape(
        graph,
        machine,
        parts,
        [(d,) for d in range(count)],
        cuts_of(count),
        2,
        3 * (parts + count - 1),
    )


def nn_shape(machine, parts):
    """Two cells a device, through all devices twice."""
    count = len(machine.devices)
    graph = chain(2 * count, parts, is_joint=True)
    devices = [(d,) for _ in range(2) for d in range(count)]
    return shape(graph, machine, parts, devices, cuts_of(2 * count), 2, 6 * parts + 3 * (count - 1))


def zbv_shape(machine, parts):
    """Two cells a device, there and back; a backward pass is two blocks."""
    count = len(machine.devices)
    graph, way = chain(2 * count, parts), (*range(count), *reversed(range(count)))
    return shape(
        graph, machine, parts, [(d,) for d in way], cuts_of(2 * count), 2, 6 * parts + count - 1
    )


def x_shape(machine, parts):
    """Two pipelines through the same devices in opposite directions, half of the micro-batches each."""
    count = len(machine.devices)
    graph, devices = chain(count, parts, is_joint=True), [(d, count - 1 - d) for d in range(count)]
    return shape(graph, machine, parts // 2, devices, cuts_of(count), 2, 3 * parts)


def m_shape(machine, parts):
    """A cell a device, then one on all devices, which take a part of each micro-batch."""
    count = len(machine.devices)
    graph, devices = (
        chain(count + 1, count * parts, is_joint=True),
        [*((d,) for d in range(count)), range(count)],
    )
    return shape(graph, machine, parts, devices, cuts_of(count + 1), 3, 8 * parts + 4 * (count - 1))


def k_shape(machine, parts):
    """Two branches of two cells, on two devices each, and what joins them, on all four."""
    graph, ends = Graph(), []
    x = graph.input("x", (4 * parts, 4), "float64")
    for branch in "ab":
        h = cell(shift(x, f"shift_{branch}"), f"cell_{branch}0", is_joint=True)
        ends.append(cell(h, f"cell_{branch}1", is_joint=True))
    both = cell(ops.add(*ends, name="join"), "cell_ab", is_joint=True)
    ops.sgd(
        ops.softmax_cross_entropy(both, graph.input("t", (4 * parts,), "int32"), name="loss"),
        lr=0.1,
    )
    cuts, devices = ["cell_a1", "shift_b", "cell_b1", "join"], [*((d,) for d in range(4)), range(4)]
    return shape(graph, machine, parts, devices, cuts, 2, 6 * parts + 3)


SHAPES = {"V": v_shape, "M": m_shape, "K": k_shape, "X": x_shape, "NN": nn_shape, "ZBV": zbv_shape}


def shapes_on(machine):
    """Those that a machine has enough devices for, by name."""
    return {name: make for name, make in SHAPES.items() if name != "K" or len(machine.devices) == 4}
