"""The arrays of all arguments of this rank's rows, from one pass over their columns.

Where an argument lies, its shape and its strides are computed for all rows at once. An array is made when it is asked
for, and equal arguments share one: a step of thousands of small rows waits for its own objects to come from memory more
than it computes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from taskflow.core.columns import pointers
from taskflow.tasks.memory import MemoryPlan
from taskflow.tasks.task_graph import Array, Kind, Privilege, TaskGraph


class ArgumentViews:
    """`of(row)` gives the arrays of a row, in the regions' own order of dimensions.

    Args:
        task_graph: its rows.
        plan: where instances begin in the arenas.
        arenas: device -> the bytes of its arena, in the memory of this host.
        elsewhere: instances whose memory is not in an arena.
    """

    def __init__(
        self,
        task_graph: TaskGraph,
        plan: MemoryPlan,
        arenas: Mapping[int, Array],
        elsewhere: Collection[int],
    ) -> None:
        self._arenas = arenas
        self._dtypes = [*map(np.dtype, _dtypes(task_graph))]
        is_near = np.zeros(len(task_graph.machine.devices), np.bool_)
        instance = task_graph.arg_instance
        is_near[list(arenas)] = True
        is_here = instance < 0  # no memory is read or written
        is_here[~is_here] = is_near[task_graph.instance_device[instance[~is_here]]]
        is_here &= ~np.isin(instance, list(elsewhere))
        arguments = np.flatnonzero(is_here)
        columns = _columns(task_graph, plan, arguments)
        self._dims = (columns.shape[1] - _FACTS) // 2
        self._keys: list[bytes] = (
            columns.view(f"V{columns.itemsize * columns.shape[1]}").reshape(-1).tolist()
        )
        self._first: list[int] = task_graph.arg_ptr.tolist()
        self._number = np.full(len(instance), -1, np.int64)
        self._number[arguments] = np.arange(len(arguments))
        self._made: dict[bytes, Array] = {}

    def of(self, row: int) -> list[Array | None]:
        """The arrays of a row; None for what is in no arena of this host."""
        numbers = self._number[self._first[row] : self._first[row + 1]].tolist()
        keys = self._keys
        made = self._made
        return [
            None if n < 0 else made[key] if (key := keys[n]) in made else self._make(key)
            for n in numbers
        ]

    def _make(self, key: bytes) -> Array:
        device, dtype, ndim, is_written, begin, *rest = np.frombuffer(key, np.int64).tolist()
        shape = rest[:ndim]
        if device < 0:
            view = np.empty(shape, self._dtypes[dtype])
        else:
            view = np.ndarray(
                shape,
                self._dtypes[dtype],
                self._arenas[device].data,
                begin,
                rest[self._dims : self._dims + ndim],
            )
        view.flags.writeable = bool(is_written)
        self._made[key] = view
        return view


_FACTS = 5  # before shape and strides


def _dtypes(graph: TaskGraph) -> list[str]:
    """The dtypes of all regions, each once."""
    return list(dict.fromkeys(region.dtype for region in graph.regions))


def _columns(graph: TaskGraph, plan: MemoryPlan, arguments: Array) -> Array:
    """Of these arguments: device, dtype, dimensions, whether it is written, first byte; shape; strides.

    The device of an empty box, which has no instance, is -1.
    """
    dims = graph.arg_box.shape[2]
    row = graph.arg_row[arguments]
    instance = np.maximum(graph.arg_instance[arguments], 0)
    is_point = graph.kind[row] == Kind.POINT
    has_memory = graph.arg_instance[arguments] >= 0
    columns = np.zeros((len(arguments), _FACTS + 2 * dims), np.int64)
    columns[:, 0] = np.where(has_memory, graph.instance_device[instance], -1)
    region = np.where(
        has_memory, graph.instance_region[instance], _regions_of_points(graph, row, arguments)
    )
    number = {name: k for k, name in enumerate(_dtypes(graph))}
    facts = np.array([(number[r.dtype], r.ndim) for r in graph.regions], np.int64)
    columns[:, 1], columns[:, 2] = facts[region].T
    columns[:, 3] = ~(is_point & (graph.arg_privilege[arguments] == Privilege.READ))
    strides = instance_strides(graph)[instance] * has_memory[:, None]
    begin = graph.arg_box[arguments, 0] - graph.instance_box[instance, 0]
    columns[:, 4] = plan.offset[instance] * has_memory + (begin * strides).sum(axis=1)
    columns[:, _FACTS : _FACTS + dims] = np.maximum(
        graph.arg_box[arguments, 1] - graph.arg_box[arguments, 0], 0
    )
    columns[:, _FACTS + dims :] = strides
    return columns


def _regions_of_points(graph: TaskGraph, row: Array, arguments: Array) -> Array:
    """The regions of arguments of points, by their operators; 0 for those of other rows."""
    first = pointers([len(launch.args) for launch in graph.launches])
    regions = np.array(
        [number for launch in graph.launches for number in launch.args] or [0], np.int64
    )
    is_point = graph.launch[row] >= 0
    at = first[np.maximum(graph.launch[row], 0)] + arguments - graph.arg_ptr[row]
    return np.where(is_point, regions[np.where(is_point, at, 0)], 0)


def instance_strides(graph: TaskGraph) -> Array:
    """Bytes from one point to the next along every dimension of every instance."""
    dims = graph.instance_box.shape[2]
    regions = graph.regions
    order = np.tile(np.arange(dims), (len(regions), 1))
    for k, region in enumerate(regions):
        order[k, : region.ndim] = graph.order(k)
    itemsize = np.array([r.itemsize for r in regions], np.int64)[graph.instance_region]
    extents = graph.instance_box[:, 1] - graph.instance_box[:, 0]
    ndim = np.array([r.ndim for r in regions], np.int64)[graph.instance_region]
    extents[np.arange(dims)[None, :] >= ndim[:, None]] = 1
    order = order[graph.instance_region]
    lying = np.take_along_axis(extents, order, 1)  # slowest first
    behind = np.cumprod(
        np.concatenate([lying[:, 1:], np.ones_like(lying[:, :1])], axis=1)[:, ::-1], axis=1
    )[:, ::-1]
    strides = np.empty_like(extents)
    np.put_along_axis(strides, order, behind * itemsize[:, None], 1)
    return strides
