"""Boxes in a line, compiled by numba: those that may overlap a box are found without a look at all others.

Of a version that many points make, in many parts each, a box overlaps a few. So the boxes stand in order of their lower
border in the dimension in which they are shortest for the length of the line; what overlaps begins a longest box before
at most.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.sorting import sort


class Line(NamedTuple):
    """Numbered boxes in order.

    Attributes:
        key: lower border times `total`, plus a place in `number`; ascending.
        number: of every box, ascending.
        total: of boxes.
        side: where the lower border stands in a box.
        longest: of the boxes in this dimension.
    """

    key: Any
    number: Any
    total: int
    side: int
    longest: int


@inner
def line_of(number: Any, box: Any, width: int) -> Line:
    """The boxes of these numbers, of so many borders each, in a line."""
    count = len(number)
    best = -1
    side = 0
    longest = 0
    for d in range(0, width if count else 0, 2):
        low = box[number[0]][d]
        high = box[number[0]][d]
        most = 1
        for k in number:
            low = min(low, box[k][d])
            high = max(high, box[k][d])
            most = max(most, box[k][d + 1] - box[k][d])
        if (high - low) // most > best:
            best = (high - low) // most
            side = d
            longest = most
    key = np.empty(count, np.int64)
    for i in range(count):
        key[i] = box[number[i]][side] * count + i
    return Line(sort(key), number, count, side, longest)


@inner
def near(line: Line, box: Any) -> Any:
    """The numbers of those that may overlap the box, ascending."""
    places = line.key[first_near(line, box) : end_near(line, box)] % max(line.total, 1)
    return line.number[sort(places)]


@leaf
def first_near(line: Line, box: Any) -> int:
    """The place in the line of the first that may overlap the box."""
    return first_from(line.key, (box[line.side] - line.longest + 1) * line.total)


@leaf
def end_near(line: Line, box: Any) -> int:
    """The place in the line behind the last that may overlap the box."""
    return first_from(line.key, box[line.side + 1] * line.total)


@leaf
def first_from(keys: Any, least: int) -> int:
    """The place of the first of these ascending keys that is not below `least`."""
    low = 0
    high = len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low
