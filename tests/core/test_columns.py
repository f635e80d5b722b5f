"""Arrays that grow, and arrays in parts."""

import numpy as np
import pytest

from taskflow.core.columns import (
    Column,
    Selected,
    differences,
    distinct,
    each_once,
    gather,
    joined,
    select,
    spread,
    taken,
)


def test_a_column_keeps_what_was_added_while_it_grows():
    column = Column(np.int64, 2)
    starts = [column.add(np.full((700, 2), k)) for k in range(4)]
    assert starts == [0, 700, 1400, 2100] and column.length == 2800
    np.testing.assert_array_equal(column.data[: column.length, 1], np.repeat(range(4), 700))


@pytest.mark.parametrize(
    ("first", "count", "expected"),
    [([5, 0, 2], [2, 0, 3], [5, 6, 2, 3, 4]), ([], [], []), ([3], [0], [])],
)
def test_spread(first, count, expected):
    assert spread(np.array(first, np.int64), np.array(count, np.int64)).tolist() == expected


def test_gather():
    parts = [np.array([[1, 2], [3, 4]]), np.zeros((0, 2), np.int64), np.array([[5, 6]])]
    values, counts = gather(parts, np.array([2, 0, 1, 2]))
    assert values.tolist() == [[5, 6], [1, 2], [3, 4], [5, 6]]
    assert counts.tolist() == [1, 2, 0, 1]
    values, counts = gather([], np.zeros(0, np.int64))
    assert not len(values) and not len(counts)


def test_distinct_values_are_in_order_and_each_once():
    assert distinct(np.array([3, 1, 3, 2, 1])).tolist() == [1, 2, 3]
    assert distinct(np.zeros(0, np.int64)).tolist() == []


def test_what_is_selected_is_what_is_gathered():
    parts, which = [np.arange(3), np.arange(10, 12)], np.array([1, 0, 1])
    selected, count = select(parts, np.array(which))
    assert (
        np.asarray(selected).tolist()
        == gather(parts, np.array(which))[0].tolist()
        == [10, 11, 0, 1, 2, 10, 11]
    )
    assert count.tolist() == [2, 3, 2]


def test_records_are_joined_with_their_fields():
    dtype = np.dtype([("a", np.int64), ("b", np.int64)])
    parts = [np.array([(1, 2)], dtype), np.zeros(0, dtype), np.array([(3, 4), (5, 6)], dtype)[::-1]]
    found = joined(parts)
    assert found.dtype == dtype and found.tolist() == [(1, 2), (5, 6), (3, 4)]


def test_differences_within_parts():
    values, count = np.array([2, 5, 1, 1, 4]), np.array([0, 2, 0, 3, 0])
    assert differences(values, count).tolist() == [2, 3, 1, 0, 3]
    assert differences(np.zeros(0, np.int64), np.zeros(2, np.int64)).tolist() == []


def test_what_is_selected_is_indexed_as_its_array():
    values = np.arange(24).reshape(4, 2, 3)
    at = np.array([3, 0, 0, 2, 1], np.int32)
    column = Selected(values, at)
    array = values[at]
    assert (len(column), column.shape, column.dtype) == (5, array.shape, array.dtype)
    for index in (2, slice(1, 4), np.array([[4, 0], [1, 1]]), (slice(None), 1), (3, 0, 2)):
        np.testing.assert_array_equal(column[index], array[index])
    for other in (np.asarray(column, np.float32), taken(column, at), taken(array, at)):
        np.testing.assert_array_equal(other, array if other.dtype == np.float32 else array[at])


def test_each_part_once():
    one, other = np.zeros(1), np.zeros(1)
    parts, which = each_once([one, other, one])
    assert [id(part) for part in parts] == [id(one), id(other)]
    assert which.tolist() == [0, 1, 0]
