"""What a search returns trains with the numbers of one device: the models on as many devices as there are ranks."""

import pytest

from taskflow import CostModel, data_parallel, search, single_device
from tests.models.tiny import TINY, assert_close, feeds, slow_machine, tiny, train

pytestmark = [pytest.mark.slow, pytest.mark.two_ranks]  # on four devices: tests/models/test_searched.py
LARGE = {"inception_v3", "resnet101"}  # 300 operators and more: in one process alone


@pytest.mark.parametrize("name", [name for name in TINY if name not in LARGE])
def test_searched_strategy_trains_as_one_device_does(comm, name):
    """Every rank walks on its own, so that together they judge that many proposals times the ranks."""
    graph, machine = tiny(name), slow_machine(comm.size)
    strategy = search(graph, machine, CostModel.analytic(machine), proposals=100, seed=2).strategy
    batches = feeds(graph, name, steps=2)
    alone = train(graph, single_device(graph, machine), machine, batches)
    assert_close(train(graph, strategy, machine, batches), alone)


def test_searched_strategies_are_not_data_parallel(comm):
    differing = 0
    for name in ("alexnet", "gpt", "dlrm", "mlp") if comm.size > 1 else ():
        graph, machine = tiny(name), slow_machine(comm.size)
        strategy = search(graph, machine, CostModel.analytic(machine), proposals=100, seed=2).strategy
        differing += dict(strategy) != dict(data_parallel(graph, machine))
    assert comm.size == 1 or differing == 4
