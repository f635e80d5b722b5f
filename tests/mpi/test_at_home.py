"""Search at home under mpirun: all ranks rehearse, and agree on the plan and its seconds."""

import pytest

from taskflow import MachineModel, Trainer, search_at_home, simulate
from taskflow.comm.transport import connect
from taskflow.cost.model import MeasuredCosts
from tests.fake_home import network

pytestmark = pytest.mark.two_ranks  # with more it takes no other way


def test_all_ranks_return_what_was_fastest_in_rehearsal(comm):
    machine = MachineModel.local(max(comm.size, 2))
    costs = MeasuredCosts(machine)
    found = search_at_home(network(), machine, costs, proposals=40)
    rows = found.plan.lower(network(), machine)[1]
    assert costs.is_rehearsed(rows) and simulate(rows, costs).seconds == found.seconds
    assert found.rehearsed >= 5 and found.seconds <= found.baseline_seconds["single device"]
    everywhere = connect().gather((found, dict(found.strategy)))
    assert all(each == (found, dict(found.strategy)) for each in everywhere)


def test_a_trainer_predicts_what_its_search_has_found(comm):
    trainer = Trainer(
        network(), machine=MachineModel.local(max(comm.size, 2)), proposals=40, quiet=True
    )
    assert connect().gather(trainer.predicted_seconds) == [trainer.found.seconds] * connect().size
