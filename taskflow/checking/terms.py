"""Terms: which box of a region a point touches, and how much of a reduced axis it has, by patterns alone. Compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, record
from taskflow.core.compiling import leaf
from taskflow.graph import window as window_rule

LAUNCH = record("bound", "spans", "points", "args", "inputs", "outputs", "is_addition")
# Versions, -1 for none; whether later parts may be added to what is there, and whether the first is added to a version.
ARGUMENT = record("region", "reads", "makes", "privilege", "launch", "accumulates", "adds")
BOUND = record("terms", "extents", "axes")  # where they begin, and the number of axes
# Factors of splitmix64: numbers of NumPy, so that products keep to 64 bits as Python, too.
SCATTER_0, SCATTER_1, SCATTER_2 = np.array(
    [-7046029254386353131, -4658895280553007687, -7723592293110705685]
)
TERM = record("first", "end", "reduced", "reduced_end")  # of its dimensions and reduced axes
DIMENSION = record(
    "first", "end", "extent", "window", "size", "stride", "padding", "dilation", "transposed"
)  # its axes are `dim_axis[first:end]`
VERSION = record("region", "number", "volume", "weight")  # the last two: of all parts of a sum

image = leaf(window_rule.image)
within = leaf(window_rule.within)
table_image = leaf(window_rule.table_image)
BY_RULE = window_rule.BY_RULE


class GraphTables(NamedTuple):
    """What a graph says, by number.

    Attributes:
        launch, arg: `LAUNCH` and `ARGUMENT` records, arguments of one launch after another.
        spans: (points of all launches times axes, 2) intervals.
        bound, extent, term, dim, dim_axis, reduced: patterns with their extents, see the records.
        version: `VERSION` records.
        fed: per region its version 0.
        tile: (2, dimensions) for boxes that are at hand.
        images: the tables of all images, see `pattern.PatternTable`.
    """

    launch: Array
    arg: Array
    spans: Array
    bound: Array
    extent: Array
    term: Array
    dim: Array
    dim_axis: Array
    reduced: Array
    version: Array
    fed: Array
    tile: Array
    images: Array


@leaf
def spans_fit(g: GraphTables, launch: int, point: int) -> bool:
    """Whether the intervals of a point have points, all of them of the axes."""
    bound = g.bound[g.launch[launch].bound]
    at = g.launch[launch].spans + point * bound.axes
    for a in range(bound.axes):
        if g.spans[at + a, 0] < 0 or g.spans[at + a, 1] > g.extent[bound.extents + a]:
            return False
        if g.spans[at + a, 1] <= g.spans[at + a, 0]:
            return False
    return True


@leaf
def put_term_box(g: GraphTables, launch: int, k: int, point: int) -> tuple[int, int]:
    """`tile` := the box of argument `k`; its dimensions and number of points, -1 where a group is cut apart."""
    bound = g.bound[g.launch[launch].bound]
    at = g.launch[launch].spans + point * bound.axes
    term = g.term[bound.terms + k]
    volume = 1
    for n in range(term.first, term.end):
        dim = g.dim[n]
        low = 0
        high = 1
        is_contiguous = True
        if dim.window > BY_RULE:
            span = g.spans[at + g.dim_axis[dim.first]]
            low, high = table_image(span[0], span[1], g.images, dim.size, dim.stride, dim.padding)
        elif dim.window:
            span = g.spans[at + g.dim_axis[dim.first]]
            low, high = image(
                span[0],
                span[1],
                dim.extent,
                dim.size,
                dim.stride,
                dim.padding,
                dim.dilation,
                dim.transposed != 0,
            )
        else:
            for a in range(dim.first, dim.end):
                axis = g.dim_axis[a]
                extent = g.extent[bound.extents + axis]
                low, high, is_contiguous = within(
                    low, high, extent, g.spans[at + axis, 0], g.spans[at + axis, 1]
                )
                if not is_contiguous:
                    return term.end - term.first, -1
        g.tile[0, n - term.first] = low
        g.tile[1, n - term.first] = high
        volume *= high - low
    return term.end - term.first, volume


# -- parts of sums -----------------------------------------------------------------------------------------------------


@leaf
def measure(g: GraphTables, launch: int, k: int, point: int) -> tuple[int, int]:
    """Volume and weight of what a point adds to argument `k`: of its box of reduced axes."""
    bound = g.bound[g.launch[launch].bound]
    at = g.launch[launch].spans + point * bound.axes
    term = g.term[bound.terms + k]
    volume = 1
    weight = 1
    for n in range(term.reduced, term.reduced_end):
        axis = g.reduced[n]
        low = g.spans[at + axis, 0]
        high = g.spans[at + axis, 1]
        volume *= high - low
        weight *= scattered(axis, high) - scattered(axis, low)
    return volume, weight


@leaf
def whole_measure(g: GraphTables) -> None:
    """Volume and weight of all parts of every version; what is added to another has that as a part, too."""
    for launch in range(len(g.launch)):
        inputs = g.launch[launch].inputs
        first = g.launch[launch].args
        for k in range(inputs + g.launch[launch].outputs):
            arg = g.arg[first + k]
            if k < inputs and not arg.adds:
                continue
            volume, weight = whole_of_inputs(g, launch)
            if not g.launch[launch].is_addition:
                volume, weight = whole_of_axes(g, launch, k)
            if arg.adds:
                volume = volume + 1
                weight = weight + base_weight()
            g.version[arg.makes].volume = volume
            g.version[arg.makes].weight = weight


@leaf
def whole_of_axes(g: GraphTables, launch: int, k: int) -> tuple[int, int]:
    """Volume and weight of all parts of argument `k`: of all its reduced axes."""
    bound = g.bound[g.launch[launch].bound]
    term = g.term[bound.terms + k]
    volume = 1
    weight = 1
    for n in range(term.reduced, term.reduced_end):
        extent = g.extent[bound.extents + g.reduced[n]]
        volume *= extent
        weight *= scattered(g.reduced[n], extent)
    return volume, weight


@leaf
def whole_of_inputs(g: GraphTables, launch: int) -> tuple[int, int]:
    """Volume and weight of all parts of a sum: of all those of what is added."""
    volume = 0
    weight = 0
    for k in range(g.launch[launch].inputs):
        version = g.version[g.arg[g.launch[launch].args + k].reads]
        volume = volume + version.volume
        weight = weight + summand_factor(k) * version.weight
    return volume, weight


@leaf
def summand_factor(k: int) -> int:
    """By which the weight of input `k` of an addition counts, so that a part of another does not stand for its own."""
    return scattered(62, k + 1)


@leaf
def base_weight() -> int:
    """The weight of the version to which parts are added; its volume is 1."""
    return scattered(63, 1)  # no pattern has as many axes


@leaf
def scattered(axis: int, point: int) -> int:
    """The weight of the first points of an axis: 0 for none, else 64 bits as good as random (splitmix64)."""
    if point == 0:
        return 0
    x = (point * 64 + axis) * SCATTER_0
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * SCATTER_1
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * SCATTER_2
    mixed: int = x ^ ((x >> 31) & 0x1FFFFFFFF)
    return mixed
