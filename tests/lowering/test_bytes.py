"""Lowering: the bytes of the classic strategies."""

from collections import Counter

import numpy as np
import pytest

import taskflow
from taskflow import MachineModel, ParallelConfig, lower
from taskflow.tasks.memory import plan_memory
from tests import tiny
from tests.lowered import ITEM, lowered, matrix, network, parameter_bytes, transfers


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_data_parallel_all_reduces_gradients_and_moves_nothing_else(devices):
    graph = network()
    task_graph = lower(
        graph, taskflow.data_parallel(graph, machine := MachineModel.uniform(devices)), machine
    )
    gradients = {k: v for k, v in transfers(task_graph).items() if k[0] != "loss"}
    assert set(gradients) == {("fc0.dweight", "all-reduce"), ("fc1.dweight", "all-reduce")}
    assert sum(gradients.values()) == 2 * (devices - 1) * parameter_bytes(graph)
    sent = task_graph.bytes_moved_by_device() - _loss_bytes(task_graph)
    assert sent.tolist() == [2 * (devices - 1) * parameter_bytes(graph) // devices] * devices


def _loss_bytes(task_graph):
    """What every device sends of the fetched loss: a scalar that has to be summed and told to all."""
    hops = np.array(
        [hop for hop in task_graph.hops().T.tolist() if task_graph.name(hop[0]) == "loss"]
    ).T
    return np.bincount(hops[1], hops[3], len(task_graph.machine.devices))


@pytest.mark.parametrize("devices", [2, 3, 4, 5, 7])
def test_data_parallel_moves_as_much_when_nothing_divides(devices):
    graph = network(batch=9, width=11)
    task_graph = lower(
        graph, taskflow.data_parallel(graph, machine := MachineModel.uniform(devices)), machine
    )
    assert task_graph.bytes_moved - _loss_bytes(task_graph).sum() == 2 * (
        devices - 1
    ) * parameter_bytes(graph)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_zero_moves_the_bytes_of_data_parallel_and_splits_the_optimizer_state(devices, own):
    """ZeRO: only the update operators are named, and split."""
    graph = network(own=("fc0.weight", "fc1.weight") if own else ())
    machine = MachineModel.uniform(devices)
    plain = lower(graph, strategy := taskflow.data_parallel(graph, machine), machine)
    for k in range(2):
        update = graph.operator(f"fc{k}.weight.update")
        strategy[update.name] = ParallelConfig({next(iter(update.extents)): devices})
    zero = lower(graph, strategy, machine)
    kinds = {k for k in transfers(zero) if k[0] != "loss"}
    expected = {(f"fc{k}.dweight", "reduce-scatter") for k in range(2)} | {
        (f"fc{k}.weight", "all-gather") for k in range(2)
    }
    assert kinds == expected
    sent = zero.bytes_moved_by_device() - _loss_bytes(zero)
    assert sent.tolist() == [2 * (devices - 1) * parameter_bytes(graph) // devices] * devices
    if not own:
        assert zero.bytes_moved == plain.bytes_moved
    held = plan_memory(zero).persistent_bytes
    assert held.tolist() == [_arena(graph, 1) + _arena(graph, devices)] * devices
    assert own or plan_memory(plain).persistent_bytes.tolist() == [2 * _arena(graph, 1)] * devices


def _arena(graph, share):
    """Arena bytes of 1/share of every parameter: instances are aligned to 64 bytes."""
    return sum(-(-p.size_bytes // share // 64) * 64 for p in graph.parameters)


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_a_row_split_layer_after_a_column_split_one_moves_one_all_reduce_each_way(devices):
    """Megatron's pairs (fc0, fc1) and (fc2, fc3): nothing moves within a pair, and no gradient of a weight ever."""
    graph = network(batch=24, width=12, layers=4, momentum=0)
    configs = {f"fc{k}": {"oi"[k % 2]: devices} for k in range(4)} | {"loss": {"b": devices}}
    task_graph = lowered(graph, configs, devices)
    activation = 24 * 12 * ITEM
    assert {k: v for k, v in transfers(task_graph).items() if k[0] not in ("loss", "loss.one")} == {
        ("fc1", "all-reduce"): 2 * (devices - 1) * activation,
        ("fc2.dx", "all-reduce"): 2 * (devices - 1) * activation,
        ("fc3", "reduce-scatter"): (devices - 1)
        * activation,  # the loss reads rows: half of an all-reduce,
        ("loss.dx", "all-gather"): (devices - 1) * activation,  # and here is the other half
    }


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_rows_to_columns_moves_what_does_not_stay(devices):
    graph = tiny.copy(tiny.copy(matrix(12, 24), "h"), "read").graph
    task_graph = lowered(graph, {"h": {"b": devices}, "read": {"c": devices}}, devices)
    assert task_graph.bytes_moved == 12 * 24 * ITEM * (devices - 1) // devices
    assert Counter(task_graph.source[task_graph.is_transfer].tolist()) == dict.fromkeys(
        range(devices), devices - 1
    )


def test_a_convolution_split_by_rows_exchanges_boundary_rows_only():
    """A 3 x 3 convolution of (2, 3, 16, 5) split over h by 4: three borders, each crossed by one row both ways.

    Forward a row of x is 2 images x 3 channels x 5 columns; x is fed, so the second layer's input is what moves: 4
    channels. Backward dx of the second layer reads rows of its output's gradient: 2 channels.
    """
    x = matrix(2, 3, 16, 5)
    tiny.sgd(
        tiny.mean_square(tiny.conv(tiny.conv(x, 4, name="conv1"), 2, name="conv2")), momentum=0
    )
    task_graph = lowered(x.graph, {n: {"h": 4} for n in ("conv1", "conv2", "loss")}, 4)
    found = transfers(task_graph)
    assert found["conv1", "halo"] == 3 * 2 * (2 * 4 * 5) * ITEM
    assert found["loss.dx", "halo"] == 3 * 2 * (2 * 2 * 5) * ITEM
    weights = {"conv1.dweight": 4 * 3 * 9, "conv2.dweight": 2 * 4 * 9}
    for name, size in weights.items():
        assert found[name, "all-reduce"] == 2 * 3 * size * ITEM
    assert {name for name, _ in found} == {"conv1", "loss.dx", *weights, "loss"}
