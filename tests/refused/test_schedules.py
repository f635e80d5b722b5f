"""Schedules that do not fit the placement of a pipeline; more of them in tests/schedule/test_policies.py."""

from taskflow import MachineModel, lower, reorder, stages
from taskflow.schedule import zb_v
from tests.refusals import each_refused
from tests.schedule.cells import CellCosts, chain

TWO = MachineModel.uniform(2)


def reorder_as_a_v(*devices):
    """Stages on these devices."""
    graph, cuts = chain(4, 2), [f"cell{k}" for k in range(1, len(devices))]
    placed = stages(graph, TWO, parts=2, cuts=cuts, devices=[(device,) for device in devices])
    reorder(lower(graph, placed, TWO), CellCosts(), zb_v)


REFUSED = [
    (
        "two stages",
        lambda: reorder_as_a_v(0, 1),
        "schedule 'zb_v': a device has stages [0] of 2; in a V of 2 devices it has [0, 2] of 3",
    ),
    (
        "stages in turn",
        lambda: reorder_as_a_v(0, 1, 0, 1),
        "schedule 'zb_v': a device has stages [0, 2] of 4; in a V of 2 devices it has [0, 2] of 3",
    ),
]
test_refused = each_refused(REFUSED)
