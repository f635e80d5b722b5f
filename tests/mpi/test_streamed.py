"""Programs for GPUs on fake streams, one device a rank: messages staged through pinned memory, and captured parts."""

import pytest

from taskflow import MachineModel
from taskflow.backend.fake import FakeStreams
from taskflow.comm import connect
from tests import laws
from tests.execute.test_streamed import feeds, network
from tests.strategies import Model, random_strategy


@pytest.mark.parametrize("number, starve, record", [(2, None, False), (5, "receiving", False), (3, "sending", True)])
def test_any_strategy_gives_the_numbers_of_one_device(number, starve, record):
    model = Model(network(), feeds()[0])
    machine = MachineModel.uniform(connect().size, None).with_rates(kind="cuda")
    strategy = random_strategy(model.graph, machine, number)
    backend = FakeStreams(number + connect().rank, starve)
    laws.any_strategy_is_one_device(model, machine, strategy, 3, backend=backend, record=record)
