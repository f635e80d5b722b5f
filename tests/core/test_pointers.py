"""Named tuples behind pointers: fields, named tuples in them, and writes that the caller sees."""

from typing import NamedTuple

import numpy as np
import pytest

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf, njit
from taskflow.core.pointers import pointer_to


class Inner(NamedTuple):
    numbers: Array
    count: int


class Outer(NamedTuple):
    inner: Inner
    boxes: Array


@leaf
def add_all(inner, boxes):
    for k in range(inner.count):
        inner.numbers[k] += boxes[k, 1]


@njit
def run(numbers, count, boxes):
    outer = pointer_to(Outer(Inner(numbers, count), boxes))
    add_all(outer.inner, outer.boxes)
    return outer.inner.count + len(outer.boxes)


@njit
def name_another(numbers):
    return pointer_to(Inner(numbers, 1)).weight


def test_fields_are_those_of_the_tuple():
    numbers, boxes = np.arange(3), np.array([[0, 10], [0, 20], [0, 30]])
    assert run(numbers, 2, boxes) == 5
    assert numbers.tolist() == [10, 21, 2]


def test_a_field_that_is_none_is_refused():
    with pytest.raises(Exception, match="weight"):
        name_another(np.arange(3))
