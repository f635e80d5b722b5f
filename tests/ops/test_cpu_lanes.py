"""Sums of rows: what the compiled ones compute, and that their bits depend on numbers and length only."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import ops
from ops.cpu import lanes as cpu_lanes
from taskflow import Graph, LogicalRegion, Operator, differentiate
from taskflow.backend import Context

from .interpreter import first_values, read_only, run

Array = np.ndarray[Any, np.dtype[Any]]
FOLDS: dict[str, tuple[float, np.ufunc]] = {"sum_of": (0, np.add), "max_of": (-np.inf, np.fmax)}
LENGTHS = (0, 1, 2, 31, 32, 33, 63, 64, 100, 257)


def folded(row: Array, start: float, combine: np.ufunc) -> float:
    """What they compute: every lane its numbers in their order, then half of the lanes on the other half."""
    lanes = np.full(cpu_lanes.LANES, start, row.dtype)
    for k in range(0, row.size, lanes.size):
        part = row[k : k + lanes.size]
        lanes[: part.size] = combine(lanes[: part.size], part)
    while lanes.size > 1:
        lanes = combine(lanes[: lanes.size // 2], lanes[lanes.size // 2 :])
    return float(lanes[0])


def compiled(name: str) -> Callable[[Array], Any]:
    function = getattr(cpu_lanes, name)

    @numba.njit(error_model="numpy")
    def call(row: Any) -> Any:
        return function(row)

    return call  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiled_gives_the_bits_of_its_definition(name: str, dtype: str) -> None:
    call = compiled(name)
    for length in LENGTHS:
        memory = np.random.default_rng(length).standard_normal(length + 3).astype(dtype)
        for start in range(3):
            row = memory[start : start + length]
            assert call(row) == folded(row, *FOLDS[name])


def test_nothing_behind_a_row_is_counted() -> None:
    memory = np.full(40, np.nan, np.float32)
    memory[:33] = 1
    assert compiled("sum_of")(memory[:33]) == 33
    assert compiled("max_of")(memory[:33]) == 1


def test_the_maximum_leaves_out_what_is_no_number() -> None:
    largest = compiled("max_of")
    assert largest(np.array([np.nan, 1, -np.inf, 3, np.nan])) == 3
    assert largest(np.full(5, -np.inf)) == -np.inf


# -- operators ---------------------------------------------------------------------------------------------------------

ROWS: dict[str, Callable[[LogicalRegion, LogicalRegion], LogicalRegion]] = {
    "softmax": lambda x, t: ops.softmax(x),
    "log_softmax": lambda x, t: ops.log_softmax(x),
    "softmax_cross_entropy": ops.softmax_cross_entropy,
    "cross_entropy": ops.cross_entropy,
    "layer_norm": lambda x, t: ops.layer_norm(x),
    "rms_norm": lambda x, t: ops.rms_norm(x),
}


def graph_of(name: str, width: int) -> Graph:
    graph = Graph()
    x, t = graph.input("x", (5, 3, width)), graph.input("t", (5, 3), "int32")
    y = ROWS[name](x, t)
    differentiate(ops.sum_to(ops.multiply(y, y), ()), [x, *graph.parameters])
    return graph


def placed(a: Array, offset: int, gap: int) -> Array:
    """A copy that begins `offset` numbers into its memory, with `gap` numbers behind each row."""
    shape = (*a.shape[:-1], a.shape[-1] + gap) if a.ndim else ()
    memory = np.full(offset + int(np.prod(shape)), 7, a.dtype)
    view = (
        memory[offset:].reshape(shape)[(..., slice(a.shape[-1]))]
        if a.ndim
        else memory[offset:].reshape(())
    )
    view[...] = a
    return view


def outputs_of(op: Operator, values: dict[str, Array], offset: int, gap: int) -> list[Array]:
    context = Context([r.rect for r in op.args], {axis: (0, n) for axis, n in op.extents.items()})
    outputs = [placed(np.zeros(r.shape, r.dtype), offset, gap) for r in op.outputs]
    inputs = [read_only(placed(values[r.name], offset, gap)) for r in op.inputs]
    op.kernel(context, *inputs, *outputs)
    return outputs


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("width", [10, 33, 128])
def test_the_same_row_elsewhere_gives_the_same_bits(name: str, width: int) -> None:
    graph = graph_of(name, width)
    values = run(graph, first_values(graph))
    for op in graph.operators:
        for offset, gap in ((0, 0), (1, 0), (3, 5), (16, 1)):
            for region, found in zip(op.outputs, outputs_of(op, values, offset, gap), strict=True):
                assert np.array_equal(found, values[region.name]), f"{op}: {offset=} {gap=}"
