"""What a search returns trains with the numbers of one device: models on as many devices as there are ranks."""

import pytest

from taskflow import CostModel, data_parallel, search, single_device
from tests.models.tiny import assert_close, feeds, slow_machine, tiny, train
from tests.sampling import IS_THOROUGH

# On four devices, and all models: tests/models/test_models.py.
pytestmark = [pytest.mark.slow, pytest.mark.two_ranks]
NOT_DATA_PARALLEL = {"alexnet", "gpt", "dlrm", "mlp"}


@pytest.mark.parametrize("name", ["alexnet", "dlrm", "gpt", "mlp", "moe", "rnnlm"])
def test_searched_strategy_trains_as_one_device_does(comm, name):
    """Every rank walks on its own, so that together they judge that many proposals times the ranks."""
    if comm.size == 1 and not IS_THOROUGH:
        pytest.skip("alone: tests/models/test_models.py")
    graph, machine = tiny(name), slow_machine(comm.size)
    strategy = search(graph, machine, CostModel.analytic(machine), proposals=100, seed=2).strategy
    is_other = dict(strategy) != dict(data_parallel(graph, machine))
    assert comm.size == 1 or name not in NOT_DATA_PARALLEL or is_other
    batches = feeds(graph, name, steps=2)
    alone = train(graph, single_device(graph, machine), machine, batches)
    assert_close(train(graph, strategy, machine, batches), alone)
