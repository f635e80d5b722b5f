"""Timelines: when every task ran, predicted or measured; one type for both.

The simulator makes one from costs, the executor from its clock; `compare` puts them side by side.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taskflow.core.files import replace_file
from taskflow.core.grouping import grouped
from taskflow.tasks.streams import find_queues, follows, stream_names
from taskflow.tasks.task_graph import Array, TaskGraph


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """Start and end of every row in seconds since the start of the step.

    Attributes:
        task_graph: whose rows they are, with all that they wait for (`taskflow.tasks.memory.with_reuse`).
        start, end: seconds; NaN for rows that ran on another rank and are not known here.
        seconds: of the whole step.
        peak_bytes: arena size per device.
    """

    task_graph: TaskGraph
    start: Array
    end: Array
    seconds: float
    peak_bytes: Array

    def __repr__(self) -> str:
        return f"Timeline({self.seconds * 1e3:.3f} ms, {len(self.start)} rows, {self.bytes_moved} bytes moved)"

    @property
    def bytes_moved(self) -> int:
        """Bytes that cross between devices."""
        return self.task_graph.bytes_moved

    def busy_seconds(self) -> dict[int, float]:
        """Stream number -> seconds in which it is occupied."""
        duration = np.nan_to_num(self.end - self.start)
        rows, streams = self.task_graph.occupied()
        total = np.bincount(streams, duration[rows])
        return {s: float(t) for s, t in enumerate(total) if t > 0}

    def link_bytes(self) -> dict[int, int]:
        """Link number -> bytes that it carries."""
        machine, total = self.task_graph.machine, dict[int, int]()
        for _, source, device, size in self.task_graph.hops().T.tolist():
            for link in machine.route(source, device):
                total[link] = total.get(link, 0) + size
        return dict(sorted(total.items()))

    def class_bytes(self) -> dict[str, int]:
        """Bytes that cross between devices `within hosts` and `between hosts`."""
        host = np.array([d.host for d in self.task_graph.machine.devices])
        _, source, device, size = self.task_graph.hops()
        between = int(size[host[source] != host[device]].sum())
        return {"within hosts": int(size.sum()) - between, "between hosts": between}

    def critical_path(self) -> list[int]:
        """Rows of a longest chain: from the row that ends last, back through whatever each row waited for."""
        if not len(self.end) or np.all(np.isnan(self.end)):
            return []
        graph = self.task_graph
        previous = RowsBefore(graph, of_links=False)  # links are shared, and make nobody wait
        row = int(np.nanargmax(self.end))
        path = [row]
        while True:
            before = graph.deps(row) + previous.of(row)
            before = [b for b in before if not np.isnan(self.end[b])]
            if not before:
                return path[::-1]
            row = max(before, key=lambda b: (self.end[b], b))
            path.append(row)

    def save_trace(self, path: str | Path) -> None:
        """Write a Chrome trace (chrome://tracing, Perfetto): a line per stream; an OSError names the file."""
        graph = self.task_graph
        events: list[dict[str, object]] = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": stream, "args": {"name": name}}
            for stream, name in stream_names(graph.machine).items()
        ]
        for row in range(len(graph)):
            if np.isnan(self.start[row]):
                continue
            name, start, seconds = str(graph[row]).split(": ", 1)[1], self.start[row], self.end[row] - self.start[row]
            event = {"name": name, "ph": "X", "pid": 0, "ts": start * 1e6, "dur": seconds * 1e6}
            events += [{**event, "tid": stream} for stream in graph.streams_of(row)]
        replace_file(path, json.dumps({"traceEvents": events}), sys.maxsize)


class RowsBefore:
    """The rows issued just before a row on its streams, or on those that make it wait: links are shared."""

    def __init__(self, graph: TaskGraph, of_links: bool = True) -> None:
        before, after = follows(*(graph.occupied() if of_links else find_queues(graph)))
        self._ptr, order = grouped(after, len(graph))
        self._previous = before[order]

    def of(self, row: int) -> list[int]:
        """Each once, in the order of the rows."""
        found = self._previous[self._ptr[row] : self._ptr[row + 1]]
        return sorted(set(found.tolist()))
