"""The store of points: what it takes from a model is what partitioning gives."""

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import ops
from taskflow import Graph, MachineModel, ParallelConfig
from taskflow.graph.family import Family
from taskflow.lowering import Lowering, pointstore
from taskflow.strategy.partition import partition
from taskflow.strategy.rules import leaders, random_config
from tests.lowered import network
from tests.strategies import examples, graphs


def columns_of(store, number):
    """What the columns say about the points of a number, as `OperatorPoints` would have it."""
    t = store.table
    first, count, box, dims, colour, outputs, partial, _, size, _ = t.record[number].tolist()
    return {
        "device": t.device[first : first + count],
        "boxes": t.box[box : box + 2 * count * dims].reshape(count, dims, 2),
        "colours": t.colour[colour : colour + count * outputs].reshape(count, outputs),
        "partial": t.partial[partial : partial + outputs] > 0,
        "flops": t.flops[size : size + count],
        "bytes": t.bytes[size : size + count],
    }


def assert_partitioned(store, slot, config):
    op, found = store.operators[slot], columns_of(store, store.number(slot, config))
    expected = partition(op, config)
    for name in ("device", "boxes", "colours", "partial"):
        np.testing.assert_array_equal(found[name], getattr(expected, name))
    points = np.prod(expected.spans[:, :, 1] - expected.spans[:, :, 0], axis=1, dtype=float)
    flops = op.flops * points
    for name, amount in op.work:
        image = op.windows[name]
        spans = expected.spans[:, list(op.extents).index(image.axis)]
        read = np.array([image.work((low, high)) for low, high in spans.tolist()])
        flops += amount * (read * (points / (spans[:, 1] - spans[:, 0])))
    np.testing.assert_array_equal(found["flops"], flops)
    volumes = [
        np.prod(expected.box(k)[:, :, 1] - expected.box(k)[:, :, 0], axis=1)
        for k in range(len(op.args))
    ]
    sizes = sum(v * region.itemsize for v, region in zip(volumes, op.args, strict=True))
    np.testing.assert_array_equal(found["bytes"], sizes)


@examples(20)
@given(model=graphs(), seed=st.integers(0, 2**32 - 1))
def test_points_are_those_of_partition(model, seed):
    machine, generator = MachineModel.uniform(4), np.random.default_rng(seed)
    store = Lowering(model.graph, machine).store
    for op in leaders(model.graph):
        for _ in range(6):
            config = random_config(Family.of(op), machine, generator)
            for slot, other in enumerate(model.graph.operators):
                if op.name in (other.name, other.follows):
                    assert_partitioned(store, slot, config)


def test_configurations_of_one_model_share_boxes():
    """Two devices in turn, and each twice: where a device comes again tells models apart."""
    lowering = Lowering(network(), MachineModel.uniform(4))
    store, slot = lowering.store, [op.name for op in lowering.operators].index("fc0")
    lists = [(0, 1, 2, 3), (3, 1, 0, 2), (0, 1, 0, 1), (3, 2, 3, 2), (2, 2, 0, 0)]
    numbers = [store.number(slot, ParallelConfig({"b": 4}, devices)) for devices in lists]
    first_box = store.table.record["first_box"][numbers].tolist()
    assert first_box == [first_box[k] for k in (0, 0, 2, 2, 4)] and len(set(first_box)) == 3
    for devices in lists:
        assert_partitioned(store, slot, ParallelConfig({"b": 4}, devices))


def test_operators_are_added_together_as_one_by_one():
    """All that follow one operator at once: balanced parts, parts by fractions, and models on other devices."""
    lowering = Lowering(network(), MachineModel.uniform(4))
    operators, alone = lowering.operators, Lowering(network(), MachineModel.uniform(4)).store
    slots = [k for k, op in enumerate(operators) if "fc0" in (op.name, op.follows)]
    configs = [
        ({"b": 4}, (0, 1, 2, 3)),
        ({"b": (0.25, 0.75)}, (2, 1)),
        ({"b": 4}, (3, 2, 1, 0)),
        ({}, (2,)),
    ]
    for degrees, devices in configs:
        config = ParallelConfig(degrees, devices)
        numbers = lowering.store.numbers(slots, config)
        for slot, number in zip(slots, numbers, strict=True):
            assert_partitioned(lowering.store, slot, config)
            assert number == lowering.store.number(slot, config)
            together, one = (
                columns_of(lowering.store, number),
                columns_of(alone, alone.number(slot, config)),
            )
            for name, column in together.items():
                np.testing.assert_array_equal(column, one[name])
    assert len(slots) > 2 and len(lowering.store.numbers(slots, config)) == len(slots)


def test_a_region_beyond_32_bits_has_boxes_of_64(monkeypatch):
    """As Python: this alone has it compiled for such boxes."""
    as_python = partial(pointstore.add_points._interpret, 1)
    monkeypatch.setattr(pointstore, "add_points", as_python)
    graph = ops.relu(Graph().input("x", (3, 2**33 + 5), "float32")).graph
    store, config = Lowering(graph, MachineModel.uniform(4)).store, ParallelConfig({"c": 4})
    assert_partitioned(store, 0, config)
    assert columns_of(store, store.number(0, config))["boxes"].max() == 2**33 + 5
    assert Lowering(network(), MachineModel.uniform(4)).store.table.box.dtype == np.int32
