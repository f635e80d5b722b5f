"""The points of operators as flat columns, which compiled code fills and reads; see `pointstore`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

PLACE, BOX, COLOUR, PARTIAL, SPAN, RECORD = range(6)  # columns that fill up, by their place in `length`


class Places(NamedTuple):
    """The columns, each with room for more; see `partition.Points`.

    Attributes:
        length: how far the columns are filled; see `PLACE` and so on.
        place, seat: device of every point, and which of the different devices of its configuration that is.
        flops, bytes: of every point; bytes of its arguments.
        span, box, colour: intervals of all axes, boxes of all terms and colours of all outputs, of every point.
        partial: of the outputs.
        record: (n, 10) first of `place` and number of points, first of `box` and dimensions of all terms, first of
            `colour` and outputs, first of `partial`, first of `term`, first of `span` and axes.
        term: per kind of operator the number of inputs, then the first dimension of every term.
    """

    length: Array
    place: Array
    seat: Array
    flops: Array
    bytes: Array
    box: Array
    colour: Array
    partial: Array
    span: Array
    record: Array
    term: Array


# The columns that grow together, by their place in `length`.
GROWING = (("place", "seat", "flops", "bytes"), ("box",), ("colour",), ("partial",), ("span",), ("record",))
