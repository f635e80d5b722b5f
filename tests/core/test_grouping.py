"""Grouping is a stable sort by small numbers."""

from itertools import pairwise

import numpy as np
import pytest

from taskflow.core.grouping import SHORT, grouped, ranks, sort_each, turned


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize(("length", "count"), [(0, 0), (0, 3), (1, 1), (50, 7), (7, 200)])
def test_entries_with_a_key_keep_their_order(length, count, dtype):
    keys = np.random.default_rng(length).integers(max(count, 1), size=length).astype(dtype)
    ptr, order = grouped(keys, count)
    seen = [keys[:k].tolist().count(key) for k, key in enumerate(keys.tolist())]
    assert ranks(keys, count).tolist() == seen
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(np.diff(ptr), np.bincount(keys, minlength=count))
    assert ptr[0] == 0


@pytest.mark.parametrize(("length", "count"), [(0, 0), (0, 3), (40, 7), (5 * SHORT, 2)])
def test_values_of_a_row_ascend_each_once(length, count):
    rng = np.random.default_rng(length)
    rows = rng.integers(max(count, 1), size=length)
    values = rng.integers(3 * SHORT, size=length)
    ptr, order = grouped(rows, count)
    ptr, distinct = sort_each(ptr, values[order])
    of_rows = [distinct[a:b].tolist() for a, b in pairwise(ptr)]
    assert of_rows == [sorted(set(values[rows == row].tolist())) for row in range(count)]


@pytest.mark.parametrize(("rows", "pairs", "more"), [(0, 0, 0), (3, 0, 4), (9, 20, 0), (9, 20, 7)])
def test_followers_are_pairs_turned_round(rows, pairs, more):
    rng = np.random.default_rng(pairs)
    after = np.sort(rng.integers(max(rows, 1), size=pairs))
    before, *others = rng.integers(max(rows, 1), size=(3, max(pairs, more)))
    before, others = before[:pairs], [column[:more] for column in others]
    ptr = np.searchsorted(after, np.arange(rows + 1))
    ends, follower = turned(ptr, before, *others)
    both = np.concatenate([before, others[0]]), np.concatenate([after, others[1]])
    of_rows = [follower[a:b].tolist() for a, b in pairwise(ends)]
    assert of_rows == [both[1][both[0] == row].tolist() for row in range(rows)]
