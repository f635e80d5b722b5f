"""Tiles of more elements than 32 bits count: refused where functions or kernels count in them."""

import numpy as np
import pytest

from ops.cuda.attention import _MOST_ELEMENTS, _span
from taskflow.backend.sizes import COUNTS_ANY_SIZE, MOST_ELEMENTS, refuse_large

MANY = (1 << 31) + 8


def large(dtype="float32"):
    """An array of so many elements that takes the memory of one."""
    return np.broadcast_to(np.zeros(1, dtype), (MANY,))


@pytest.mark.parametrize("name", ["take", "argmax", "cumsum", "put_along_axis", "take_along_axis"])
def test_functions_that_count_in_32_bits(name):
    assert name not in COUNTS_ANY_SIZE
    message = (
        f"cupy.{name}: argument 1 has {MANY} elements; CuPy counts {MOST_ELEMENTS} at most there"
    )
    with pytest.raises(ValueError, match=message):
        refuse_large(name, getattr(np, name), large(), None)


def test_results_count_too():
    with pytest.raises(ValueError, match=f"cupy.take: 'out' has {MANY} elements"):
        refuse_large("take", np.take, np.zeros(3), np.zeros(3, int), out=large())


def test_what_32_bits_count_is_done():
    np.testing.assert_array_equal(refuse_large("cumsum", np.cumsum, np.ones(3)), [1, 2, 3])


def test_heads_that_lie_far_apart():
    """Few elements with large steps between them: 32 bits do not count to the last."""
    memory = np.broadcast_to(np.zeros(1, np.float16), (1 << 32,))
    shape, steps = (3, 2, 2, 8), (1 << 31, 32, 16, 2)
    far = np.lib.stride_tricks.as_strided(memory, shape, steps)
    assert far.size == 96 and _span(far) > _MOST_ELEMENTS
    assert _span(np.zeros((3, 2, 2, 8), np.float16)) == 96
    assert _span(far[:, ::-1]) == _MOST_ELEMENTS
