"""One message of a pipeline arrives late: by how much the step is longer, and by how much it would have to be.

The pass is written apart from the simulator's, since here a row may start late although all is there for it.
"""

import numpy as np

from taskflow import Device, Kind
from tests.schedule.cells import CellCosts

# Devices by who else waits for a message that is late: what comes over the same link, all that the device receives, or
# all that it does.
LINKS = Device(
    "emulated",
    flops_per_second=1e12,
    memory_bandwidth=1e12,
    overhead_seconds=0.0,
    sends_by_link=True,
)
STREAMS = Device("emulated", flops_per_second=1e12, memory_bandwidth=1e12, overhead_seconds=0.0)
THREAD = Device("cpu", flops_per_second=1e12, memory_bandwidth=1e12, overhead_seconds=0.0)


class LateCosts(CellCosts):
    """Those of cells, and a row takes longer."""

    def __init__(self, unit_seconds, row, late_seconds):
        super().__init__(unit_seconds, unit_seconds, unit_seconds, 2 * unit_seconds)
        self.row, self.late_seconds = row, late_seconds

    def seconds(self, task_graph):
        found = super().seconds(task_graph)
        found[self.row] += self.late_seconds
        return found


def messages(rows):
    """What cells send to others."""
    return [
        row
        for row in np.flatnonzero(rows.is_transfer).tolist()
        if rows.name(row).startswith("cell")
    ]


def waits(rows, only_readers=False):
    """What each row waits for: rows, and streams that it takes.

    Args:
        only_readers: nothing but points waits for streams, so that a message delays nobody but its readers.
    """
    streams = [[] for _ in range(len(rows))]
    takes = (rows.kind == Kind.POINT) | (not only_readers)
    for row, stream in zip(*(column.tolist() for column in rows.occupied()), strict=True):
        if takes[row]:
            streams[row].append(stream)
    return [rows.deps(row) for row in range(len(rows))], streams


def play(awaited, seconds, row=-1, late_seconds=0.0):
    """Seconds of a step where a row starts so much later than it could; see `waits`."""
    end, free = [], {}
    for number, (before, streams, taken) in enumerate(zip(*awaited, seconds.tolist(), strict=True)):
        ready = max((end[other] for other in before), default=0.0) + (
            late_seconds if number == row else 0.0
        )
        end.append(max([ready, *(free.get(stream, 0.0) for stream in streams)]) + taken)
        free.update(dict.fromkeys(streams, end[-1]))
    return max(end)


def hidden(rows, seconds, late_seconds, only_readers=False):
    """Of every message, the part of a delay by which the step is not longer."""
    awaited = waits(rows, only_readers)
    on_time = play(awaited, seconds)
    return np.array(
        [
            1 - (play(awaited, seconds, row, late_seconds) - on_time) / late_seconds
            for row in messages(rows)
        ]
    )
