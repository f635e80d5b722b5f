"""Timelines: when every task ran, predicted or measured; one type for both.

The simulator makes one from costs, the executor from its clock; `compare` puts them side by side.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from taskflow.core.columns import pointers
from taskflow.core.files import replace_file
from taskflow.core.grouping import grouped
from taskflow.core.text import in_ms
from taskflow.machine import MachineModel
from taskflow.tasks.energy import joules_of
from taskflow.tasks.peers import Peers
from taskflow.tasks.streams import count_streams, find_queues, follows
from taskflow.tasks.task_graph import STREAMS, Array, Kind, TaskGraph
from taskflow.tasks.trace import trace_events


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """Start and end of every row in seconds since the start of the step.

    Attributes:
        task_graph: whose rows they are, with all that they wait for (`taskflow.tasks.memory.with_reuse`).
        start, end: seconds; NaN for rows that ran on another rank and are not known here.
        seconds: of the whole step.
        peak_bytes: that every device needs, see `taskflow.tasks.memory.needed_bytes`.
        shortage: of memory, see `taskflow.tasks.memory.shortage`; empty where all fits.
        host_bytes: that every device keeps in the memory of its host; None: not known.
    """

    task_graph: TaskGraph
    start: Array
    end: Array
    seconds: float
    peak_bytes: Array
    shortage: str = ""
    host_bytes: Array | None = None

    def __repr__(self) -> str:
        short = f"; does not fit: {self.shortage}" if self.shortage else ""
        return f"Timeline({in_ms(self.seconds)}, {len(self.start)} rows, {self.bytes_moved} bytes moved{short})"

    @cached_property
    def bytes_moved(self) -> int:
        """Bytes that cross between devices."""
        return self.task_graph.bytes_moved

    def busy_seconds(self) -> dict[int, float]:
        """Stream number -> seconds in which it is occupied."""
        duration = np.nan_to_num(self.end - self.start)
        graph = self.task_graph
        rows, streams = graph.occupied()
        total = np.bincount(streams, duration[rows], count_streams(graph.machine))
        if graph.peers is not None:
            total = _busy_of_all(graph.peers, duration, total)
            first_link = len(total) - len(graph.machine.links)
            total[first_link:] += _of_host_links(graph.machine, graph.to_hosts(duration))
        return {s: float(t) for s, t in enumerate(total) if t > 0}

    @property
    def step_ends(self) -> Array:
        """(repeat,) when the last kernel of every step ends, of several in a row (`lower(..., repeat=)`); seconds."""
        graph = self.task_graph
        is_point = graph.kind == Kind.POINT
        step = np.array([launch.step for launch in graph.launches], np.int64)
        ends = np.zeros(graph.repeat)
        np.maximum.at(ends, step[graph.launch[is_point]], self.end[is_point])
        return ends

    def steady_seconds(self, fewer_seconds: float, fewer: int = 1) -> float:
        """What each further one of several steps in a row takes, where `fewer` in a row take so many seconds.

        The first are filling the machine: of a pipeline whose slowest of n stages takes t, k steps take (k - 1) t more
        than one. It is exact where the fewer fill the machine, too; of two plans of the same rate, the one whose step
        alone is quicker seems slower by it. No less than what a device computes in a step, whatever the steps leave
        idle at their ends.
        """
        graph = self.task_graph
        is_point = graph.kind == Kind.POINT
        computes = np.bincount(graph.device[is_point], (self.end - self.start)[is_point])
        busiest = float(computes.max(initial=0.0)) / graph.repeat
        return max((self.seconds - fewer_seconds) / (graph.repeat - fewer), busiest)

    def link_bytes(self) -> dict[int, int]:
        """Link number -> bytes that it carries."""
        machine = self.task_graph.machine
        (source, device, size) = self.task_graph.carried()
        routes = machine.ways.links(source, device)
        crossing, hop = np.nonzero(routes >= 0)
        total = np.zeros(len(machine.links), np.int64)
        np.add.at(total, routes[crossing, hop], size[crossing])
        total += _of_host_links(machine, self.task_graph.to_hosts(self.task_graph.bytes))
        return {link: size for link, size in enumerate(total.tolist()) if size}

    @cached_property
    def host_share(self) -> float:
        """Of the memory of the fullest host the share that its devices keep something in; above 1 it does not fit."""
        machine = self.task_graph.machine
        if self.host_bytes is None or not machine.memories:
            return 0.0
        kept = np.bincount([device.host for device in machine.devices], self.host_bytes)
        return float(max(kept[memory.host] / memory.memory_bytes for memory in machine.memories))

    @cached_property
    def joules(self) -> float | None:
        """Energy of the step: of flops, bytes of memory and of links, and watts; see `taskflow.tasks.energy`.

        None: a device, or a link that carries something, has no such rate, or these are rows of some devices alone.
        """
        return joules_of(self.task_graph, self.seconds, self.link_bytes())

    def class_bytes(self) -> dict[str, int]:
        """Bytes that cross between devices `within hosts` and `between hosts`."""
        host = np.array([d.host for d in self.task_graph.machine.devices])
        source, device, size = self.task_graph.carried()
        between = int(size[host[source] != host[device]].sum())
        return {"within hosts": int(size.sum()) - between, "between hosts": between}

    def awaited(self) -> Array:
        """Per row the one that it waited for last, by a dependence or on a stream; -1: none that is known here."""
        graph = self.task_graph
        before, after = follows(*find_queues(graph))  # links are shared, and make nobody wait
        waiting = graph.waiting_row
        first = np.concatenate([graph.dep_row, before])
        then = np.concatenate([waiting, after])
        is_known = ~np.isnan(self.end[first])
        first = first[is_known]
        then = then[is_known]
        order = np.lexsort((first, self.end[first], then))
        is_last = np.diff(then[order], append=-1) != 0
        awaited = np.full(len(graph), -1, np.int64)
        awaited[then[order][is_last]] = first[order][is_last]
        return awaited

    def critical_path(self) -> list[int]:
        """Rows of a longest chain: from the row that ends last, back through whatever each row waited for."""
        if not len(self.end) or np.all(np.isnan(self.end)):
            return []
        awaited = self.awaited()
        row = int(np.nanargmax(self.end))
        path = list[int]()
        while row >= 0:
            path.append(row)
            row = int(awaited[row])
        return path[::-1]

    def save_trace(self, path: str | Path) -> None:
        """Write a trace for Perfetto or chrome://tracing (see `taskflow.tasks.trace`); an OSError names the file."""
        events = trace_events(self.task_graph, self.start, self.end, self.awaited())
        replace_file(
            path, json.dumps({"displayTimeUnit": "ms", "traceEvents": events}), sys.maxsize
        )


def _of_host_links(machine: MachineModel, values: Array) -> Array:
    """Per link the sum of what goes over it to the memory of hosts, and comes from there; see `TaskGraph.to_hosts`."""
    total = np.zeros(len(machine.links), values.dtype)
    if machine.memories:
        links = machine.host_ways.links
        direction, device, hop = np.nonzero(links >= 0)
        np.add.at(total, links[direction, device, hop], values[direction, device])
    return total


def _busy_of_all(peers: Peers[TaskGraph], duration: Array, total: Array) -> Array:
    """Seconds of all streams, given those of rows of representatives, and of their streams.

    A device is as busy as its representative. Links are by what all rows occupy that these stand for.
    """
    devices = len(peers.orbits.of)
    first = peers.orbits.representative[peers.orbits.of]
    of_devices = total[: STREAMS * devices].reshape(STREAMS, devices)[:, first]
    moved = np.flatnonzero(peers.kind >= 0)
    links = np.zeros(len(total) - STREAMS * devices)
    begin = pointers([len(kind.like) for kind in peers.kinds])
    row = begin[peers.kind[moved]] + peers.number[moved]
    row -= np.array([kind.begin for kind in peers.kinds], np.int64)[peers.kind[moved]]
    of_rows = np.bincount(row, duration[moved], int(begin[-1]))
    for (kind, (row, stream)), first in zip(
        peers.spans(lambda rows: rows.occupied()), begin.tolist(), strict=False
    ):
        at = slice(*np.searchsorted(row, kind.ends))
        link = stream[at] - STREAMS * devices
        of_links = link >= 0
        taken = of_rows[first + kind.like[row[at][of_links] - kind.begin] - kind.begin]
        links += np.bincount(kind.links_here(link[of_links]), taken, len(links))
    return np.concatenate([of_devices.reshape(-1), links])


class RowsBefore:
    """The rows issued just before a row on its streams, or on those that make it wait: links are shared."""

    def __init__(self, graph: TaskGraph, of_links: bool = True) -> None:
        before, after = follows(*(graph.occupied() if of_links else find_queues(graph)))
        self._ptr, order = grouped(after, len(graph))
        self._previous = before[order]

    def of(self, row: int) -> list[int]:
        """Each once, in the order of the rows."""
        rows = self._previous[self._ptr[row] : self._ptr[row + 1]]
        return sorted(set(rows.tolist()))
