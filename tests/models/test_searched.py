"""What a search returns trains with the numbers of one device: the models on four devices of one process."""

import numpy as np
import pytest

from taskflow import CostModel, data_parallel, search, single_device
from tests.models.tiny import TINY, assert_close, feeds, slow_machine, tiny, train

MACHINE = slow_machine(4)
DATA_PARALLEL = {"inception_v3"}  # so small that nothing better is found in this budget


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_searched_strategy_trains_as_one_device_does(name: str) -> None:
    graph = tiny(name)
    strategy = search(graph, MACHINE, CostModel.analytic(MACHINE), proposals=250, seed=1).strategy
    assert {device for config in strategy.values() for device in config.devices} == {0, 1, 2, 3}
    rule = data_parallel(graph, MACHINE)
    differing = sum(strategy[name] != rule[name] for name in rule)
    assert name in DATA_PARALLEL or 5 * differing >= len(rule)
    batches = feeds(graph, name, steps=5)
    alone = train(graph, single_device(graph, MACHINE), MACHINE, batches)
    assert np.isfinite(alone["loss"]).all()
    assert_close(train(graph, strategy, MACHINE, batches), alone)
