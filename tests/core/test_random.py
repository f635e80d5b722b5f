"""Random numbers by global index: a tile is a slice of the whole, whatever the tile."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Constant, Normal, Rect, Uniform
from taskflow.core.random import fill, random_key, uniform

SHAPE = (4, 5, 6)
DISTRIBUTIONS = [Constant(2.5), Uniform(-1.0, 3.0), Normal(1.0, 0.5)]
KEY = random_key(0, "w")


def filled(distribution, key=KEY, shape=SHAPE, rect=None, dtype="float64"):
    rect = rect or Rect.of_shape(shape)
    out = np.empty(rect.shape, dtype)
    fill(out, distribution, key, shape, rect)
    return out


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@given(data=st.data())
def test_a_tile_is_a_slice_of_the_whole(distribution, data):
    lo = [data.draw(st.integers(0, n - 1)) for n in SHAPE]
    hi = [data.draw(st.integers(l + 1, n)) for l, n in zip(lo, SHAPE, strict=True)]
    rect = Rect(tuple(lo), tuple(hi))
    np.testing.assert_array_equal(
        filled(distribution, rect=rect), filled(distribution)[rect.slices()]
    )


def test_a_view_that_is_not_contiguous_is_filled_too():
    rect = Rect((1, 0, 2), (3, 5, 4))
    out = np.zeros((2, 5, 9))[:, :, 3:5]
    uniform(out, KEY, SHAPE, rect)
    np.testing.assert_array_equal(out, filled(Uniform(0, 1), rect=rect))


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("rect", [Rect.of_shape(SHAPE), Rect((1, 0, 2), (3, 5, 4))])
def test_memory_of_any_order_is_filled_where_it_lies(order, rect):
    out = np.zeros([rect.shape[k] for k in order]).transpose(np.argsort(order))
    uniform(out, KEY, SHAPE, rect)
    np.testing.assert_array_equal(out, filled(Uniform(0, 1), rect=rect))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_numbers_stay_below_one(dtype):
    number = np.zeros((1,), dtype)
    uniform(number, 7, (20922800,), Rect((20922799,), (20922800,)))  # 1 - 2**-26 or nearer
    assert 1 - 2**-24 <= number[0] < 1


def test_scalars_and_empty_boxes():
    assert filled(Uniform(0, 1), shape=()).shape == ()
    assert filled(Uniform(0, 1), rect=Rect((0, 0, 0), (0, 5, 6))).size == 0


@pytest.mark.parametrize("distribution", DISTRIBUTIONS[1:])
def test_keys_differ_and_repeat(distribution):
    first, again, other = (filled(distribution, key=key) for key in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == other)


def test_keys_depend_on_the_seed_and_every_name():
    keys = {
        random_key(*names)
        for names in [(0,), (1,), (0, "a"), (0, "b"), (0, "a", "b"), (0, "ab"), (0, "a", 1)]
    }
    assert len(keys) == 7
    assert (
        random_key(0, "fc1.weight") == 13481470471642042223
    )  # the same on every machine and in every release
    assert all(0 <= key < 2**64 for key in keys)


def test_float32_is_float64_rounded():
    np.testing.assert_allclose(
        filled(Normal(0, 1), dtype="float32"), filled(Normal(0, 1)), rtol=1e-6
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_is_float32_rounded(dtype, distribution):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    expected = filled(distribution, dtype="float32").astype(dtype)
    np.testing.assert_array_equal(filled(distribution, dtype=dtype), expected)


def test_uniform_moments():
    values = filled(Uniform(-1, 3), shape=(100, 100)).ravel()
    assert values.min() >= -1
    assert values.max() < 3
    assert abs(values.mean() - 1) < 0.05
    assert abs(values.var() - 16 / 12) < 0.05
    distance = np.max(np.abs(np.sort(values) - np.linspace(-1, 3, values.size))) / 4
    assert distance * np.sqrt(values.size) < 1.36  # Kolmogorov and Smirnov, 5 %
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.03


def test_normal_moments():
    values = (filled(Normal(1, 0.5), shape=(100, 100)).ravel() - 1) / 0.5
    assert abs(values.mean()) < 0.03
    assert abs(values.var() - 1) < 0.05
    assert abs((values**3).mean()) < 0.1
    assert abs((values**4).mean() - 3) < 0.25
    assert np.all(np.isfinite(values))


def test_philox_is_the_published_one():
    """The first known answer of Random123 for philox4x32-10: 6627e8d5 e169c58d bc57ac4c 9b00dbd8."""
    first = filled(Uniform(0, 1), key=0, shape=())
    assert first == (0x6627E8D5E169C58D >> 11) / 2**53
