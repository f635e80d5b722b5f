"""SpaceTables and arrivals: what they say of operators and pairs is what the whole graph, lowered, says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import CostModel, Device, Graph, Kind, MachineModel, Strategy, lower
from taskflow.searching.space import Space, power_of_two
from taskflow.searching.tables import NEVER, SpaceTables, movements
from taskflow.tasks.streams import StreamTable
from tests import tiny
from tests.strategies import examples, graphs

MACHINE = MachineModel.uniform(2, Device("emulated", 0, 1 << 30, 1e8, 1e9, 1e-6), 1e6, 1e-5)
COSTS = CostModel.analytic(MACHINE)
RECEIVING = StreamTable(MACHINE).receiving


def tables_of(graph, lists=((0,), (1,), (0, 1))):
    return SpaceTables(Space(graph, MACHINE, power_of_two, lists), COSTS)


def drawn(tables, seed):
    """A strategy by numbers, and it lowered whole."""
    generator = np.random.default_rng(seed)
    numbers = [int(generator.integers(len(configs))) for configs in tables.configs]
    strategy = Strategy(
        {n: c[k] for n, c, k in zip(tables.space.names, tables.configs, numbers, strict=True)}
    )
    return numbers, lower(tables.space.graph, strategy, MACHINE)


@examples(50)
@given(graphs(steps=3), st.integers(0, 2**32 - 1))
def test_points_take_what_they_take_in_the_whole_graph(model, seed):
    tables = tables_of(model.graph)
    numbers, task_graph = drawn(tables, seed)
    seconds = COSTS.seconds(task_graph)
    for row in np.flatnonzero(task_graph.kind == Kind.POINT).tolist():
        k, p = int(task_graph.launch[row]), int(task_graph.point[row])
        config = numbers[tables.family[k]]
        assert tables.seconds[k][config, p] == seconds[row]
        assert tables.device[k][config, p] == task_graph.device[row]


@examples(25)
@given(graphs(steps=2), st.integers(0, 2**32 - 1))
def test_movement_is_that_of_the_whole_graph(model, seed):
    tables = tables_of(model.graph, [(0,), (0, 1)])
    found = movements(tables)
    numbers, task_graph = drawn(tables, seed)
    seconds = COSTS.seconds(task_graph)
    behind = np.maximum.accumulate(np.where(task_graph.kind == Kind.POINT, task_graph.launch, -1))
    names = np.array([task_graph.name(row) for row in range(len(task_graph))])
    for movement in found:
        arrives = task_graph.streams[:, 0] == RECEIVING[task_graph.device]
        rows = (
            arrives
            & (task_graph.kind != Kind.POINT)
            & (behind == movement.writer)
            & (names == movement.region)
        )
        own = tables.family[movement.writer]
        at = numbers[own], 0 if movement.other == own else numbers[movement.other]
        expected = np.bincount(task_graph.device[rows], seconds[rows], 2)
        assert movement.seconds[at] == pytest.approx(expected)


def test_delays_between_two_layers():
    """x (4, 2) -> tanh -> tanh: a tile of float64 on another device takes 10 us + bytes / 1e6."""
    graph = Graph()
    tiny.tanh(tiny.tanh(graph.input("x", (4, 2), "float64")))
    tables = tables_of(graph)
    names = [str(c) for c in tables.configs[0]]
    here, there, split = (names.index(n) for n in ("whole on 0", "whole on 1", "b:2 on 0,1"))
    delays = tables.delays(tables.edges[0])
    assert delays.shape == (len(names), len(names), 2, 2)
    assert delays[here, here, 0, 0] == 0.0
    assert delays[here, there, 0, 0] == pytest.approx(1e-5 + 64e-6)
    assert delays[here, split, 0].tolist() == pytest.approx([0.0, 1e-5 + 32e-6])
    assert delays[split, split].tolist() == [[0.0, NEVER], [NEVER, 0.0]]


def test_what_waits_for_two_rows_waits_for_both():
    """The sum of two partial results, needed whole on both devices: a half each, summed, and the other half."""
    graph = Graph()
    tiny.tanh(tiny.linear(graph.input("x", (4, 2), "float64"), 2))
    tables = tables_of(graph, [(0,), (0, 1)])
    [movement] = [m for m in movements(tables) if m.region == "fc"]
    first, second = ([str(c) for c in configs] for configs in tables.configs)
    at = first.index("i:2 on 0,1"), second.index("b:2 on 0,1")
    [(edge, waits)] = movement.waits.items()
    assert (edge.writer, edge.reader) == (0, 1)
    assert (waits[at] > movement.seconds[at]).all() and movement.seconds[
        at
    ].min() > 1e-5  # a sum comes between both
    assert movement.seconds[first.index("b:2 on 0,1"), second.index("b:2 on 0,1")].tolist() == [
        0.0,
        0.0,
    ]
