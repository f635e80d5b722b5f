"""The tables of the bounds of an exhaustive search, as columns that compiled code reads (`boundpass`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from taskflow.core.columns import Array
from taskflow.searching.arrivals import movements
from taskflow.searching.bound import Splits, least_seconds, whole_seconds
from taskflow.searching.tables import SpaceTables
from taskflow.tasks.streams import StreamTable


class BoundTables(NamedTuple):
    """Operators, the edges between them, and the movements that one or two families determine.

    The edges of a reader, and the movements behind a writer, stand one after the other. Where one has fewer
    configurations than another the rest is padding, which nobody looks at.

    Attributes:
        family: per operator the number of its leader.
        seconds, device: (operators, configurations, points); no device: -1.
        least, whole: per operator the least seconds of a point, and of all of it on one device.
        most: per operator, how many points run side by side at most.
        floor: (operators, devices) the least seconds that it occupies a device, whatever its configuration.
        edge_ptr: per reader its first edge.
        writer: per edge the operator that makes what is read.
        is_sure: per edge, whether every point reads something of it.
        delays: (edges, configurations of the writer, of the reader, points of the writer, of the reader); see
            `SpaceTables.delays`.
        movement: per edge the movement between both, or -1.
        waits: (edges, configurations of the writer, of the other family, points); see `Movement.waits`.
        move_ptr: per writer its first movement.
        other: per movement the family, besides the writer's, that it depends on.
        moving: (movements, configurations of the writer, of the other, devices) seconds.
        receiving: the stream in which each device receives; that of its computing where one thread does both.
    """

    family: Array
    seconds: Array
    device: Array
    least: Array
    whole: Array
    most: Array
    floor: Array
    edge_ptr: Array
    writer: Array
    is_sure: Array
    delays: Array
    movement: Array
    waits: Array
    move_ptr: Array
    other: Array
    moving: Array
    receiving: Array


def bound_tables(tables: SpaceTables) -> BoundTables:
    """What `boundpass.bound_children` reads."""
    machine, costs, edges, found = tables.machine, tables.costs, tables.edges, movements(tables)
    splits = [Splits(op, tables.space) for op in tables.operators]
    whole = whole_seconds(tables.space.graph, machine, costs)
    whole *= np.array([split.work for split in splits])[:, None]
    operators, devices = np.arange(len(splits) + 1), np.arange(len(machine.devices))
    movement_of = {edge: k for k, movement in enumerate(found) for edge in movement.waits}
    none = np.zeros((0, 0, 0))
    return BoundTables(
        family=np.array(tables.family, np.int64),
        seconds=_padded(tables.seconds, 2),
        device=_padded(tables.device, 2, np.int64),
        least=least_seconds(splits, whole, machine, costs),
        whole=whole.min(axis=1),
        most=np.array([float(split.most) for split in splits]),
        floor=_floor(tables),
        edge_ptr=np.searchsorted([e.reader for e in edges], operators),
        writer=np.array([e.writer for e in edges], np.int64),
        is_sure=np.array([splits[e.reader].reads[e.argument] > 0 for e in edges], np.bool_),
        delays=_padded([tables.delays(edge) for edge in edges], 4),
        movement=np.array([movement_of.get(e, -1) for e in edges], np.int64),
        waits=_padded([found[movement_of[e]].waits[e] if e in movement_of else none for e in edges], 3),
        move_ptr=np.searchsorted([m.writer for m in found], operators),
        other=np.array([m.other for m in found], np.int64),
        moving=_padded([m.seconds for m in found], 3),
        receiving=np.where(StreamTable(machine).one_thread, devices, len(devices) + devices),
    )


def _floor(tables: SpaceTables) -> Array:
    count = len(tables.machine.devices)
    rows = zip(tables.device, tables.seconds, strict=True)
    busy = [[np.bincount(d + 1, s, count + 1)[1:] for d, s in zip(*each, strict=True)] for each in rows]
    return np.array([np.min(each, axis=0) for each in busy])


def _padded(parts: Sequence[Array], axes: int, dtype: DTypeLike = np.float64) -> Array:
    """One array of all parts, each of so many axes."""
    shapes = np.array([part.shape for part in parts], np.int64).reshape(-1, axes)
    found = np.zeros((len(parts), *shapes.max(axis=0, initial=0).tolist()), dtype)
    for whole, part in zip(found, parts, strict=True):
        whole[tuple(map(slice, part.shape))] = part
    return found
