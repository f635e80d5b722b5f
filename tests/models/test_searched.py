"""What a search returns trains with the numbers of one device: all ten models on four devices of one process."""

import numpy as np
import pytest

from taskflow import CostModel, search, single_device
from tests.models.tiny import TINY, assert_close, feeds, slow_machine, tiny, train

MACHINE = slow_machine(4)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_searched_strategy_trains_as_one_device_does(name: str) -> None:
    graph = tiny(name)
    result = search(graph, MACHINE, CostModel.analytic(MACHINE), proposals=12, seed=1)
    assert {device for config in result.strategy.values() for device in config.devices} == {0, 1, 2, 3}
    batches = feeds(graph, name, steps=5)
    alone = train(graph, single_device(graph, MACHINE), MACHINE, batches)
    assert np.isfinite(alone["loss"]).all()
    assert_close(train(graph, result.strategy, MACHINE, batches), alone)
