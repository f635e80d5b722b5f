"""Gradients of tables by row: a row for every look-up, where the whole gradient would be zero nearly everywhere.

Two regions that there are already give the gradient of the weight of `embedding` or `embedding_bag`: the indices, and
the gradient of what was looked up. An update that reads these touches the rows that were looked up and no others; an
index and a row for every look-up are brought to where the table lies, instead of a table. The update of a row has to
leave it as it is where its gradient is zero: plain gradient descent and Adagrad do, a momentum or a decay does not.

A row that is looked up several times is updated once, by the sum of its gradients in the order of the look-ups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from math import prod

from ops.building import distinct, term, terms
from ops.cuda import tables as gpu_tables
from ops.expressions.assign import DTYPES, run_on_gpu, run_program
from ops.expressions.program import Program
from ops.tables.embedding import is_look_up, is_look_up_gradient
from ops.tiles import contiguous, rows
from taskflow import (
    Array,
    Context,
    Graph,
    Kernel,
    LogicalRegion,
    Operator,
    is_sum,
    launch_beside,
    njit,
)

Arrays = Sequence[Array]


@dataclass(frozen=True)
class RowGradient:
    """The gradient of a table by row.

    Attributes:
        makers: the operators that make the whole gradient, the last one first.
        look_ups: indices, and the gradient of what they looked up: a row for each; for each bag, where it is of bags.
    """

    makers: tuple[Operator, ...]
    look_ups: tuple[tuple[LogicalRegion, LogicalRegion], ...]

    @property
    def count(self) -> int:
        """Look-ups of a step."""
        return sum(prod(indices.shape) for indices, _ in self.look_ups)

    def is_of(self, dtype: str) -> bool:
        """Whether all that looked-up rows get is of that dtype."""
        return all(gy.dtype == dtype for _, gy in self.look_ups)


def row_gradients(
    graph: Graph, gradients: Mapping[LogicalRegion, LogicalRegion]
) -> dict[LogicalRegion, RowGradient]:
    """Parameter -> its gradient by row, where look-ups alone make it and nothing reads it."""
    makers = {r.name: op for op in graph.operators for r in op.outputs}
    uses = Counter(
        r.name for r in [*graph.outputs.values(), *(r for op in graph.operators for r in op.inputs)]
    )
    by_row = {p: _by_row(g, makers, uses, 0) for p, g in gradients.items() if p.dtype in DTYPES}
    return {p: g for p, g in by_row.items() if g and g.is_of(p.dtype)}


def _by_row(
    gradient: LogicalRegion, makers: Mapping[str, Operator], uses: Mapping[str, int], readers: int
) -> RowGradient | None:
    """None: others than so many readers use it, or something else than look-ups, and sums of theirs, makes it."""
    maker = makers[gradient.name]
    if uses[gradient.name] != readers or not (is_sum(maker) or is_look_up_gradient(maker)):
        return None
    if not is_sum(maker):
        return RowGradient((maker,), ((maker.inputs[0], maker.inputs[1]),))
    parts = [part for r in maker.inputs if (part := _by_row(r, makers, uses, 1))]
    if len(parts) < len(maker.inputs):
        return None
    return RowGradient(
        (maker, *chain.from_iterable(part.makers for part in parts)),
        tuple(chain.from_iterable(part.look_ups for part in parts)),
    )


def set_makers_aside(graph: Graph, gradients: Iterable[RowGradient]) -> None:
    """Take the operators that make the whole gradients out of the graph, until somebody asks for one."""
    graph.set_aside(maker.outputs[0] for gradient in gradients for maker in gradient.makers)


def update_rows(
    name: str,
    table: LogicalRegion,
    gradient: RowGradient,
    states: Sequence[LogicalRegion],
    scalars: Sequence[LogicalRegion],
    steps: Program,
    flops: float,
) -> None:
    """Append the operator that updates the rows of `table` and `states` that were looked up; see `set_makers_aside`.

    `steps` is a program of the table, its gradient, the states and the scalars; `flops` are those of an element. The
    operator is split as the first that looks up rows splits the table. It reads all look-ups, wherever they were made.
    """
    leader = next(
        op
        for op, _ in table.graph.operators.readers(table)
        if is_look_up(op) and op.inputs[1] is table
    )
    across, columns = terms(leader)[0][1].split()
    written = [table, *states]
    inputs = [region for pair in gradient.look_ups for region in pair]
    kernel = replace(
        _update.bind(program=steps, states=len(states)),
        picks=dict.fromkeys(
            range(len(written)), range(len(written), len(written) + len(inputs), 2)
        ),
    )
    points = prod([leader.extents[across], *(n for r in inputs[::2] for n in r.shape)])
    read = ["*"] * len(written) + _terms_of(gradient, columns, leader.extents)
    launch_beside(
        leader,
        1,
        name,
        f"{', '.join([*read, *'.' * len(scalars)])} ->",
        [*written, *inputs, *scalars],
        kernel=kernel,
        writes=written,
        flops=flops * gradient.count / points,
    )


def _terms_of(gradient: RowGradient, columns: str, taken: Iterable[str]) -> list[str]:
    """Of indices and gradients by turns, whose axes have names that are not taken."""
    names = [*taken]
    read = []
    for indices, gy in gradient.look_ups:
        axes = distinct(("n",) * indices.ndim, names)
        names += axes
        read += [term(axes), term((*axes[: gy.ndim - 1], columns))]
    return read


# -- kernels -----------------------------------------------------------------------------------------------------------


def _divided(
    arrays: Sequence[Array], program: Program, states: int
) -> tuple[Arrays, list[Arrays], Arrays]:
    """Tables, then indices and gradients by turns, then scalars."""
    first = 1 + states
    last = len(arrays) - (len(program.arguments) - 2 - states)
    return arrays[:first], [arrays[k : k + 2] for k in range(first, last, 2)], arrays[last:]


@Kernel
def _on_gpu(ctx: Context, *arrays: Array, program: Program, states: int) -> None:
    """The arguments are those of `_update`."""
    tables, pairs, scalars = _divided(arrays, program, states)
    shape = sum(index.size for index, _ in pairs), tables[0].shape[1]
    indices = ctx.scratch("index", shape[:1], "int64")
    gradients = ctx.scratch("gradients", shape, tables[0].dtype)
    end = 0
    for index, gy in pairs:
        begin = end
        end = end + index.size
        by_index = gradients[begin:end].reshape(*gy.shape[:-1], -1, shape[1])
        ctx.xp.copyto(indices[begin:end].reshape(index.shape), index)
        ctx.xp.copyto(by_index, gy[..., None, :])

    def change(rows: Sequence[Array], sums: Array) -> None:
        run_on_gpu(ctx, rows[0], sums, *rows[1:], *scalars, program=program)

    gpu_tables.update_rows(ctx, tables, indices, gradients, change)


@partial(Kernel, is_compiled=True, is_captured=True, cuda=_on_gpu)
def _update(ctx: Context, *arrays: Array, program: Program, states: int) -> None:
    """Tables, then indices and gradients by turns, then scalars: see `update_rows`."""
    tables, pairs, scalars = _divided(arrays, program, states)
    count = sum(index.size for index, _ in pairs)
    width = tables[0].shape[1]
    (lo, _) = ctx.rect(0).lo
    row, first = (ctx.scratch(slot, (count,), "int64") for slot in ("row", "first"))
    sums = ctx.scratch("sums", (count, width), tables[0].dtype)
    slots = ctx.scratch("slots", (1 << (2 * count).bit_length(),), "int64")
    ends = list(accumulate(index.size for index, _ in pairs))
    for k, ((index, _), end) in enumerate(zip(pairs, ends, strict=True)):
        flat = contiguous(ctx, ("index", k), index).reshape(-1)
        ctx.call(note_rows, flat, lo, len(tables[0]), row[end - index.size : end])
    ctx.call(note_first, row, first, slots)
    ctx.xp.copyto(sums, 0)
    for k, ((index, gy), end) in enumerate(zip(pairs, ends, strict=True)):
        ctx.call(add_to_first, rows(ctx, ("gy", k), gy), first[end - index.size : end], sums)
    works = [
        ctx.scratch(("work", k), (count, width), table.dtype) for k, table in enumerate(tables)
    ]
    for table, work in zip(tables, works, strict=True):
        ctx.call(take_rows, table, row, work)
    run_program(ctx, [works[0], sums, *works[1:], *scalars], program)
    for table, work in zip(tables, works, strict=True):
        ctx.call(put_rows, work, row, first, table)


@njit(nogil=True)
def note_rows(index: Array, lo: int, count: int, row: Array) -> None:
    """row[k] = the row of this tile of `count` that look-up k is of; -1: it is of another tile."""
    for k in range(len(index)):
        at = index[k] - lo
        row[k] = at if 0 <= at < count else -1


@njit(nogil=True)
def note_first(row: Array, first: Array, slots: Array) -> None:
    """first[k] = the first look-up of the row of look-up k, found by linear probing; -1: it is of another tile."""
    slots[:] = -1
    last = len(slots) - 1
    for k in range(len(row)):
        first[k] = -1
        if row[k] >= 0:
            at = (row[k] * 0x9E3779B1) & last  # Knuth's multiplicative hash
            while slots[at] >= 0 and row[slots[at]] != row[k]:
                at = (at + 1) & last
            if slots[at] < 0:
                slots[at] = k
            first[k] = slots[at]


@njit(nogil=True)
def add_to_first(gradients: Array, first: Array, sums: Array) -> None:
    """Add each gradient, of a bag for all of its look-ups, to the sum of the first look-up of its row."""
    bag = len(first) // max(len(gradients), 1)
    for k in range(len(first)):
        at = first[k]
        of = k // bag
        if at >= 0:
            for e in range(sums.shape[1]):
                sums[at, e] += gradients[of, e]


@njit(nogil=True)
def take_rows(table: Array, row: Array, work: Array) -> None:
    """Copy the row of every look-up; 1 for those of other tiles."""
    for k in range(len(row)):
        at = row[k]
        if at >= 0:
            for e in range(work.shape[1]):
                work[k, e] = table[at, e]
        else:
            work[k] = 1


@njit(nogil=True)
def put_rows(work: Array, row: Array, first: Array, table: Array) -> None:
    """Bring back the rows of first look-ups."""
    for k in range(len(row)):
        at = row[k]
        if first[k] == k:
            for e in range(work.shape[1]):
                table[at, e] = work[k, e]
