"""Collectives across ranks: any two ranks sum and gather in one row, which runs as messages or in shared memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Device, MachineModel
from taskflow.tasks import exchange
from tests import laws
from tests.collectives import by_copies
from tests.mpi.test_laws import SIZE, TRANSPORTS, examples
from tests.strategies import graphs, random_strategy


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(10)
@given(data=st.data())
def test_collectives_give_the_numbers_of_one_device(transport, record, data):
    each = data.draw(st.integers(1, SIZE))  # devices a host: rings where there are several
    devices = tuple(Device(host=d // each) for d in range(SIZE))
    machine = by_copies(MachineModel(devices, MachineModel.uniform(SIZE).links), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "SMALL_BYTES", data.draw(st.sampled_from([0, 200])))
        model = data.draw(graphs())
        strategy = random_strategy(model.graph, machine, data.draw(st.integers(0, 2**32 - 1)))
        laws.any_strategy_is_one_device(model, machine, strategy, steps=2, transport=transport, record=record)
        laws.any_strategy_is_one_device(model, machine, strategy, steps=2, transport=transport, check=True)
