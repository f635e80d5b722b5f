"""First fit: as if every instance were compared with all that were placed before it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow.tasks.first_fit import first_fit, most_alive


def compared_with_all(device, size, first, last):
    """The lowest offset at which nothing that lives meanwhile is hit."""
    offset = np.zeros(len(size), np.int64)
    for k in range(len(size)):
        rivals = [
            i
            for i in range(k)
            if device[i] == device[k] and first[i] <= last[k] and first[k] <= last[i]
        ]
        for i in sorted(rivals, key=lambda i: offset[i]):
            if offset[i] < offset[k] + size[k]:
                offset[k] = max(offset[k], offset[i] + size[i])
    return offset


instances = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 30), st.integers(0, 12)),
    min_size=0,
    max_size=60,
)


@given(instances, st.booleans())
def test_the_lowest_free_bytes_are_taken(drawn, by_size):
    drawn = sorted(drawn, key=lambda entry: -entry[1]) if by_size else drawn
    device, size, first, length = np.array(drawn, np.int64).reshape(-1, 4).T
    found = first_fit(device, size, first, first + length)
    np.testing.assert_array_equal(found, compared_with_all(device, size, first, first + length))


@given(instances)
def test_the_most_bytes_alive_at_once(drawn):
    device, size, first, length = np.array(drawn, np.int64).reshape(-1, 4).T
    at_once = [
        [size[(device == d) & (first <= row) & (row <= first + length)].sum() for row in range(43)]
        for d in range(4)
    ]
    found = most_alive(device, size, first, first + length, 4)
    np.testing.assert_array_equal(found, np.max(at_once, axis=1))


@pytest.mark.parametrize("nested", [False, True])
def test_many_lives(nested):
    random = np.random.default_rng(nested)
    count = 400
    first = np.arange(count) if nested else random.integers(0, 2 * count, count)
    last = 2 * count - first if nested else first + random.integers(0, count, count)
    size, device = np.sort(random.integers(1, 50, count))[::-1] * 64, random.integers(0, 2, count)
    found = first_fit(device, size, first, last)
    np.testing.assert_array_equal(found, compared_with_all(device, size, first, last))
