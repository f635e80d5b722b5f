"""The points of operators as flat columns, which compiled code fills and reads; see `pointstore`."""

from __future__ import annotations

from typing import NamedTuple

from taskflow.core.columns import Array, record

FITS, FAULT = -2, -1  # what adding points may end with, see `addpoints.add_points`
DEVICE, BOX, COLOUR, PARTIAL, MODEL, RECORD = range(6)  # columns that fill up, by their number in `length`

# Of some points: the first one's device and how many they are; their first box and the dimensions of all terms; their
# first colour and the outputs; the first of `partial` and of `term`; the first of what a model has.
RECORD_DTYPE = record(
    *("first_device", "points", "first_box", "dims", "first_colour", "outputs", "first_partial", "first_term"),
    "first_model",
)


class PointTable(NamedTuple):
    """The columns, each with room for more; see `partition.OperatorPoints`.

    Attributes:
        length: how far the columns are filled; see `DEVICE` and so on.
        device: of every point.
        device_rank: of every point of a model, the number of its device among the different ones of its configuration.
        flops, bytes: of every point of a model; bytes of its arguments.
        box, colour: boxes of all terms and colours of all outputs, of every point of a model.
        partial: of the outputs of a model.
        record: where the columns of some points begin.
        term: per kind of operator the number of inputs, then the first dimension of every term.
    """

    length: Array
    device: Array
    device_rank: Array
    flops: Array
    bytes: Array
    box: Array
    colour: Array
    partial: Array
    record: Array
    term: Array


# The columns that grow together, by their number in `length`.
GROWING = (("device",), ("box",), ("colour",), ("partial",), ("device_rank", "flops", "bytes"), ("record",))
