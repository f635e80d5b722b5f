"""Schedules that do not fit the placement of a pipeline; more of them in tests/schedule/test_policies.py."""

import pytest

from taskflow import MachineModel, lower, reorder, stages
from taskflow.schedule import zb_v
from tests.refusals import assert_refused
from tests.schedule.cells import CellCosts, chain


@pytest.mark.parametrize(("way", "found"), [((0, 1), "[0] of 2"), ((0, 1, 0, 1), "[0, 2] of 4")])
def test_a_v_in_another_placement(way, found):
    graph, machine, count = chain(4, 2), MachineModel.uniform(2), len(way)
    cuts = [f"cell{k}" for k in range(1, count)]
    rows = lower(
        graph, stages(graph, machine, parts=2, cuts=cuts, devices=[(d,) for d in way]), machine
    )
    assert_refused(
        f"schedule 'zb_v': a device has stages {found}; in a V of 2 devices it has [0, 2] of 3",
        lambda: reorder(rows, CellCosts(), zb_v),
    )
