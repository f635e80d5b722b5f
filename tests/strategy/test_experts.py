"""Strategies that place whole operators: their exact configurations, and the numbers of one device."""

from dataclasses import replace

import numpy as np
import pytest

import ops
from taskflow import (
    Device,
    Executor,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    data_parallel,
    lower,
    operator_placement,
    placed_tables,
    single_device,
)


def hosts(*sizes: int) -> MachineModel:
    """Hosts of so many devices each."""
    devices = tuple(Device(host=host) for host, size in enumerate(sizes) for _ in range(size))
    return replace(MachineModel.uniform(len(devices)), devices=devices)


def towers() -> Graph:
    """Two chains of three layers, 4, 4 and 8 operations (times 64) at the depths 0, 1 and 2; their heads are joined."""
    graph = Graph()
    heads = []
    for side in "ab":
        h = graph.input(f"x_{side}", (4, 8), "float64")
        for k, width in enumerate((8, 8, 16)):
            h = ops.linear(h, width, bias=False, name=f"{side}{k}")
        heads.append(h)
    graph.output("y", ops.add(*heads, name="add"))
    return graph


def recurrent(batch: int = 4) -> Graph:
    """Words, one recurrent layer of three operators that share weights, and classes."""
    graph = Graph()
    words, t = graph.input("words", (batch, 3), "int32"), graph.input("t", (batch,), "int32")
    x = ops.embedding(words, 50, 5, name="embed", dtype="float64")
    hs, _ = ops.lstm_steps(ops.split(x, 1, 1, name="split"), 6, name="lstm")
    y = ops.linear(ops.flatten(hs[-1], name="last"), 3, name="fc")
    loss = ops.softmax_cross_entropy(y, t, name="loss")
    graph.output("loss", loss)
    ops.sgd(loss, lr=0.1)
    return graph


def test_depths_are_cut_into_stages_of_equal_operations() -> None:
    assert dict(operator_placement(towers(), hosts(2))) == {
        "a0": ParallelConfig({"b": 1}, (0,)),
        "a1": ParallelConfig({"b": 1}, (0,)),
        "a2": ParallelConfig({"b": 1}, (1,)),
        "b0": ParallelConfig({"b": 1}, (0,)),
        "b1": ParallelConfig({"b": 1}, (0,)),
        "b2": ParallelConfig({"b": 1}, (1,)),
        "add": ParallelConfig({"b": 1}, (1,)),
    }


def test_each_host_has_a_part_of_the_batch_and_stages_of_its_own() -> None:
    strategy = operator_placement(towers(), hosts(1, 2, 4))
    found = {name: strategy[name] for name in ("b0", "b1", "b2", "add")}
    assert found == {
        "b0": ParallelConfig({"b": 3}, (0, 1, 3)),
        "b1": ParallelConfig({"b": 3}, (0, 1, 4)),
        "b2": ParallelConfig({"b": 3}, (0, 2, 5)),
        "add": ParallelConfig({"b": 3}, (0, 2, 6)),
    }


def test_hosts_beyond_the_batch_idle() -> None:
    assert operator_placement(towers(), hosts(1, 1, 1, 1, 1, 1))["a0"] == ParallelConfig(
        {"b": 4}, (0, 1, 2, 3)
    )


def test_steps_that_share_weights_share_a_device() -> None:
    strategy = operator_placement(recurrent(), hosts(8))
    assert len({strategy[f"lstm.l0.t{k}"].devices for k in range(3)}) == 1
    assert strategy["embed"].devices < strategy["lstm.l0.t0"].devices < strategy["fc"].devices


def test_tables_are_dealt_and_the_rest_is_data_parallel() -> None:
    graph = Graph()
    x = graph.input("x", (4, 2), "int32")
    rows = {
        "small": 30,
        "large": 50,
        "middle": 40,
        "short": 8,
    }  # the last has fewer elements than are looked up in it
    found = [ops.embedding(x, count, 3, name=name) for name, count in rows.items()]
    graph.output("y", ops.concat(found, 2, name="concat"))
    whole, split = lambda device: ParallelConfig({}, (device,)), ParallelConfig({"b": 2})
    assert dict(placed_tables(graph, hosts(2))) == {
        "small": whole(1),
        "large": whole(0),
        "middle": whole(1),
        "short": split,
        "concat": split,
    }


def test_a_table_that_another_operator_reads_whole_is_none() -> None:
    graph = Graph()
    x = ops.embedding(graph.input("x", (4, 2), "int32"), 50, 3, name="embed")
    graph.output("y", ops.einsum("bse,ve->bsv", x, graph.regions["embed.weight"], name="fc"))
    assert placed_tables(graph, hosts(2))["embed"] == ParallelConfig({"b": 2})


@pytest.mark.parametrize("rule", [operator_placement, placed_tables])
def test_numbers_are_those_of_one_device(rule) -> None:
    graph, machine, random = recurrent(), hosts(2, 2), np.random.default_rng(0)
    words = random.integers(0, 50, (4, 3), dtype="int32")
    feeds = {"words": words, "t": random.integers(0, 3, 4, dtype="int32")}

    def train(strategy: Strategy) -> list[float]:
        with Executor(lower(graph, strategy, machine), seed=1) as step:
            return [float(step(feeds)["loss"]) for _ in range(3)]

    np.testing.assert_allclose(
        train(rule(graph, machine)), train(single_device(graph, machine)), rtol=1e-10
    )


def test_experts_are_data_parallel_along_their_slots() -> None:
    """Their weights are on every device, as those of other operators; a scalar behind the batch, too."""
    graph = Graph()
    x, t = graph.input("x", (8, 6), "float64"), graph.input("t", (8, 6), "float64")
    y, balance = ops.mixture_of_experts(x, 3, 5, name="experts")
    ops.sgd(
        ops.add(
            ops.mean_squared_error(y, t), ops.multiply(balance, 0.1, name="scaled"), name="loss"
        ),
        0.1,
    )
    machine = MachineModel.uniform(4)
    strategy = data_parallel(graph, machine)
    assert strategy["experts.up"] == ParallelConfig({"c": 4}, (0, 1, 2, 3))
    assert strategy["experts.gate"].degrees == strategy["experts.dispatch"].degrees == (("b", 4),)
    assert strategy["scaled"] == ParallelConfig({"replicas": 4}, (0, 1, 2, 3))
    feeds = {name: np.random.default_rng(0).standard_normal((8, 6)) for name in "xt"}
    found = []
    for chosen in (strategy, single_device(graph, machine)):
        with Executor(lower(graph, chosen, machine), seed=0) as step:
            losses = [step(feeds)["loss"] for _ in range(3)]
            found.append((losses, step.read("experts.up.weight")))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
