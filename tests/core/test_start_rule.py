"""The start rule on links: who waits for how long, and when a link is free."""

import numpy as np
import pytest

from taskflow.core.compiling import njit
from taskflow.core.start_rule import CROWD, HOP, finish_of

LATENCY = 0.25


@njit
def crossed(start, seconds, free, hops):
    return finish_of(start, seconds, free, hops)


def cross(backlog, work, start=0.0):
    """End of a row that takes a whole link for so many seconds, behind other work; and when the link is free."""
    free = np.array([LATENCY + backlog])
    return crossed(start, LATENCY + work, free, np.array([(0, 1.0, LATENCY)], HOP)), free[0]


@pytest.mark.parametrize("backlog", [-1.0, 0.0])
def test_an_idle_link_is_free_when_the_row_ends(backlog):
    assert cross(backlog, 2.0) == (LATENCY + 2.0, LATENCY + 2.0)


@pytest.mark.parametrize("backlog", [0.5, 2.0, 2.0 * (CROWD - 1)])
def test_a_row_waits_for_what_came_before(backlog):
    assert cross(backlog, 2.0) == pytest.approx((LATENCY + backlog + 2.0,) * 2)


def test_a_row_waits_no_longer_than_its_share_among_a_crowd_takes():
    finish, free = cross(100.0, 2.0)
    assert finish == pytest.approx(LATENCY + CROWD * 2.0) and free == pytest.approx(LATENCY + 102.0)
    assert cross(100.0, 2.0, start=1.0)[0] == pytest.approx(finish + 1.0)


def test_what_sends_nothing_does_not_wait():
    assert cross(100.0, 0.0) == (LATENCY, LATENCY + 100.0)
