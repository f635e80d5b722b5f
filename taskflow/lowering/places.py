"""The points of operators as flat columns, which compiled code fills and reads; see `pointstore`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

FITS, FAULT = -2, -1  # what adding points may end with, see `placing.add_points`
PLACE, BOX, COLOUR, PARTIAL, SEAT, RECORD = range(6)  # columns that fill up, by their place in `length`


class Places(NamedTuple):
    """The columns, each with room for more; see `partition.Points`.

    Attributes:
        length: how far the columns are filled; see `PLACE` and so on.
        place: device of every point.
        seat: of every point of a model, which of the different devices of its configuration it is on.
        flops, bytes: of every point of a model; bytes of its arguments.
        box, colour: boxes of all terms and colours of all outputs, of every point of a model.
        partial: of the outputs of a model.
        record: (n, 9) first of `place` and number of points, first of `box` and dimensions of all terms, first of
            `colour` and outputs, first of `partial`, first of `term`, first of `seat`, `flops` and `bytes`.
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
    record: Array
    term: Array


# The columns that grow together, by their place in `length`.
GROWING = (("place",), ("box",), ("colour",), ("partial",), ("seat", "flops", "bytes"), ("record",))
