"""Attention in rounds around a ring: each round scores every block of queries with one block of keys, or with none.

What `taskflow.ring` asks the kernels of `fused_attention` for. Of `count` parts of the sequence, part d scores the keys
of part d - j (modulo `count`) in round j: no two parts read the same keys at a time, and a part's neighbour had them in
the round before, so a copy comes from there where that is nearer than the owner, and every link carries one block a
round. Own keys come first, when no others are here. Forward, a round adds its block to a running result by the
logarithm of its sum of exponentials. Backward, that of all keys is known, so a round gives the gradient of its queries,
which is added up where these are, and of its keys, which goes to where those are while the next round computes.

Causal: the sequence has twice as many blocks, and part d is blocks d and 2n - 1 - d ("zig-zag"). With the keys of an
earlier part (blocks c and 2n - 1 - c, c < d) both its blocks score block c; with those of a later part the second block
scores c and 2n - 1 - c. That is two rounds of one pair of blocks for every part: none waits for another, and what a
mask hides is no work and moves nothing. The other way, part d the d-th run of positions, the last part has twice the
mean work. Own keys are two rounds as well, of which the second is the last one backward: under it the last gradients
arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from ops.building import distinct, launch_all
from taskflow import Array, Context, Image, Kernel, LogicalRegion, Operator, Rect

NONE = -1
Table = tuple[int, ...]  # of every block of queries, its block of keys, or NONE


def tables_of(count: int, is_causal: bool) -> list[Table]:
    """Those of all rounds; own keys come first. Every block of keys is read by at most one of queries in a round."""
    if not is_causal:
        return [tuple((d - j) % count for d in range(count)) for j in range(count)]
    last = 2 * count - 1
    tables = [tuple(range(2 * count))]
    tables.append((*[NONE] * count, *(last - b for b in range(count, 2 * count))))
    for j in range(1, count):
        tables += _zig_zag(count, j)
    return tables


def _zig_zag(count: int, shift: int) -> tuple[Table, Table]:
    """The tables of two causal rounds, in which part d scores keys of part d - shift."""
    last = 2 * count - 1
    first = [NONE] * 2 * count
    second = [NONE] * 2 * count
    for part in range(count):
        other = (part - shift) % count
        is_earlier = other < part
        first[part if is_earlier else last - part] = other
        second[last - part] = other if is_earlier else last - other
    return tuple(first), tuple(second)


_AXES = ("s", "inside", "key", "read")  # blocks, positions in one of queries, in one of keys, keys
_TERMS = {
    "q": "{b} ({s} ^{inside}) {h} ^{d}",
    "y": "{b} ({s} ^{inside}) {h} ^{e}",
    "k": "{b} {read} {h} ^{d}",
    "v": "{b} {read} {h} ^{e}",
    "gk": "{b} ({s} ^{key}) {h} ^{d}",
    "gv": "{b} ({s} ^{key}) {h} ^{e}",
    "row": "{b} {h} ({s} ^{inside})",
}


class _Cut(NamedTuple):
    """How attention is cut: tables of its rounds, terms with blocks for points, extents, flops of one of its points."""

    tables: list[Table]
    near: int  # rounds with own keys
    terms: dict[str, str]
    names: tuple[str, ...]  # of `_AXES`
    sizes: tuple[int, int]  # positions of a block of queries, and of one of keys
    flops: float

    @staticmethod
    def of(op: Operator, count: int, query: int) -> _Cut | None:
        """Of an operator whose inputs from `query` on are q, k and v; None: there are no such blocks."""
        is_causal = bool(op.kernel.options["is_causal"])
        tables = tables_of(count, is_causal)
        q, k, v = op.inputs[query : query + 3]
        blocks = len(tables[0])
        if q.shape[1] % blocks or k.shape[1] % blocks:
            return None
        if is_causal and q.shape[1] != k.shape[1]:
            return None
        return _Cut(
            tables,
            1 + is_causal,
            *_terms_of(op, query),
            (q.shape[1] // blocks, k.shape[1] // blocks),
            1 / q.shape[3] + 1 / v.shape[3],  # a point of the iteration space is of both
        )

    def share(self, table: Table) -> float:
        """Of the pairs of a query and a key in its blocks, those in which the query sees the key."""
        is_diagonal = self.near > 1 and table == self.tables[0]
        return (self.sizes[0] + 1) / (2 * self.sizes[0]) if is_diagonal else 1.0

    def image(self, table: Table) -> Image:
        """The keys of the blocks that a table names."""
        size = self.sizes[1]
        low = [max(block, 0) * size for block in table]
        high = [at + size * (block != NONE) for at, block in zip(low, table, strict=True)]
        return Image(self.names[0], low, high)


def _terms_of(op: Operator, query: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """The terms of an operator's cut, and the names of `_AXES`."""
    axes = dict(zip("bshd", (dim[0] for dim in op.bound.terms[query].dims), strict=True))
    axes["e"] = op.bound.terms[query + 2].dims[3][0]
    axes |= zip(_AXES[1:], distinct(_AXES[1:], axes.values()), strict=True)
    written = {role: text.format(**axes) for role, text in _TERMS.items()}
    return written, tuple(axes[name] for name in _AXES)


class _Turn(NamedTuple):
    """What one operator of a chain is of.

    Attributes:
        flops: of a point of all axes, and of a key.
        last: of the last one, dtypes of the results.
        passes: inputs that a device has from its neighbour.
    """

    table: Table
    flops: float
    last: Sequence[str] = ()
    passes: tuple[int, ...] = ()


@dataclass
class _Chain:
    """Operators in turn that make something of all rounds: the first makes it, others change it in place.

    The last one makes the results; what is under way is of the dtype of the statistics, so half precision rounds once.
    """

    name: str
    kernel: Kernel
    cut: _Cut
    read: Sequence[str]
    kept: Sequence[str]
    dtype: str
    made: tuple[LogicalRegion, ...] = ()

    def launch(
        self,
        turn: _Turn,
        inputs: Sequence[LogicalRegion],
        beside: Sequence[tuple[str, str]] = (),
    ) -> tuple[LogicalRegion, ...]:
        """Append one. `beside`: terms and dtypes of what else it makes."""
        made = self.kept if turn.last or not self.made else ()
        key = self.cut.names[3]
        regions = launch_all(
            self.name,
            self._pattern([*made, *(term for term, _ in beside)]),
            [*inputs, *self.made],
            kernel=self.kernel.bind(
                blocks=turn.table, sizes=self.cut.sizes, is_first=not self.made
            ),
            sizes=dict(zip(self.cut.names[1:3], self.cut.sizes, strict=True)),
            windows={key: self.cut.image(turn.table)},
            writes=() if made else range(len(inputs), len(inputs) + len(self.made)),
            flops={key: turn.flops},
            dtype=[
                *(turn.last or [self.dtype] * len(made)),
                *(dtype for _, dtype in beside),
            ]
            or None,
        )
        operators = inputs[0].graph.operators
        operators[-1] = replace(operators[-1], passes=turn.passes)
        if made:
            self.made = regions[: len(made)]
        return regions[len(made) :]

    def _pattern(self, outputs: Sequence[str]) -> str:
        read = [*self.read, *self.kept[: len(self.made)]]
        sides = [", ".join(self.cut.terms[term] for term in side) for side in (read, outputs)]
        return " -> ".join(sides)


def forward_rounds(op: Operator, count: int) -> tuple[LogicalRegion, ...] | None:
    """Result and statistics in rounds; see `Kernel.ring`."""
    if (cut := _Cut.of(op, count, 0)) is None:
        return None
    dtypes = [r.dtype for r in op.outputs]
    chain = _Chain(
        f"{op.name}.round", _of(op.kernel, _forward), cut, "qkv", ("y", "row"), dtypes[1]
    )
    inputs = [op.inputs[0], *_brought(op, cut, 1)]
    for number, table in enumerate(cut.tables, 1):
        chain.launch(
            _Turn(
                table,
                2 * cut.flops * cut.share(table),
                last=dtypes if number == len(cut.tables) else (),
                passes=(1, 2) if number % cut.near == 0 else (),
            ),
            inputs,
        )
    return chain.made


def gradient_rounds(op: Operator, count: int) -> tuple[LogicalRegion, ...] | None:
    """The gradients of queries, keys and values in rounds; see `Kernel.ring`.

    What a round made of keys is added up behind the next one, in which it is on its way.
    """
    if (cut := _Cut.of(op, count, 3)) is None:
        return None
    queries, keys = _gradient_chains(op, cut)
    inputs = [*op.inputs[:4], *_brought(op, cut, 4)]
    beside = [("gk", op.outputs[1].dtype), ("gv", op.outputs[2].dtype)]
    turns = _gradient_turns(cut, op.outputs[0].dtype)
    parts = queries.launch(turns[0], inputs, beside)
    for before, turn in pairwise(turns):
        made = queries.launch(turn, inputs, beside)
        keys.launch(_key_turn(cut, before.table), parts)
        parts = made
    keys.launch(_key_turn(cut, turns[-1].table, [dtype for _, dtype in beside]), parts)
    return *queries.made, *keys.made


def _gradient_chains(op: Operator, cut: _Cut) -> tuple[_Chain, _Chain]:
    """Those of queries, and those of keys and values."""
    dtype = op.inputs[2].dtype
    read = "y", "y", "row", "q", "k", "v"
    kernel = _of(op.kernel, _gradients)
    return (
        _Chain(f"{op.name}.round", kernel, cut, read, ("q",), dtype),
        _Chain(f"{op.name}.sum", _sum, cut, ("k", "v"), ("gk", "gv"), dtype),
    )


def _gradient_turns(cut: _Cut, dtype: str) -> list[_Turn]:
    """Those of queries: of rounds with own keys, all but the first come last."""
    first, *others = cut.tables
    tables = [first, *others[cut.near - 1 :], *others[: cut.near - 1]]
    return [
        _Turn(
            table,
            5 * (cut.flops / cut.sizes[1]) * cut.share(table),
            last=[dtype] if table is tables[-1] else (),
            passes=(4, 5) if number % cut.near == 0 and table is not tables[-1] else (),
        )
        for number, table in enumerate(tables, cut.near)
    ]


def _key_turn(cut: _Cut, table: Table, last: Sequence[str] = ()) -> _Turn:
    """Of every block of keys, the block of queries that made a part of its gradients in a round."""
    readers = tuple(table.index(k) if k in table else NONE for k in range(len(table)))
    return _Turn(readers, cut.flops / cut.sizes[1], last)


def _brought(op: Operator, cut: _Cut, key: int) -> tuple[LogicalRegion, ...]:
    """Keys and values, inputs from `key` on, of the heads and blocks of queries that a device has.

    Where heads are split among devices that have parts of a block elsewhere, an all-to-all brings these once, before
    whole blocks go around. What others brought is dropped after the forward pass, and brought again.
    """
    terms = f"{cut.terms['gk']}, {cut.terms['gv']}"
    inputs = op.inputs[key : key + 2]
    return launch_all(
        f"{op.name}.keys",
        f"{terms} -> {terms}",
        inputs,
        kernel=_keep,
        sizes={cut.names[2]: cut.sizes[1]},
        flops=0,
        dtype=[r.dtype for r in inputs],
    )


# -- kernels -----------------------------------------------------------------------------------------------------------
#
# Arrays are what is read, what is under way, the same where it gets another place, and what else is made.


def _of(kernel: Kernel, rounds: Kernel) -> Kernel:
    """A kernel of rounds, whose pairs of blocks are done by `kernel`, on a GPU by its variant."""
    return replace(rounds.bind(of=kernel), work=kernel.work)


def _pairs(
    ctx: Context, query: int, blocks: Table, sizes: tuple[int, int]
) -> Iterator[tuple[slice, slice, Context | None]]:
    """Of every block of queries here: where it lies, where its keys do, and what `of` is told; None: it has no keys.

    `query` is the number of the queries among the arguments, keys and values are the next ones.
    """
    queries = ctx.rect(query)
    for block in range(queries.lo[1] // sizes[0], queries.hi[1] // sizes[0]):
        rows = _run(block, sizes[0])
        seen = _run(blocks[block], sizes[1])
        told = None if blocks[block] == NONE else _told(ctx, query, rows, seen)
        yield _behind(rows, queries.lo[1]), _behind(seen, ctx.rect(query + 1).lo[1]), told


def _run(block: int, size: int) -> slice:
    return slice(block * size, (block + 1) * size)


def _behind(points: slice, begin: int) -> slice:
    """Where they are in an array that begins there."""
    return slice(points.start - begin, points.stop - begin)


def _told(ctx: Context, query: int, rows: slice, seen: slice) -> Context:
    """What a kernel is told of these queries and keys."""
    lo = ctx.rect(query).lo[2]
    hi = ctx.rect(query).hi[2]
    by_query = Rect((0, rows.start, lo), (1, rows.stop, hi))
    by_key = Rect((0, seen.start, lo), (1, seen.stop, hi))
    return ctx.part([*[by_query] * (query + 1), by_key, by_key], {}, is_alike=False)


def _forward_by(
    of: Kernel,
    ctx: Context,
    q: Array,
    k: Array,
    v: Array,
    *kept: Array,
    blocks: Table,
    sizes: tuple[int, int],
    is_first: bool,
) -> None:
    """Add the results of pairs: each counts by its share of the sum of exponentials of both."""
    for rows, seen, told in _pairs(ctx, 0, blocks, sizes):
        y, total = kept[0][:, rows], kept[1][:, :, rows]
        made, sums = kept[-2][:, rows], kept[-1][:, :, rows]
        if told is None and len(kept) == 2:
            continue  # it stays
        if told is not None:
            part = told.scratch("part", y.shape, q.dtype)
            share = told.scratch("share", total.shape, total.dtype)
            of(told, q[:, rows], k[:, seen], v[:, seen], part, share)
            if is_first:
                ctx.xp.copyto(made, part)
                ctx.xp.copyto(sums, share)
                continue
            both = told.scratch("both", total.shape, total.dtype)
            change = told.scratch("change", y.shape, y.dtype)
            ctx.xp.logaddexp(total, share, out=both)
            ctx.xp.subtract(share, both, out=share)
            ctx.xp.exp(share, out=share)
            ctx.xp.copyto(change, part)
            ctx.xp.subtract(change, y, out=change)
            ctx.xp.multiply(change, share.swapaxes(1, 2)[..., None], out=change)
            ctx.xp.add(change, y, out=change)
            y, total = change, both
        ctx.xp.copyto(made, y, casting="same_kind")
        ctx.xp.copyto(sums, total)


def _gradients_by(
    of: Kernel,
    ctx: Context,
    *arrays: Array,
    blocks: Table,
    sizes: tuple[int, int],
    is_first: bool,
) -> None:
    """Add to the gradients of queries; those of keys and values are of this round, by the statistics of all."""
    inputs = arrays[:6]
    kept = arrays[6:-2]
    for rows, seen, told in _pairs(ctx, 3, blocks, sizes):
        first = rows.start // sizes[0] * sizes[1]
        gradients = [a[:, first : first + sizes[1]] for a in arrays[-2:]]
        total = kept[0][:, rows]
        made = kept[-1][:, rows]
        if told is None:
            for gradient in (*gradients, *([made] if is_first else ())):
                gradient.fill(0)
            if len(kept) > 1:
                ctx.xp.copyto(made, total, casting="same_kind")
            continue
        part = told.scratch("part", total.shape, inputs[3].dtype)
        change = told.scratch("change", total.shape, total.dtype)
        of(told, *_of_pair(rows, seen, *inputs), part, *gradients)
        ctx.xp.copyto(change, part)
        if not is_first:
            ctx.xp.add(change, total, out=change)
        ctx.xp.copyto(made, change, casting="same_kind")


def _of_pair(
    rows: slice,
    seen: slice,
    gy: Array,
    y: Array,
    statistics: Array,
    q: Array,
    k: Array,
    v: Array,
) -> tuple[Array, ...]:
    by_query = gy[:, rows], y[:, rows], statistics[:, :, rows], q[:, rows]
    return *by_query, k[:, seen], v[:, seen]


@Kernel
def _sum(
    ctx: Context, *arrays: Array, blocks: Table, sizes: tuple[int, int], is_first: bool
) -> None:
    """Add gradients of keys and values: to blocks of keys, what blocks of queries made of them in a round."""
    size = sizes[1]
    keys = ctx.rect(len(arrays) - 1)
    begin = ctx.rect(0).lo[1]
    for part, total, made in zip(arrays[:2], arrays[2:4], arrays[-2:], strict=True):
        for block in range(keys.lo[1] // size, keys.hi[1] // size):
            rows = _behind(_run(block, size), keys.lo[1])
            read = _behind(_run(blocks[block], size), begin)
            if blocks[block] == NONE:
                if is_first:
                    made[:, rows].fill(0)
                elif len(arrays) > 4:
                    ctx.xp.copyto(made[:, rows], total[:, rows])
            elif is_first:
                ctx.xp.copyto(made[:, rows], part[:, read])
            else:
                ctx.xp.add(total[:, rows], part[:, read], out=made[:, rows])


@partial(Kernel, takes_mixed=True)
def _keep(ctx: Context, k: Array, v: Array, kept_k: Array, kept_v: Array) -> None:
    ctx.xp.copyto(kept_k, k)
    ctx.xp.copyto(kept_v, v)


@partial(Kernel, takes_mixed=True)
def _forward_on_gpu(ctx: Context, *arrays: Array, of: Kernel, **options: Any) -> None:
    _forward_by(of.on_cuda, ctx, *arrays, **options)


@partial(Kernel, cuda=_forward_on_gpu)
def _forward(ctx: Context, *arrays: Array, of: Kernel, **options: Any) -> None:
    _forward_by(of, ctx, *arrays, **options)


@partial(Kernel, takes_mixed=True)
def _gradients_on_gpu(ctx: Context, *arrays: Array, of: Kernel, **options: Any) -> None:
    _gradients_by(of.on_cuda, ctx, *arrays, **options)


@partial(Kernel, cuda=_gradients_on_gpu)
def _gradients(ctx: Context, *arrays: Array, of: Kernel, **options: Any) -> None:
    _gradients_by(of, ctx, *arrays, **options)
