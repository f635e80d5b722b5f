"""The twenty smallest task graphs of `benchmarks/golden.json` are what they were; the script compares all."""

import numpy as np
import pytest

import ops.dense.linear  # noqa: F401 - its name is taken from names of kernels
from benchmarks import golden

RECORDED = golden.load()


def test_all_cases_are_recorded():
    assert RECORDED.keys() == golden.CASES.keys()


@pytest.mark.parametrize("name", golden.smallest(RECORDED, 20))
def test_nothing_has_changed(name):
    found = golden.measure(golden.CASES[name])
    assert not RECORDED[name].differences(found)
    assert RECORDED[name] == found


def test_a_hash_is_of_values_and_not_of_their_dtype():
    column = np.arange(6)
    assert (
        golden.hash_of(column)
        == golden.hash_of(column.astype(np.int32))
        != golden.hash_of(column.reshape(2, 3))
    )
    changed = column.copy()
    changed[3] = 4
    assert golden.hash_of(column) != golden.hash_of(changed)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("ops.dense.linear.forward | b i", "forward | b i"),
        ("ops.dense.linear.make.<locals>.kernel", "make.<locals>.kernel"),
        ("ops.dense.linear.<lambda>", "<lambda>"),
        ("f((), [('f', 'taskflow.graph.differentiate._add')])", "f((), [('f', '_add')])"),
        (
            "f((), [('name', 'devops.linear.x.ops.linear')])",
            "f((), [('name', 'devops.linear.x.ops.linear')])",
        ),
    ],
)
def test_a_kernel_is_named_without_its_modules(text, left):
    assert golden.without_modules(text) == left
