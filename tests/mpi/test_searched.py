"""What a search returns trains with the numbers of one device: all ten models on as many devices as there are ranks."""

import pytest

from taskflow import CostModel, search, single_device
from tests.models.tiny import TINY, assert_close, feeds, slow_machine, tiny, train


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_searched_strategy_trains_as_one_device_does(comm, name):
    graph, machine = tiny(name), slow_machine(comm.size)
    strategy = search(graph, machine, CostModel.analytic(machine), proposals=8, seed=2).strategy
    batches = feeds(graph, name, steps=2)
    alone = train(graph, single_device(graph, machine), machine, batches)
    assert_close(train(graph, strategy, machine, batches), alone)
