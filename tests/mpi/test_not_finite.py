"""A step on what is not finite changes nothing on any rank, and all ranks say the same."""

import numpy as np
import pytest

from taskflow import MachineModel, data_parallel, fully_sharded, homes, lower
from taskflow.core.system import world_size
from tests.train.test_not_finite import (
    KINDS,
    LOSS,
    assert_nothing_changes,
    executor,
    feeds,
    network,
    on,
)
from tests.ways import TRANSPORTS

COUNT = max(2, world_size())
pytestmark = pytest.mark.two_ranks  # with more it takes no other way


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_ranks_keep_their_state(comm, kind, transport):
    """The number is on one rank alone; states of parameters are sharded."""
    if kind == "emulated" and transport == "messages":
        return  # refused
    graph, machine = homes(network(batch=16)), on(COUNT, kind)
    rows = lower(graph, fully_sharded(graph, machine), machine)
    with executor(rows, kind, transport=transport) as step:
        assert_nothing_changes(step, feeds(batch=16), feeds(batch=16, bad=np.nan), LOSS)


def test_steps_in_one(comm):
    graph, machine = network(batch=16), MachineModel.uniform(COUNT)
    rows = lower(graph, data_parallel(graph, machine), machine, repeat=2)
    good, bad = feeds(batch=16), feeds(batch=16, bad=np.nan)
    several = [{name: np.stack([one[name], good[name]]) for name in good} for one in (good, bad)]
    with executor(rows) as step:
        before = {name: step.read(name) for name in step.persistent}
        with pytest.raises(
            FloatingPointError, match=r"^step 0: the loss is \[nan .*\]; nothing has changed$"
        ):
            step(several[1])
        assert step.steps == 0 and all(
            np.array_equal(step.read(name), value) for name, value in before.items()
        )
        assert np.isfinite(step(several[0])["loss"]).all()
