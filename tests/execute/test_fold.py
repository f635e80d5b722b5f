"""Folds: in parts or whole, the same bits, and every copy has them."""

import numpy as np
import pytest

from taskflow.execute.fold import fold_call, fold_in_parts


def arrays(count, size, dtype):
    generator = np.random.default_rng(0)
    return [(generator.standard_normal(size) * 100).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("combine", [np.add, np.maximum])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16"])
@pytest.mark.parametrize("size", [0, 3, 50_001])
def test_parts_are_combined_in_order_and_copied(combine, dtype, size):
    parts = arrays(3, size, dtype)
    precise = [p.astype(np.float32) if dtype == "float16" else p for p in parts]  # and rounded once
    expected = combine(combine(precise[0], precise[1]), precise[2]).astype(dtype)
    other = np.empty_like(parts[0])
    fold_call(combine, parts[0], parts, [parts[1], other])()
    for array in (parts[0], parts[1], other):
        np.testing.assert_array_equal(array, expected)


def test_not_a_number_wins_as_in_numpy():
    a, b, c = arrays(3, 20_000, "float32")
    a[3] = b[5] = np.nan
    expected = np.maximum(a, b)
    fold_call(np.maximum, a, [a, b], [c])()
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_target_apart_from_its_parts(count):
    parts, target = arrays(count, 20_000, "float32"), np.empty(20_000, np.float32)
    fold_call(np.add, target, parts)()
    expected = (
        parts[0]
        if count == 1
        else parts[0] + parts[1]
        if count == 2
        else parts[0] + parts[1] + parts[2]
    )
    np.testing.assert_array_equal(target, expected)


def test_arrays_with_strides():
    whole = np.ones((200, 400), np.float32)
    a, b, c = whole[:, :200], whole[:, 200:], np.zeros((200, 200), np.float32)
    fold_call(np.add, a, [a, b], [c])()
    assert (c == 2).all() and (a == 2).all() and (b == 1).all()


def test_what_is_large_takes_one_pass():
    a, b = arrays(2, 20_000, "float32")
    assert fold_call(np.add, a, [a, b], [b]).func is fold_in_parts
    assert fold_call(np.add, a, [a, b]).func is not fold_in_parts  # one pass in any case
    a, b = a[:100], b[:100]
    assert fold_call(np.add, a, [a, b], [b]).func is not fold_in_parts
