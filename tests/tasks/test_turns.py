"""Whose turn it is: every holder of a piece serves as many readers as another, near ones first."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow.tasks.turns import new_turns, whose_turn

HOST = 4  # devices


def pairs_of(holders, readers, hosts=None):
    """Reader -> holder, asked in this order."""
    hosts = hosts or [device // HOST for device in range(64)]
    turns, span = new_turns(len(holders)), (0, len(holders))
    return {r: holders[whose_turn(hosts, holders, span, r, turns)] for r in readers}


@pytest.mark.parametrize(
    ("holders", "readers", "givers"),
    [
        ([0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]),  # the same place
        ([0, 4, 8, 12], [16, 20, 24, 28], [0, 4, 8, 12]),
        ([0, 1], [2, 3], [0, 1]),
        ([0, 1], [1, 2, 0, 3], [1, 0, 0, 1]),  # their own
        ([0, 4], [5, 6, 1], [4, 4, 0]),  # their host first
        ([0, 4, 5], [8, 6, 9, 7, 10], [0, 4, 4, 5, 5]),  # hosts count for themselves
        ([3], [8, 9], [3, 3]),
    ],
)
def test_the_holder_of_the_place_gives(holders, readers, givers):
    assert pairs_of(holders, readers) == dict(zip(readers, givers, strict=True))


@given(
    st.lists(st.integers(0, 15), unique=True, min_size=1),
    st.lists(st.integers(0, 15), unique=True),
)
def test_near_holders_give_and_equally_often(holders, readers):
    pairs, held = pairs_of(holders, readers), {device // HOST for device in holders}
    assert all(pairs[r] == r for r in readers if r in holders)
    others = {r: h for r, h in pairs.items() if r not in holders}
    for host in {*held, None}:
        own = [h for h in holders if host is None or h // HOST == host]
        given_by = [
            h for r, h in others.items() if (r // HOST if r // HOST in held else None) == host
        ]
        assert {*given_by} <= {*own}
        counts = Counter(given_by)
        assert max(counts.values(), default=0) - min(counts[h] for h in own) <= 1


def test_who_asks_again_takes_from_the_same():
    assert list(pairs_of([0, 1], [8, 8, 9]).values()) == [0, 1]
    turns, hosts = new_turns(2), [0, 0, 1, 1]
    asked = [whose_turn(hosts, [0, 1], (0, 2), r, turns) for r in (2, 2, 3, 3)]
    assert asked == [0, 0, 1, 1]
