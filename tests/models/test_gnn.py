"""Graph networks: every kind gives the numbers of one device, however it is split; the application on few vertices."""

import numpy as np
import pytest

import ops
import taskflow
from examples.applications import graphs
from ops.models import gnn
from taskflow import MachineModel
from tests.sampling import crossed

MACHINE = MachineModel.local(devices=4)


def values(graph, strategy, feeds):
    rows = taskflow.lower(graph, strategy, MACHINE)
    taskflow.check_plan(graph, rows)
    with taskflow.Executor(rows) as step:
        step(feeds)
        return step(feeds)


@pytest.mark.parametrize("kind, by_stages", crossed([*gnn.KINDS], [False, True]))
def test_any_strategy_gives_the_numbers_of_one_device(kind, by_stages):
    generator = np.random.default_rng(len(kind))
    relation = gnn.normalised(*generator.integers(0, 30, (2, 45)), 30)
    graph = gnn.build(kind, 6, 8, 5, relation, by_stages, dtype="float64")
    feeds = {"x": generator.normal(size=(30, 6)), "t": generator.integers(-1, 5, 30, np.int32)}
    alone = values(graph, taskflow.single_device(graph, MACHINE), feeds)
    for strategy in (
        taskflow.even_work(graph, MACHINE),
        taskflow.random_strategy(graph, MACHINE, int(by_stages)),
    ):
        split = values(graph, strategy, feeds)
        for name, value in alone.items():
            np.testing.assert_allclose(split[name], value, rtol=0, atol=1e-10)


def test_parts_of_edges_take_less_memory_and_give_the_same_loss(capsys):
    (whole, _, loss), (peak, _, same) = (graphs.stream(parts, 9, 1) for parts in (1, 8))
    assert peak < 0.4 * whole and same == pytest.approx(loss, abs=1e-6)
    assert "8 parts: peak" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["gcn", "edgecnn"])
def test_shares_of_stages_add_up(kind):
    shares = graphs.profile(kind, 6, steps=2)
    assert sum(shares.values()) == pytest.approx(1) and min(shares[k] for k in "SG") > 0


@pytest.mark.slow
def test_neighbours_tell_digits():
    assert graphs.learn("gcn", 2, 60) > graphs.regression() + 0.02


def test_of_several_orders_the_narrowest_is_taken():
    """A strip of vertices, numbered at random: neighbours lie as near each other as the strip is wide."""
    row, column = np.divmod(np.arange(120), 4)
    is_edge = (np.abs(row[:, None] - row) <= 1) & (np.abs(column[:, None] - column) <= 1)
    mixed = np.random.default_rng(0).permutation(120)
    targets, sources = np.nonzero(is_edge[np.ix_(mixed, mixed)])
    indptr = np.searchsorted(targets, np.arange(121))

    number = np.argsort(ops.graph_order(indptr, sources))
    assert np.abs(number[sources] - number[targets]).max() <= 2 * 4

    indptr, sources, _ = gnn.normalised(*np.random.default_rng(3).integers(0, 60, (2, 60)), 60)
    targets = np.repeat(np.arange(60), np.diff(indptr))

    def read(starts):
        """By both sides of each cut of the other."""
        number = np.argsort(ops.graph_order(indptr, sources, starts))
        s, t = number[sources], number[targets]
        return sum(s[t < cut].max() - s[t >= cut].min() + 1 for cut in range(1, 60))

    assert read(8) < read(0)


def test_relations_are_in_order():
    indptr, indices, weight = relation = gnn.rmat(6, 3)
    order, again = graphs.in_order(relation)
    assert sorted(order) == list(range(64)) and len(again[1]) == len(indices)
    targets = np.repeat(np.arange(64), np.diff(indptr))
    edges = {*zip(indices.tolist(), targets.tolist(), strict=True)}
    new = np.repeat(np.arange(64), np.diff(again[0]))
    assert edges == {*zip(order[again[1]].tolist(), order[new].tolist(), strict=True)}
    assert weight is not None and weight.max() <= 1
