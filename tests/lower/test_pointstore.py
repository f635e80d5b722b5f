"""The store of points: what it takes from a model is what partitioning gives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taskflow import MachineModel, ParallelConfig
from taskflow.lower import Lowering
from taskflow.partition import partition
from taskflow.rules import leaders, random_config
from tests.lowering import network
from tests.strategies import graphs
from tests.test_laws import examples


def assert_partitioned(store, slot, config):
    found, expected = store.points(store.number(slot, config)), partition(store.operators[slot], config)
    for name in ("place", "spans", "boxes", "colours", "partial"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(store.table.flops[store.span(store.number(slot, config))], expected.flops)


@examples(20)
@given(model=graphs(), seed=st.integers(0, 2**32 - 1))
def test_points_are_those_of_partition(model, seed):
    machine, generator = MachineModel.uniform(4), np.random.default_rng(seed)
    store = Lowering(model.graph, machine).store
    for op in leaders(model.graph):
        for _ in range(6):
            config = random_config(op, machine, generator)
            for slot, other in enumerate(model.graph.operators):
                if op.name in (other.name, other.follows):
                    assert_partitioned(store, slot, config)


def test_configurations_of_one_model_share_boxes():
    """Two devices in turn, and each twice: the places where a device comes again tell models apart."""
    lowering = Lowering(network(), MachineModel.uniform(4))
    store, slot = lowering.store, [op.name for op in lowering.operators].index("fc0")
    lists = [(0, 1, 2, 3), (3, 1, 0, 2), (0, 1, 0, 1), (3, 2, 3, 2), (2, 2, 0, 0)]
    numbers = [store.number(slot, ParallelConfig({"b": 4}, devices)) for devices in lists]
    first_box = store.table.record[numbers, 2].tolist()
    assert first_box == [first_box[k] for k in (0, 0, 2, 2, 4)] and len(set(first_box)) == 3
    assert store.table.record[numbers[1], 2] == store.table.record[numbers[0], 2]
    for devices in lists:
        assert_partitioned(store, slot, ParallelConfig({"b": 4}, devices))
