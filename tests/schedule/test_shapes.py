"""Placements as models: units of a step by a policy and by a search, and numbers of one device."""

import numpy as np
import pytest

from taskflow import Executor, MachineModel, lower, reorder, search_schedule, single_device
from taskflow.checking.checker import check_own_plan
from taskflow.schedule import POLICIES
from taskflow.schedule.pipeline import pipeline_of
from taskflow.simulation.simulate import schedule
from tests.schedule.cells import feeds_of
from tests.schedule.shapes import SHAPES

# Units of 8 micro-batches on 4 devices: at most what the search finds, and what the policy takes.
KNOWN = {
    "V": (33, "one_f_one_b", 33),
    "M": (76, "interlaced", 77),
    "K": (51, "interlaced", 54),
    "X": (27, "chimera", 28),
    "NN": (57, "interleaved", 57),
    "ZBV": (51, "zb_v", 51),
}


def numbers(rows, feeds):
    check_own_plan(rows)
    with Executor(rows, seed=0, watch=True) as step:
        losses = [step(feeds)["loss"] for _ in range(2)]
        return {"loss": np.array(losses)} | {name: step.read(name) for name in step.persistent}


@pytest.mark.parametrize("name", KNOWN)
def test_units_and_numbers(name):
    shape, one = SHAPES[name](MachineModel.uniform(4), 8), MachineModel.uniform(1)
    costs, feeds = shape.costs(), feeds_of(shape.graph)
    expected = numbers(lower(shape.graph, single_device(shape.graph, one), one), feeds)
    searched, policy, by_hand = KNOWN[name]
    tries = (
        reorder(shape.rows, costs, search_schedule(shape.rows, costs, seconds=1.0, seed=k))
        for k in range(6)
    )
    found = next(
        (rows for rows in tries if schedule(rows, costs.seconds(rows))[2] <= searched), None
    )
    assert found is not None
    followed = reorder(shape.rows, costs, POLICIES[policy])
    assert schedule(found, costs.seconds(found))[2] >= shape.bound
    assert schedule(followed, costs.seconds(followed))[2] == by_hand
    for rows in (found, followed):
        for region, value in numbers(rows, feeds).items():
            np.testing.assert_allclose(value, expected[region], rtol=0, atol=1e-10)


def test_an_m_of_many_micro_batches():
    """Less than 330, what a 1F1B+ by hand takes, and no device holds more than 5; the best that is known holds 6."""
    shape = SHAPES["M"](MachineModel.uniform(4), 32)
    rows = reorder(shape.rows, shape.costs(), POLICIES["interlaced"])
    assert schedule(rows, shape.costs().seconds(rows))[2] == 269
    for steps in POLICIES["interlaced"].schedule(pipeline_of(rows)).steps.values():
        assert np.cumsum([1 if phase == "F" else -1 for phase, _, _ in steps]).max() <= 5
