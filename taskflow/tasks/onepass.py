"""The pass over all rows of a task graph, compiled by numba; imported on first use."""

from __future__ import annotations

from taskflow.core.columns import Array
from taskflow.core.compiling import inlined, njit
from taskflow.core.start_rule import latest, occupy, start_of


@njit
def one_pass(
    dep_ptr: Array,
    dep_row: Array,
    streams: Array,
    group_ptr: Array,
    group_streams: Array,
    seconds: Array,
    start: Array,
    end: Array,
    free: Array,
) -> float:
    """Fill in start and end of every row; `free[s]` is when stream s is next free. Returns the end of the last row.

    Args:
        dep_ptr, dep_row: row k depends on the rows `dep_row[dep_ptr[k] : dep_ptr[k + 1]]`.
        streams: (rows, n) streams that a row occupies, -1 for none. A row of a collective has `-2 - g` first, which
            stands for the streams of group g: `group_streams[group_ptr[g] : group_ptr[g + 1]]`.
        seconds: of every row.
    """
    last = 0.0
    for row in range(len(seconds)):
        group = group_streams[of_group(streams[row, 0], group_ptr)]
        done = latest(0.0, end, dep_row[dep_ptr[row] : dep_ptr[row + 1]])
        start[row] = start_of(start_of(done, free, streams[row]), free, group)
        end[row] = start[row] + seconds[row]
        occupy(free, streams[row], end[row])
        occupy(free, group, end[row])
        last = max(last, end[row])
    return last


@inlined
def of_group(stream: int, group_ptr: Array) -> slice:
    """The streams of the group that `stream` stands for; none, if it is a stream itself."""
    return slice(group_ptr[-2 - stream], group_ptr[-1 - stream]) if stream < -1 else slice(0, 0)
