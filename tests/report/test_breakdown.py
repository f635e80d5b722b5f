"""A step divided among its operators: by hand for a chain, by sums for random strategies."""

import pytest

from taskflow import (
    Device,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    lower,
    random_strategy,
    simulate,
)
from taskflow.report.breakdown import PathPart, RegionMovement, Share, break_down
from tests import tiny
from tests.simple_costs import SimpleCosts

TWO = MachineModel.uniform(2, Device("emulated"))


def by_leader(op):
    return op.follows or op.name


def divide(graph, strategy, machine=TWO, group_of=by_leader):
    return break_down(
        simulate(lower(graph, strategy, machine), SimpleCosts(machine)), graph, group_of
    )


def network():
    graph = Graph()
    x = graph.input("x", (8, 6))
    tiny.sgd(tiny.mean_square(tiny.tanh(tiny.linear(x, 4))))
    return graph


def test_a_chain_over_two_devices():
    """x (8 numbers of 8 bytes) -> a on device 0 -> b on device 1 -> the output, fetched on both."""
    graph = Graph()
    a = graph.launch(
        "a", "b -> b", [graph.input("x", (8,), "float64")], kernel=tiny._copy, flops=5.0
    )
    graph.output("y", graph.launch("b", "b -> b", [a], kernel=tiny._copy, flops=3.0))
    found = divide(graph, Strategy({"a": ParallelConfig({}, (0,)), "b": ParallelConfig({}, (1,))}))
    assert found.seconds == pytest.approx(192e-6)
    assert (found.compute_seconds, found.communication_seconds) == pytest.approx((40e-6, 64e-6))
    assert found.bytes_moved == 128 and found.exposed_seconds == pytest.approx(128e-6)
    assert found.shares["a"] == Share(pytest.approx(40e-6), pytest.approx(64e-6), 64)
    assert found.shares["b"] == Share(pytest.approx(24e-6), pytest.approx(64e-6), 64)
    assert found.movements == (
        RegionMovement("a", "a", "a", "copy", 64),
        RegionMovement("b", "b", "b", "copy", 64),
    )
    assert found.path == (
        PathPart("x", "", "feed", 1, 0.0),
        PathPart("a", "a", "compute", 1, pytest.approx(40e-6)),
        PathPart("a", "a", "communication", 1, pytest.approx(64e-6)),
        PathPart("b", "b", "compute", 1, pytest.approx(24e-6)),
        PathPart("b", "b", "communication", 1, pytest.approx(64e-6)),
    )


def test_a_gradient_counts_for_its_operator_and_a_parameter_for_its_update():
    graph = network()
    strategy = Strategy({name: ParallelConfig({"b": 2}) for name in ("fc", "tanh", "loss")})
    assert [
        (m.region, m.producer, m.group, m.collective) for m in divide(graph, strategy).movements[:1]
    ] == [("fc.dweight", "fc.dweight", "fc", "all-reduce")]
    strategy["fc.weight.update"] = ParallelConfig({"o": 2})
    found = divide(
        graph, strategy, group_of=lambda op: op.name if op.name in strategy else by_leader(op)
    )
    moved = {m.region: (m.producer, m.group, m.collective, m.bytes) for m in found.movements}
    assert moved["fc.dweight"] == ("fc.dweight", "fc", "reduce-scatter", 96)
    assert moved["fc.weight"] == ("fc.weight.update", "fc.weight.update", "all-gather", 96)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost(seed):
    graph, machine = network(), MachineModel.uniform(3, Device("emulated"))
    found = divide(graph, random_strategy(graph, machine, seed), machine)
    assert sum(part.seconds for part in found.path) == pytest.approx(found.seconds)
    assert sum(
        found.path_seconds(r) for r in ("compute", "communication", "feed")
    ) == pytest.approx(found.seconds)
    assert sum(m.bytes for m in found.movements) == found.bytes_moved
    assert sum(share.bytes_moved for share in found.shares.values()) == found.bytes_moved
    assert max(
        share.compute_seconds for share in found.shares.values()
    ) <= found.compute_seconds * (1 + 1e-12)
    assert set(found.shares) == {"fc", "tanh", "loss"}
