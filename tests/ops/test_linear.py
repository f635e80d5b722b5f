"""Graphs are built in linear time: twice the layers take twice the lines of Python, whatever is done with them."""

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

import ops
import taskflow
from taskflow import Graph, LogicalRegion, MachineModel
from taskflow.core import tiers


def layers(graph: Graph, count: int, name: str | None = "fc") -> LogicalRegion:
    """The loss of a network of so many layers."""
    h, t = graph.input("x", (4, 8)), graph.input("t", (4,), "int32")
    for k in range(count):
        h = ops.relu(ops.linear(h, 8, name=name and f"{name}{k}"))
    return ops.softmax_cross_entropy(h, t)


def trained(count: int, optimizer: Callable[..., object] = ops.adam, **options: Any) -> Graph:
    graph = Graph()
    optimizer(layers(graph, count), **options)
    return graph


def with_a_group_each(count: int) -> Graph:
    graph = Graph()
    groups = [ops.ParameterGroup(f"fc{k}.*", lr=0.1 / (k + 1)) for k in range(count)]
    ops.sgd(layers(graph, count), 0.1, groups=groups)
    return graph


def by_list(count: int) -> Graph:
    graph = Graph()
    ops.sgd(layers(graph, count), 0.1, parameters=list(graph.parameters))
    return graph


def without_names(count: int) -> Graph:
    graph = Graph()
    ops.sgd(layers(graph, count, name=None), 0.1)
    return graph


def of_tables(count: int) -> Graph:
    graph = Graph()
    looked_up = [ops.embedding(graph.input(f"i{k}", (4,), "int32"), 64, 8) for k in range(count)]
    ops.sgd(
        ops.softmax_cross_entropy(
            ops.linear(ops.concat(looked_up, 1), 4), graph.input("t", (4,), "int32")
        ),
        0.1,
    )
    return graph


def half(count: int) -> Graph:
    graph = Graph()
    loss = layers(graph, count)
    other = taskflow.precision(graph, "float16")
    ops.sgd(other.regions[loss.name], 0.1)
    return other


def recomputed(count: int) -> Graph:
    graph = trained(count, ops.sgd, lr=0.1)
    names = [op.name for op in graph.operators if op.name.startswith("relu") and not op.is_backward]
    return taskflow.recompute(graph, names[:-1])


TWO = MachineModel.uniform(2)
COSTS = taskflow.CostModel.analytic(TWO)


def lowered(count: int) -> taskflow.TaskGraph:
    graph = trained(count)
    return taskflow.lower(graph, taskflow.data_parallel(graph, TWO), TWO)


def in_stages(count: int) -> object:
    graph = trained(count)
    plan = taskflow.Plan(taskflow.stages(graph, TWO, count=2), parts=2, schedule="one_f_one_b")
    return plan.apply(graph, TWO, COSTS)


KINDS: dict[str, Callable[[int], object]] = {
    "adam": trained,
    "clipped": lambda n: trained(n, clip_norm=1.0),
    "lamb": lambda n: trained(n, ops.lamb),
    "adama": lambda n: trained(n, ops.adama, parts=2),
    "groups": with_a_group_each,
    "a list of parameters": by_list,
    "no names": without_names,
    "tables": of_tables,
    "half": half,
    "recomputed": recomputed,
    "segments": lambda n: taskflow.recompute(trained(n, ops.sgd, lr=0.1)),
    "fused": lambda n: taskflow.fuse(trained(n)),
    "homes": lambda n: taskflow.homes(trained(n)),
    "offloaded": lambda n: taskflow.offload(trained(n), [f"fc{k}" for k in range(n)]),
    "data parallel": lambda n: taskflow.data_parallel(trained(n), TWO),
    "lowered": lowered,
    "simulated": lambda n: taskflow.simulate(lowered(n), COSTS),
    "in stages": in_stages,
    "proven": lambda n: taskflow.check_plan(trained(n), lowered(n)),
    "random": lambda n: taskflow.random_strategy(trained(n), TWO, 0),
    "executed": lambda n: taskflow.Executor(lowered(n)).close(),
}


def lines(build: Callable[[int], object], count: int) -> int:
    """Lines of Python that are executed, those of comprehensions once for each turn."""
    re.purge()  # what another run has compiled
    found, outer = 0, sys.gettrace()

    def see(frame: object, event: str, arg: object) -> object:
        nonlocal found
        found += 1
        return see

    sys.settrace(see)  # type: ignore[arg-type]
    try:
        build(count)
    finally:
        sys.settrace(outer)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_twice_the_layers_take_twice_the_lines(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tiers.Temperature, "is_hot", lambda *_: True
    )  # what is compiled has no lines
    KINDS[kind](3)  # what is made once
    first, second, third = (lines(KINDS[kind], count) for count in (10, 20, 40))
    assert (third - second) / (second - first) <= 2.05
