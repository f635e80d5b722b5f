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
from dataclasses import replace
from functools import partial
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
    own = [*range(2 * count)], [NONE] * count + [last - b for b in range(count, 2 * count)]
    tables = [tuple(table) for table in own]
    for j in range(1, count):
        rounds = [NONE] * 2 * count, [NONE] * 2 * count
        for d in range(count):
            other = (d - j) % count
            is_earlier = other < d
            rounds[0][d if is_earlier else last - d] = other
            rounds[1][last - d] = other if is_earlier else last - other
        tables += map(tuple, rounds)
    return tables


class _Cut(NamedTuple):
    """How attention is cut: tables of its rounds, terms with blocks for points, extents, flops of one of its points."""

    tables: list[Table]
    own: int  # rounds with own keys
    terms: dict[str, str]
    names: tuple[str, ...]  # of axes: blocks, positions in one of queries, in one of keys, keys
    sizes: tuple[int, int]  # positions of a block of queries, and of one of keys
    flops: float

    @staticmethod
    def of(op: Operator, count: int, query: int) -> _Cut | None:
        """Of an operator whose inputs from `query` on are q, k and v; None: there are no such blocks."""
        is_causal = bool(op.kernel.options["is_causal"])
        tables = tables_of(count, is_causal)
        q, k, v = op.inputs[query : query + 3]
        sizes = q.shape[1] // len(tables[0]), k.shape[1] // len(tables[0])
        are_even = all(n * len(tables[0]) == r.shape[1] for n, r in zip(sizes, (q, k), strict=True))
        if not are_even or (is_causal and q.shape[1] != k.shape[1]):
            return None
        b, s, h, d = (dim[0] for dim in op.bound.terms[query].dims)
        e = op.bound.terms[query + 2].dims[3][0]
        inside, key, read = distinct(("inside", "key", "read"), (b, s, h, d, e))
        queries, keys = f"({s} ^{inside})", f"({s} ^{key})"
        terms = {"q": f"{b} {queries} {h} ^{d}", "y": f"{b} {queries} {h} ^{e}"}
        terms |= {"k": f"{b} {read} {h} ^{d}", "v": f"{b} {read} {h} ^{e}"}
        terms |= {"gk": f"{b} {keys} {h} ^{d}", "gv": f"{b} {keys} {h} ^{e}"}
        terms["row"] = f"{b} {h} {queries}"
        features = 1 / q.shape[3] + 1 / v.shape[3]  # a point of the iteration space is of both
        names = s, inside, key, read
        return _Cut(tables, 1 + is_causal, terms, names, sizes, features)

    def share(self, table: Table) -> float:
        """Of the pairs of a query and a key in its blocks, those in which the query sees the key."""
        is_diagonal = self.own > 1 and table == self.tables[0]
        return (self.sizes[0] + 1) / (2 * self.sizes[0]) if is_diagonal else 1.0

    def image(self, table: Table) -> Image:
        """The keys of the blocks that a table names."""
        size = self.sizes[1]
        low = [max(block, 0) * size for block in table]
        high = [at + size * (block != NONE) for at, block in zip(low, table, strict=True)]
        return Image(self.names[0], low, high)


class _Chain:
    """Operators in turn that make something of all rounds: the first makes it, others change it in place.

    The last one makes the results; what is under way is of the dtype of the statistics, so half precision rounds once.
    """

    def __init__(self, cut: _Cut, read: Sequence[str], kept: Sequence[str], dtype: str) -> None:
        self.cut = cut
        self.read = read
        self.kept = kept
        self.dtype = dtype
        self.made: tuple[LogicalRegion, ...] = ()

    def launch(
        self,
        name: str,
        kernel: Kernel,
        table: Table,
        flops: float,
        inputs: Sequence[LogicalRegion],
        last: Sequence[str],
        beside: Sequence[tuple[str, str]] = (),
        passes: Sequence[int] = (),
    ) -> tuple[LogicalRegion, ...]:
        """Append one. `last`: dtypes of the results, of the last one; `beside`: terms and dtypes of what else it makes.

        `flops` are those of a point of all axes, and of a key.
        """
        terms = self.cut.terms
        is_first = not self.made
        made = self.kept if is_first or last else ()
        read = [terms[term] for term in (*self.read, *self.kept[: len(self.made)])]
        outputs = [terms[term] for term in (*made, *(term for term, _ in beside))]
        _, *positions, dim = self.cut.names
        regions = launch_all(
            name,
            f"{', '.join(read)} -> {', '.join(outputs)}",
            [*inputs, *self.made],
            kernel=kernel.bind(blocks=table, sizes=self.cut.sizes, is_first=is_first),
            sizes=dict(zip(positions, self.cut.sizes, strict=True)),
            windows={dim: self.cut.image(table)},
            writes=() if made else range(len(inputs), len(inputs) + len(self.made)),
            flops={dim: flops},
            dtype=[*(last or [self.dtype] * len(made)), *(dtype for _, dtype in beside)] or None,
        )
        operators = inputs[0].graph.operators
        operators[-1] = replace(operators[-1], passes=tuple(passes))
        if made:
            self.made = regions[: len(made)]
        return regions[len(made) :]


def forward_rounds(op: Operator, count: int) -> tuple[LogicalRegion, ...] | None:
    """Result and statistics in rounds; see `Kernel.ring`."""
    if (cut := _Cut.of(op, count, 0)) is None:
        return None
    dtypes = [r.dtype for r in op.outputs]
    chain = _Chain(cut, "qkv", ("y", "row"), dtypes[1])
    kernel = _of(op.kernel, _forward)
    inputs = [op.inputs[0], *_brought(op, cut, 1)]
    for number, table in enumerate(cut.tables, 1):
        last = dtypes if number == len(cut.tables) else ()
        passes = (1, 2) if number % cut.own == 0 else ()
        flops = 2 * cut.flops * cut.share(table)
        chain.launch(f"{op.name}.round", kernel, table, flops, inputs, last, passes=passes)
    return chain.made


def gradient_rounds(op: Operator, count: int) -> tuple[LogicalRegion, ...] | None:
    """The gradients of queries, keys and values in rounds; see `Kernel.ring`.

    What a round made of keys is added up behind the next one, in which it is on its way.
    """
    if (cut := _Cut.of(op, count, 3)) is None:
        return None
    gq, *beside = zip(("q", "gk", "gv"), (r.dtype for r in op.outputs), strict=True)
    dtype = op.inputs[2].dtype
    queries = _Chain(cut, ("y", "y", "row", "q", "k", "v"), ("q",), dtype)
    keys = _Chain(cut, ("k", "v"), ("gk", "gv"), dtype)
    kernel = _of(op.kernel, _gradients)
    inputs = [*op.inputs[:4], *_brought(op, cut, 4)]
    first, *others = cut.tables
    tables = [first, *others[cut.own - 1 :], *others[: cut.own - 1]]
    under_way: list[tuple[Table, tuple[LogicalRegion, ...]]] = []
    flops = cut.flops / cut.sizes[1]
    for number, table in enumerate(tables, cut.own):
        is_last = table is tables[-1]
        passes = (4, 5) if number % cut.own == 0 and not is_last else ()
        last = [gq[1]] if is_last else ()
        work = 5 * flops * cut.share(table)
        made = queries.launch(f"{op.name}.round", kernel, table, work, inputs, last, beside, passes)
        for readers, parts in under_way:
            keys.launch(f"{op.name}.sum", _sum, readers, flops, parts, ())
        readers = tuple(table.index(k) if k in table else NONE for k in range(len(table)))
        under_way = [(readers, made)]
    last = [dtype for _, dtype in beside]
    keys.launch(f"{op.name}.sum", _sum, readers, flops, made, last)
    return *queries.made, *keys.made


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
    begin = ctx.rect(query + 1).lo[1]
    for block in range(queries.lo[1] // sizes[0], queries.hi[1] // sizes[0]):
        at = block * sizes[0]
        rows = slice(at - queries.lo[1], at - queries.lo[1] + sizes[0])
        read = blocks[block] * sizes[1]
        seen = slice(read - begin, read - begin + sizes[1])
        rect = Rect((0, at, queries.lo[2]), (1, at + sizes[0], queries.hi[2]))
        key = Rect((0, read, queries.lo[2]), (1, read + sizes[1], queries.hi[2]))
        told = ctx.part([*[rect] * (query + 1), key, key], {}, is_alike=False)
        yield rows, seen, told if blocks[block] != NONE else None


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
    gy, y, statistics, q, k, v, *kept, gk, gv = arrays
    for rows, seen, told in _pairs(ctx, 3, blocks, sizes):
        first = rows.start // sizes[0] * sizes[1]
        gradients = [a[:, first : first + sizes[1]] for a in (gk, gv)]
        total, made = kept[0][:, rows], kept[-1][:, rows]
        if told is None:
            for gradient in (*gradients, *([made] if is_first else ())):
                gradient.fill(0)
            if len(kept) > 1:
                ctx.xp.copyto(made, total, casting="same_kind")
            continue
        part = told.scratch("part", total.shape, q.dtype)
        change = told.scratch("change", total.shape, total.dtype)
        read = gy[:, rows], y[:, rows], statistics[:, :, rows], q[:, rows], k[:, seen], v[:, seen]
        of(told, *read, part, *gradients)
        ctx.xp.copyto(change, part)
        if not is_first:
            ctx.xp.add(change, total, out=change)
        ctx.xp.copyto(made, change, casting="same_kind")


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
            rows = slice(block * size - keys.lo[1], (block + 1) * size - keys.lo[1])
            read = slice(blocks[block] * size - begin, (blocks[block] + 1) * size - begin)
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
