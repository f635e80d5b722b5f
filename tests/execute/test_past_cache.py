"""Copies past the cache: the same words, and only where there are many whole ones in a row."""

import numpy as np
import pytest

from taskflow.execute.past_cache import copy_call

WORDS = 1 << 13  # 64 KiB


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64"])
@pytest.mark.parametrize("more", [0, 8, 1000])
def test_all_words_are_copied_and_no_others(dtype, more):
    count = 8 * (WORDS + more) // np.dtype(dtype).itemsize
    source = np.random.default_rng(0).integers(1, 100, 3 * count).astype(dtype)
    target = np.zeros_like(source)
    copy_call(target[count : 2 * count].reshape(2, -1), source[count : 2 * count].reshape(2, -1))()
    np.testing.assert_array_equal(target[count : 2 * count], source[count : 2 * count])
    assert not target[:count].any() and not target[2 * count :].any()


def test_other_arrays_are_left_to_numpy():
    words, bytes_ = np.zeros((2, WORDS)), np.zeros(8 * WORDS + 9, np.uint8)
    assert copy_call(words, words) is not None
    for target, source, why in [
        (words[0, 1:], words[1, 1:], "less than 64 KiB"),
        (bytes_, bytes_, "not whole words"),
        (bytes_[1 : 1 + 8 * WORDS], bytes_[: 8 * WORDS], "words that do not begin where words do"),
        (words.T, words.T, "not in a row"),
        (words, words.astype(np.int64), "another dtype"),
    ]:
        assert copy_call(target, source) is None, why
