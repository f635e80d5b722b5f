"""The tables of the bounds of an exhaustive search, as columns that compiled code reads (`boundpass`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.searching.arrivals import Movement, movements
from taskflow.searching.bound import Splits, least_seconds, whole_seconds
from taskflow.searching.tables import SpaceTables
from taskflow.tasks.streams import StreamTable


class OperatorTable(NamedTuple):
    """The operators of a graph, and their points under every configuration.

    Attributes:
        family: per operator the number of its leader.
        first_config: per operator, its first row in the next two.
        seconds, device: (configurations of all operators, points); no device: -1.
        least, whole: per operator the least seconds of a point, and of all of it on one device.
        most: per operator, how many points run side by side at most.
        floor: (operators, devices) the least seconds that it occupies a device, whatever its configuration.
    """

    family: Array
    first_config: Array
    seconds: Array
    device: Array
    least: Array
    whole: Array
    most: Array
    floor: Array


class EdgeTable(NamedTuple):
    """Who reads what whom has made; the edges of a reader stand one after the other.

    Attributes:
        ptr: per reader its first edge.
        writer: the operator that makes it.
        is_sure: whether every point reads something of it.
        reader_configs: number of the reader's configurations.
        first_delay, delays: per edge (configurations of the writer, of the reader, points of the writer, of the
            reader); see `SpaceTables.delays`.
        movement: the movement between them, or -1.
        first_wait, waits: per edge (configurations of the writer, of the other family, points); see `Movement.waits`.
    """

    ptr: Array
    writer: Array
    is_sure: Array
    reader_configs: Array
    first_delay: Array
    delays: Array
    movement: Array
    first_wait: Array
    waits: Array


class MovementTable(NamedTuple):
    """The movements that one or two families determine; those behind one operator stand one after the other.

    Attributes:
        ptr: per writer its first movement.
        other: the family, besides the writer's, that it depends on.
        other_configs: number of that family's configurations.
        first_seconds, seconds: per movement (configurations of the writer, of the other, devices).
        receiving: the stream in which each device receives; that of its computing where one thread does both.
    """

    ptr: Array
    other: Array
    other_configs: Array
    first_seconds: Array
    seconds: Array
    receiving: Array


def bound_tables(tables: SpaceTables) -> tuple[OperatorTable, EdgeTable, MovementTable]:
    """What `boundpass.bound_children` reads."""
    splits, found = [Splits(op, tables.space) for op in tables.operators], movements(tables)
    return _operators(tables, splits), _edges(tables, splits, found), _movements(tables, found)


def _operators(tables: SpaceTables, splits: Sequence[Splits]) -> OperatorTable:
    machine, costs = tables.machine, tables.costs
    whole = whole_seconds(tables.space.graph, machine, costs)
    whole *= np.array([split.work for split in splits])[:, None]
    return OperatorTable(
        np.array(tables.family, np.int64),
        pointers([len(each) for each in tables.points])[:-1],
        np.concatenate(tables.seconds),
        np.concatenate(tables.device),
        least_seconds(splits, whole, machine, costs),
        whole.min(axis=1),
        np.array([float(split.most) for split in splits]),
        _floor(tables),
    )


def _floor(tables: SpaceTables) -> Array:
    count = len(tables.machine.devices)
    rows = zip(tables.device, tables.seconds, strict=True)
    busy = [[np.bincount(d + 1, s, count + 1)[1:] for d, s in zip(*each, strict=True)] for each in rows]
    return np.array([np.min(each, axis=0) for each in busy])


def _edges(tables: SpaceTables, splits: Sequence[Splits], found: Sequence[Movement]) -> EdgeTable:
    edges = tables.edges
    delays = [tables.delays(edge) for edge in edges]
    movement_of = {edge: k for k, movement in enumerate(found) for edge in movement.waits}
    return EdgeTable(
        np.searchsorted([e.reader for e in edges], np.arange(len(tables.operators) + 1)),
        np.array([e.writer for e in edges], np.int64),
        np.array([splits[e.reader].reads[e.argument] > 0 for e in edges], np.bool_),
        np.array([d.shape[1] for d in delays], np.int64),
        *_flat(delays),
        np.array([movement_of.get(e, -1) for e in edges], np.int64),
        *_flat([found[movement_of[e]].waits[e] if e in movement_of else np.zeros(0) for e in edges]),
    )


def _movements(tables: SpaceTables, found: Sequence[Movement]) -> MovementTable:
    devices = np.arange(len(tables.machine.devices))
    return MovementTable(
        np.searchsorted([m.writer for m in found], np.arange(len(tables.operators) + 1)),
        np.array([m.other for m in found], np.int64),
        np.array([m.seconds.shape[1] for m in found], np.int64),
        *_flat([m.seconds for m in found]),
        np.where(StreamTable(tables.machine).one_thread, devices, len(devices) + devices),
    )


def _flat(parts: Iterable[Array]) -> tuple[Array, Array]:
    """Where each part begins in all of them, and all of them."""
    flat = [part.reshape(-1) for part in parts]
    return pointers([len(part) for part in flat])[:-1], np.concatenate([np.zeros(0), *flat])
