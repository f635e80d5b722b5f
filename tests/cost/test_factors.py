"""Factors of rehearsals: the closest that is known counts, and kernels alone are what they are multiplied with."""

import numpy as np
import pytest

from taskflow import CostModel, Kind, data_parallel, lower, model_parallel, single_device
from taskflow.cost.factors import Factors, row_keys
from tests.fake_home import FakeCosts, home, network


def rows_of(rule):
    return lower(network(), rule(network(), home()), home())


def test_kernels_of_other_tiles_have_the_factor_of_the_kernel():
    split, whole = rows_of(data_parallel), rows_of(single_device)
    points = np.flatnonzero(split.kind == Kind.POINT)
    longer = np.where([split.name(row).startswith("tanh") for row in points.tolist()], 3.0, 2.0)
    factors = Factors(row_keys(split, points), longer.tolist(), [1.0] * len(points))
    of_whole = factors.of(whole, np.flatnonzero(whole.kind == Kind.POINT))
    names = [whole.name(row) for row in np.flatnonzero(whole.kind == Kind.POINT).tolist()]
    assert of_whole.tolist() == [3.0 if name.startswith("tanh") else 2.0 for name in names]


def test_equal_rows_come_before_the_kernel_and_sums_before_rows():
    keys = [
        ("tile 1", "kernel", "point"),
        ("tile 1", "kernel", "point"),
        ("tile 2", "kernel", "point"),
    ]
    factors = Factors(keys, [4.0, 2.0, 9.0], [1.0, 1.0, 1.0])._factors
    assert factors == {"tile 1": 3.0, "tile 2": 9.0, "kernel": 5.0, "point": 5.0}
    assert (
        Factors(keys[:1], [np.nan], [1.0])._factors
        == Factors(keys[:1], [1.0], [0.0])._factors
        == {}
    )


def test_links_and_moves_have_factors_of_their_own():
    """The way back has the factor of all transfers; of a copy within a device nothing is known."""
    rows = rows_of(model_parallel)
    there = np.flatnonzero(rows.is_transfer & (rows.source == 0))
    factors = Factors(row_keys(rows, there), [5.0] * len(there), [1.0] * len(there))
    back = np.flatnonzero(rows.is_transfer & (rows.source == 1))
    assert (factors.of(rows, there) == 5.0).all() and (factors.of(rows, back) == 5.0).all()
    others = np.flatnonzero(~rows.is_transfer)
    assert len(others) and (factors.of(rows, others) == 1.0).all()


@pytest.mark.parametrize("rule", [data_parallel, single_device])
def test_corrected_costs_are_those_of_the_rehearsal_in_every_graph(rule):
    costs, split, other = FakeCosts(home()), rows_of(data_parallel), rows_of(rule)
    alone = CostModel.analytic(home())
    np.testing.assert_allclose(costs.seconds(other), alone.seconds(other))
    costs.learn(split, 2.5 * alone.seconds(split))
    costs.correct([split])
    np.testing.assert_allclose(costs.seconds(other), 2.5 * alone.seconds(other))
    costs.learn(split, 1.5 * alone.seconds(split))
    costs.correct([split])  # anew, not on top of it
    np.testing.assert_allclose(costs.seconds(other), 1.5 * alone.seconds(other))
    costs.correct([])
    assert costs.is_rehearsed(other) == (rule is data_parallel)
