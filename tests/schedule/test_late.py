"""A message that is late delays its readers alone: over links of its own, and to one thread."""

import pytest

from taskflow import MachineModel, lower, reorder, simulate, stages
from taskflow.schedule import critical_path, one_f_one_b, zb_h1
from tests.schedule.cells import CellCosts, chain
from tests.schedule.late import LINKS, STREAMS, THREAD, LateCosts, hidden, messages, play, waits


def pipeline(device, order):
    """Four stages and eight micro-batches; gradients of weights are blocks of their own."""
    graph, machine = chain(4, 8), MachineModel.uniform(4, device)
    rows = lower(graph, stages(graph, machine, parts=8, cuts=["cell1", "cell2", "cell3"]), machine)
    return reorder(rows, CellCosts(), order)


def shares(device, order, late):
    """What is hidden of a delay of every message, and what would be if its readers alone waited: sums."""
    rows = pipeline(device, order)
    found = [hidden(rows, CellCosts().seconds(rows), late, only) for only in (False, True)]
    assert [len(each) for each in found] == [3 * 8 * 2] * 2
    return tuple(float(each.sum().round(6)) for each in found)


@pytest.mark.parametrize("late", [2, 5])
@pytest.mark.parametrize(
    ("order", "most"), [(one_f_one_b, {2: 34.5, 5: 17}), (critical_path, {2: 40.5, 5: 28.2})]
)
def test_over_links_of_its_own_nobody_else_waits(order, most, late):
    assert shares(LINKS, order, late) == (most[late], most[late])


@pytest.mark.parametrize(("order", "most"), [(one_f_one_b, 34.5), (zb_h1, 10.5)])
def test_one_thread_receives_behind_what_is_ready(order, most):
    """1F1B hides 34.5 of 34.5 (6.5 where transfers go first)."""
    found, possible = shares(THREAD, order, 2)
    assert possible == most and found >= 0.9 * most


def test_one_stream_of_a_device_that_receives():
    """A second message waits for the first one, whichever is read first."""
    found, possible = shares(STREAMS, one_f_one_b, 5)
    assert 0.9 * possible <= found < possible


@pytest.mark.parametrize("device", [LINKS, STREAMS], ids=["links", "streams"])
def test_the_pass_is_that_of_the_simulator(device):
    rows = pipeline(device, one_f_one_b)
    awaited, seconds = waits(rows), CellCosts().seconds(rows)
    assert play(awaited, seconds) == simulate(rows, CellCosts()).seconds == 30
    for row in messages(rows)[::5]:
        late = simulate(rows, LateCosts(1.0, row, 5.0)).seconds
        assert play(awaited, seconds, row, 5.0) == pytest.approx(late, rel=1e-9)
