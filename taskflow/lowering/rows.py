"""The columns of rows: of the points of operators, and of what moves regions; and the order in which they are issued.

Rows come in the order in which they are found: all points, operator after operator, then all rows that move data,
region after region. `in_order` brings them into the issue order, which `IssueOrder` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from taskflow.core.columns import (
    Array,
    Selected,
    differences,
    each_once,
    joined,
    pointers,
    select,
    spread,
)
from taskflow.core.compiling import tiered
from taskflow.core.grouping import grouped, ranks, sort_each
from taskflow.lowering.fragments import Found
from taskflow.lowering.life import Lives
from taskflow.lowering.pointstore import PointStore
from taskflow.strategy.partition import OperatorPoints
from taskflow.tasks.task_graph import Kind, Privilege

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


@dataclass(frozen=True, eq=False)
class Shape:
    """What points have in common with those on other devices; boxes as in a task graph.

    Attributes:
        spans: see `OperatorPoints`.
        arg_box, arg_privilege: of all arguments of the first point, then of the second, ...
    """

    spans: Array
    arg_box: Array
    arg_privilege: Array

    def only(self, points: Array) -> Shape:
        """Of those points alone, in order; the spans stay."""
        args = len(self.arg_box) // max(len(self.spans), 1)
        kept = (args * points[:, None] + np.arange(args)).reshape(-1)
        return Shape(self.spans, self.arg_box[kept], self.arg_privilege[kept])


def shape_of(points: OperatorPoints, ndim: int, dtype: type[np.signedinteger[Any]]) -> Shape:
    """Boxes are padded to `ndim` dimensions."""
    args = range(len(points.operator.args))
    boxes = np.stack([padded(points.box(k), ndim, dtype) for k in args], axis=1)
    return Shape(points.spans, boxes.reshape(-1, 2, ndim), _privileges(points).reshape(-1))


def _privileges(points: OperatorPoints) -> Array:
    """(points, arguments); of parts as if each had an instance of its own, see `note_later_parts`."""
    op = points.operator
    inputs = [
        Privilege.READ_WRITE if k in op.writes else Privilege.READ for k in range(len(op.inputs))
    ]
    outputs = [
        Privilege.REDUCE if p else Privilege.WRITE for p in points.partial[: len(op.outputs)]
    ]
    privileges = np.tile(np.array([*inputs, *outputs], np.uint8), (len(points), 1))
    for k in op.adds:
        privileges[points.colours_of(k) > 0, k] = Privilege.REDUCE
    return privileges


def note_later_parts(points: dict[str, Any]) -> None:
    """Of the parts that share an instance, the first is written and the others are added to it."""
    instance = points["arg_instance"]
    privilege = points["arg_privilege"]
    parts = np.flatnonzero((privilege == Privilege.REDUCE) | (privilege == Privilege.READ_WRITE))
    parts = parts[instance[parts] >= 0]
    row = np.searchsorted(pointers(points["arg_count"]), parts, side="right") - 1
    box = points["arg_box"][parts]
    box = box.reshape(len(parts), 2 * box.shape[2])
    where = points["launch"][row], instance[parts], *box.T
    order = np.lexsort(where)
    is_first = np.zeros(len(parts), np.bool_)
    is_first[:1] = True
    for column in where:
        is_first[1:] |= np.diff(column[order]) != 0
    first = order[is_first]
    privilege[np.delete(parts, first)] = Privilege.READ_WRITE


def padded(boxes: Array, ndim: int, dtype: type[np.signedinteger[Any]] = np.int64) -> Array:
    """Boxes (n, dimensions, 2) as (n, 2, ndim); dimensions that a box lacks are (0, 0)."""
    filled = np.zeros((len(boxes), 2, ndim), dtype)
    filled[:, :, : boxes.shape[1]] = boxes.transpose(0, 2, 1)
    return filled


class DistinctPoints(NamedTuple):
    """Points of operators: those of every number once.

    Attributes:
        which: per operator, the points that it has.
        points, shapes: of these, how many there are, and what they look like.
        device, bytes, flops, point, ordinal: of all these points in turn; `point` is the number in its operator.
    """

    which: Array
    points: Array
    shapes: Sequence[Shape]
    device: Array
    bytes: Array
    flops: Array
    point: Array
    ordinal: Array

    def only(self, kept: Array) -> DistinctPoints:
        """Those points alone that are marked."""
        ends = pairwise(pointers(self.points).tolist())
        marked = (np.flatnonzero(kept[a:b]) for a, b in ends)
        shapes = [s.only(points) for s, points in zip(self.shapes, marked, strict=True)]
        return self.without_shapes(kept)._replace(shapes=shapes)

    def without_shapes(self, kept: Array) -> DistinctPoints:
        """The same, which do not know what they look like."""
        of = np.repeat(np.arange(len(self.points)), self.points)
        count = np.bincount(of[kept], minlength=len(self.points))
        return DistinctPoints(self.which, count, (), *(column[kept] for column in self[3:]))


class ChosenPoints:
    """Points of operators: those of every number once, of which nothing is copied before it is asked for.

    Args:
        numbers: of the points of every operator, in the store.
        store: has them.
        shape_of: what those of a model look like.

    Attributes:
        which: per operator, the points that it has.
    """

    def __init__(self, numbers: Array, store: PointStore, shape_of: Callable[[int], Shape]) -> None:
        self._numbers, self.which = np.unique(numbers, return_inverse=True)
        self._store = store
        self._table = store.table
        self._shape_of = shape_of
        self._records = store.table.record[self._numbers]

    def devices(self, k: int) -> Array:
        """Of the points that operators have whose `which` is k."""
        first, points = (int(self._records[name][k]) for name in ("first_device", "points"))
        devices: Array = self._table.device[first : first + points]
        return devices

    def used(self, ops: Array) -> Array:
        """The devices that some operators use, in the order in which they name them."""
        which = self.which[ops]
        first = np.sort(np.unique(which, return_index=True)[1])
        spans = self._records[["first_device", "points"]][which[first]].tolist()
        columns = [self._table.device[a : a + n] for a, n in dict.fromkeys(spans)]
        is_new = np.ones(1 + max(int(devices.max()) for devices in columns), np.bool_)
        used = dict[int, None]()
        for devices in columns:
            used.update(dict.fromkeys(devices[is_new[devices]].tolist()))
            is_new[devices] = False
        return np.array([*used], np.int64)

    def all(self) -> DistinctPoints:
        """All of them."""
        every = np.arange(len(self._numbers))
        return self._made(every, self._records["points"], None, has_shapes=True)

    def some(self, is_chosen: Array) -> DistinctPoints:
        """Those of the operators whose `which` is marked, which do not know what they look like."""
        count = np.where(is_chosen, self._records["points"], 0)
        return self._made(np.flatnonzero(is_chosen), count, None, has_shapes=False)

    def on(self, is_there: Array) -> DistinctPoints:
        """Those on the devices that are marked."""
        every = range(len(self._numbers))
        points = [np.flatnonzero(is_there[self.devices(k)]) for k in every]
        count = np.array([len(of) for of in points], np.int64)
        return self._made(np.array(every), count, np.concatenate(points), has_shapes=True)

    def _made(
        self, some: Array, count: Array, point: Array | None, has_shapes: bool
    ) -> DistinctPoints:
        """Points of some numbers; `count`: of every number, how many of them, `point`: which; None: all."""
        many = count[some]
        table = self._table
        ends = pointers(count).tolist()
        whole = point is None
        point = spread(np.zeros_like(many), many) if point is None else point
        first = np.repeat(self._records[["first_device", "first_model"]][some], many)
        device = table.device[first["first_device"] + point]
        at = first["first_model"] + point
        shapes = [
            self._shape_of(self._store.model(n)) for n in self._numbers.tolist() if has_shapes
        ]
        if not whole:
            only = dict[tuple[int, bytes], Shape]()  # equal parts of a shape are one
            for k, (shape, (a, b)) in enumerate(zip(shapes, pairwise(ends), strict=True)):
                key = id(shape), point[a:b].tobytes()
                shapes[k] = only.get(key) or only.setdefault(key, shape.only(point[a:b]))
        columns = device, table.bytes[at], table.flops[at], point, ordinals(device, many)
        return DistinctPoints(self.which, count, shapes, *columns)


def point_columns(
    args: Array, chosen: DistinctPoints, instances: Array | None = None
) -> dict[str, Any]:
    """The rows of operators with so many arguments and these points; without `instances` they are left open."""
    count = chosen.points[chosen.which]
    which = chosen.which
    at = spread(pointers(chosen.points)[:-1][which], count)
    device = chosen.device[at]
    shapes, of = each_once(chosen.shapes)
    boxes = select([shape.arg_box for shape in shapes], of[which])[0]
    boxes.at = boxes.at.astype(np.int32)
    privileges = joined([shape.arg_privilege for shape in shapes] or [np.zeros(0, np.uint8)])
    return {
        "kind": np.full(len(at), int(Kind.POINT), np.uint8),
        "launch": np.repeat(np.arange(len(args)), count),
        "point": chosen.point[at],
        "region": np.full(len(at), -1, np.int64),
        "device": device,
        "source": device,
        "ordinal": chosen.ordinal[at],
        "collective": np.zeros(len(at), np.uint8),
        "bytes": chosen.bytes[at],
        "flops": chosen.flops[at],
        "arg_count": np.repeat(args, count),
        "arg_instance": np.full(len(boxes), -1) if instances is None else instances,
        "arg_box": boxes,
        "arg_privilege": privileges[boxes.at],
    }


def ordinals(device: Array, count: Array) -> Array:
    """The number of every point among those of its operator on its device; `count`: points of every operator."""
    devices = int(device.max(initial=-1)) + 1
    op = np.repeat(np.arange(len(count)), count)
    return ranks(op * devices + device, len(count) * devices)


def move_columns(
    by_region: Found, regions: Array, itemsize: Array, first_instance: Array, ndim: int
) -> dict[str, Any]:
    """The rows of the fragments of some regions, of which these are the first instances."""
    row, rows = by_region.gather(lambda f: f.row)
    arg, args = by_region.gather(lambda f: f.arg)
    version_rows, _ = by_region.version_rows()
    shift = np.repeat(by_region.shift, rows)
    return {
        "kind": row["kind"].astype(np.uint8),
        "launch": np.full(len(row), -1, np.int64),
        "point": spread(np.zeros_like(version_rows), version_rows),
        "region": np.repeat(regions, rows),
        "device": row["device"] + shift,
        "source": row["source"] + shift,
        "ordinal": row["ordinal"],
        "collective": row["collective"].astype(np.uint8),
        "bytes": row["points"] * np.repeat(itemsize[regions], rows),
        "flops": np.zeros(len(row)),
        "arg_count": differences(row["arg_end"], rows),
        "arg_instance": arg["instance"] + np.repeat(first_instance, args),
        "arg_box": by_region.select(lambda f: padded(f.arg_box, ndim)),
        "arg_privilege": arg["privilege"].astype(np.uint8),
    }


def in_order(
    parts: Sequence[dict[str, Any]], row: Array, narrow: Collection[str] = ()
) -> dict[str, Any]:
    """The columns of a task graph, where number k of the parts becomes row `row[k]`; boxes are `Selected`.

    The parts lose their columns one by one, so that few are there twice; those that are `narrow` take half the memory.
    """
    count = np.concatenate([part.pop("arg_count") for part in parts])
    arg_ptr = pointers(placed([count], row))
    arg = spread(arg_ptr[row], count)
    boxes = [part.pop("arg_box") for part in parts]
    values = np.concatenate([of.values for of in boxes])
    begin = pointers([len(of.values) for of in boxes])
    places = [of.at.astype(np.int32) + np.int32(b) for of, b in zip(boxes, begin, strict=False)]
    del boxes
    at = placed(places, arg)
    del places
    columns = {
        name: placed(
            [part.pop(name) for part in parts],
            arg if name.startswith("arg_") else row,
            np.int32 if name in narrow else None,
        )
        for name in [*parts[0]]
    }
    return columns | {"arg_ptr": arg_ptr, "arg_box": Selected(values, at)}


def placed(parts: Sequence[Array], row: Array, dtype: DTypeLike | None = None) -> Array:
    """A column in which value k of the parts, one after the other, is that of `row[k]`; default: of their dtype."""
    column = np.empty(len(row), parts[0].dtype if dtype is None else dtype)
    begin = 0
    for values in parts:
        column[row[begin : begin + len(values)]] = values
        begin += len(values)
    return column


class IssueOrder:
    """Which row everything becomes, and what every row waits for. Version v of all regions in turn is number `ops + v`.

    Operators stand in program order, the movement of each version of a region right behind the operator that makes it.
    Feeds, and what is kept from the step before, stand right before the first operator that reads them. That is a
    `group`: what a configuration changes is how many rows there are of each, and their order within a group, which is
    that of their ordinals (see `ordinals`).

    Args:
        lives: of all regions.
        args: per operator, the number of its arguments.
    """

    def __init__(self, lives: Lives, args: Array) -> None:
        self.lives = lives
        self._args = args
        self._ops = len(args)
        regions = np.arange(len(lives.region))
        self._region_of_op, self._region_of_version, self._region_of_event = (
            np.repeat(regions, np.diff(ptr))
            for ptr in (lives.op_ptr, lives.producer_ptr, lives.event_ptr)
        )

    @cached_property
    def numbers(self) -> Array:
        """Operators and versions, by number, in row order."""
        is_given = self.lives.producer < 0
        at = self.group
        place = 3 * at + np.concatenate([np.full(self._ops, 1), np.where(is_given, 0, 2)])
        numbers: Array = np.argsort(place, kind="stable")
        return numbers

    @cached_property
    def group(self) -> Array:
        """By number, the operator with which it stands; -1: with none."""
        lives = self.lives
        region = self._region_of_version
        event = np.maximum(lives.event_ptr[region] + lives.producer, 0)
        first = np.full(len(lives.region), self._ops)
        reads = lives.event["version"] == 0
        reader = self._op_of(self._region_of_event, lives.event["issuer"])[reads]
        np.minimum.at(first, self._region_of_event[reads], reader)
        reader = np.where(first < self._ops, first, -1)[region]
        maker = self._op_of(region, lives.event["issuer"][event]) if len(lives.event) else reader
        return np.concatenate([np.arange(self._ops), np.where(lives.producer < 0, reader, maker)])

    @cached_property
    def sequence(self) -> list[tuple[int, int, int]]:
        """(operator, -1, -1) and (-1, region, version) in row order."""
        version = np.maximum(self.numbers - self._ops, 0)
        region = self._region_of_version[version]
        columns = (
            a.tolist() for a in (self.numbers, region, version - self.lives.producer_ptr[region])
        )
        return [
            (k, -1, -1) if k < self._ops else (-1, r, v) for k, r, v in zip(*columns, strict=True)
        ]

    def rows(self, count: Array, ordinal: Array) -> Array:
        """Which row everything becomes, as it is found.

        Args:
            count: rows of every operator and version.
            ordinal: of every row.
        """
        start = np.empty_like(count)
        in_order = count[self.numbers]
        start[self.numbers] = np.cumsum(in_order) - in_order
        row = spread(start, count)
        if ordinal.any():
            order = np.empty_like(row)
            order[row] = np.arange(len(row))
            group = np.repeat(self.group + 1, count)
            for key in (ordinal, group):
                order = order[grouped(key[order], int(key.max()) + 1)[1]]
            row[order] = np.arange(len(row))
        return row

    def dependences(self, by_region: Found, count: Array, row: Array) -> tuple[Array, Array]:
        """All edges of all fragments as CSR, each once, sorted; `count`, `row`: of and from `rows`."""
        first = (np.cumsum(count) - count)[self.issuers]
        begin, count = _spans_of([f.edges for f in by_region.fragments], by_region.which)
        edges = joined([f.edges for f in by_region.fragments])
        base = (self.lives.op_ptr + self.lives.producer_ptr)[:-1]
        ptr, awaited = _awaited(edges, begin, count, base, first, row)
        ends, rows = sort_each(ptr, awaited)
        return ends, rows

    def instances(self, by_region: Found, count: Array, first_instance: Array) -> Array:
        """The instances of the arguments of all points, operator after operator; -1: an empty box.

        Args:
            count: see `rows`.
            first_instance: of every region.
        """
        begin, locals_ = _spans_of([f.event_instance for f in by_region.fragments], by_region.which)
        local = joined([f.event_instance for f in by_region.fragments])
        op = self._op_of(self._region_of_event, self.lives.event["issuer"])
        total = self._args * count[: self._ops]
        count = count[op]
        before = np.cumsum(count) - count - (np.cumsum(locals_) - locals_)[self._region_of_event]
        at = (np.cumsum(total) - total)[op] + self.lives.event["argument"]
        first = np.stack([begin, first_instance])[:, self._region_of_event]
        instance = np.full(total.sum(), -1)
        _put_instances(local, first[0] + before, count, first[1], at, self._args[op], instance)
        return instance

    def _op_of(self, region: Array, issuer: Array) -> Array:
        """The operators that are these issuers of these regions."""
        op: Array = self.lives.op[
            np.minimum(self.lives.op_ptr[region] + issuer, len(self.lives.op) - 1)
        ]
        return op

    @cached_property
    def issuers(self) -> Array:
        """The issuers of every region in turn (see `Fragment`), as numbers of operators and versions."""
        numbers = np.concatenate(
            [self.lives.op, self._ops + np.arange(len(self._region_of_version))]
        )
        region = np.concatenate([self._region_of_op, self._region_of_version])
        issuers: Array = numbers[np.argsort(region, kind="stable")]
        return issuers


def _spans_of(parts: Sequence[Array], which: Array) -> tuple[Array, Array]:
    """Where part `which[k]` begins among all parts, one after the other, and its length."""
    length = np.array([len(part) for part in parts], np.int64)
    return (np.cumsum(length) - length)[which], length[which]


@tiered
def _put_instances(
    local: Array,
    begin: Array,
    count: Array,
    first: Array,
    at: Array,
    step: Array,
    instance: Array,
) -> None:
    """See `IssueOrder.instances`: of every event, its instances begin at `begin` in `local`, those of the region at
    `first`; they are put down from `at` on.
    """
    for e in range(len(begin)):
        for k in range(count[e]):
            number = local[begin[e] + k]
            if number >= 0:
                instance[at[e] + k * step[e]] = first[e] + number


@tiered
def _awaited(
    edge: Array, begin: Array, count: Array, base: Array, first: Array, row: Array
) -> tuple[Array, Array]:
    """See `IssueOrder.dependences`: edges of all regions as CSR, by the rows that wait.

    Args:
        edge: records of all fragments.
        begin, count: of every region, its edges among these.
        base: of every region, its first issuer.
        first: of every issuer, its first row as it is found; `row`: which row that becomes.
    """
    ends = np.zeros(len(row) + 2, np.int64)
    for r in range(len(begin)):
        for e in range(begin[r], begin[r] + count[r]):
            ends[row[first[base[r] + edge[e].issuer] + edge[e].index] + 2] += 1
    ends = np.cumsum(ends)
    awaited = np.empty(ends[-1], np.int64)
    for r in range(len(begin)):
        for e in range(begin[r], begin[r] + count[r]):
            waiting = row[first[base[r] + edge[e].issuer] + edge[e].index]
            awaited[ends[waiting + 1]] = row[
                first[base[r] + edge[e].awaited_issuer] + edge[e].awaited_index
            ]
            ends[waiting + 1] += 1
    return ends[:-1], awaited
