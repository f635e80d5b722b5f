"""A timeline as a trace: Google's Trace Event Format (JSON), which Perfetto and chrome://tracing read.

A device is a process, its streams are threads; links are a process of their own. A row is a complete event ("X") on
every stream that it occupies, with its kind as category and what it moves and computes as arguments. A flow ("s" to
"f") goes from the row that a row waited for last to that row, where it is on another stream. Bytes in use are a
counter ("C") of each device.

Events of one thread must not overlap unless one holds the other. Transfers that share a link do, so a link has as many
threads as it carries transfers at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskflow.core.text import contents
from taskflow.machine import MachineModel
from taskflow.tasks.occupancy import bytes_in_use, lives
from taskflow.tasks.streams import count_streams, describe_stream
from taskflow.tasks.task_graph import COLLECTIVES, Array, Kind, TaskGraph

CATEGORIES = {
    Kind.COPY: "copy",
    Kind.FOLD: "fold",
    Kind.FEED: "feed",
    Kind.COLLECTIVE: "collective",
}
_SLACK_SECONDS = 1e-12  # what begins so little before another ends does not overlap it

Event = dict[str, object]


def trace_events(task_graph: TaskGraph, start: Array, end: Array, awaited: Array) -> list[Event]:
    """The events of the rows that are known, in microseconds; see the module.

    Args:
        task_graph: the rows.
        start, end: of every row in seconds, NaN for those that are not known.
        awaited: per row the row that it waited for last, or -1.
    """
    threads = _Threads(task_graph.machine)
    places: dict[int, list[Event]] = {}
    events: list[Event] = []
    for row in np.argsort(start, kind="stable").tolist():
        if np.isnan(start[row]):
            continue
        streams = task_graph.streams_of(row) or [int(task_graph.device[row])]
        places[row] = [
            threads.place(stream, float(start[row]), float(end[row])) for stream in streams
        ]
        event = _event(task_graph, row, float(start[row]), float(end[row] - start[row]))
        events += [{**event, **place} for place in places[row]]
        events += _flow(row, int(awaited[row]), start, end, places)
    return [*threads.names(), *events, *_counters(task_graph, start, end)]


class _Threads:
    """Processes and threads: a thread for each stream, and more for links that carry several transfers at once."""

    def __init__(self, machine: MachineModel) -> None:
        self._machine = machine
        self._next = count_streams(machine)
        self._ends: dict[int, list[tuple[int, float]]] = {}  # stream -> (thread, when it is free)

    def place(self, stream: int, start: float, end: float) -> Event:
        """Process and thread of an event, which is not earlier than those before."""
        threads = self._ends.setdefault(stream, [])
        free = next(
            (k for k, (_, free) in enumerate(threads) if free <= start + _SLACK_SECONDS),
            len(threads),
        )
        if free == len(threads):
            threads.append((stream if not threads else self._next, 0.0))
            self._next += len(threads) > 1
        threads[free] = threads[free][0], end
        return {"pid": describe_stream(self._machine, stream)[0], "tid": threads[free][0]}

    def names(self) -> list[Event]:
        """What processes and threads are called, and the order of processes."""
        events: list[Event] = []
        devices = len(self._machine.devices)
        for number, name in enumerate(
            [*(f"device {device}" for device in range(devices)), "links"]
        ):
            head: Event = {"ph": "M", "pid": number}
            events.append({**head, "name": "process_name", "args": {"name": name}})
            events.append({**head, "name": "process_sort_index", "args": {"sort_index": number}})
        for stream, threads in sorted(self._ends.items()):
            process, name = describe_stream(self._machine, stream)
            for k, (thread, _) in enumerate(threads):
                args = {"name": f"{name} ({k + 1})" if k else name}
                events.append(
                    {"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": args}
                )
        return events


def _event(task_graph: TaskGraph, row: int, start: float, seconds: float) -> Event:
    """A row as a complete event, without its stream."""
    kind = Kind(int(task_graph.kind[row]))
    launch = int(task_graph.launch[row])
    args: Event = {
        "row": row,
        "device": int(task_graph.device[row]),
        "bytes": int(task_graph.bytes[row]),
    }
    members: Sequence[str] = ()
    if launch >= 0:
        what = "point"
        category = task_graph.launches[launch].phase.name.lower()
        args |= {"flops": float(task_graph.flops[row]), "micro-batch": int(task_graph.ordinal[row])}
        members = task_graph.launches[launch].members
    else:
        category = CATEGORIES[kind]
        what = COLLECTIVES[int(task_graph.collective[row])] or category
        args["source"] = int(task_graph.source[row])
    name = f"{what} {task_graph.name(row)}[{int(task_graph.point[row])}]{contents(tuple(members))}"
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": start * 1e6,
        "dur": seconds * 1e6,
        "args": args,
    }


def _flow(
    row: int, before: int, start: Array, end: Array, places: dict[int, list[Event]]
) -> list[Event]:
    """The flow to a row from the one that it waited for, where it is known and on another stream."""
    if before not in places or places[before][0] == places[row][0]:
        return []
    flow: Event = {"name": "waits for", "cat": "flow", "id": row}
    middle = min(
        float(start[before] + end[before]) / 2, float(start[row])
    )  # it begins within its event
    begins: Event = {**flow, "ph": "s", "ts": middle * 1e6, **places[before][0]}
    return [begins, {**flow, "ph": "f", "bp": "e", "ts": float(start[row]) * 1e6, **places[row][0]}]


def _counters(task_graph: TaskGraph, start: Array, end: Array) -> list[Event]:
    """Bytes in use of every device, where they change."""
    changes = bytes_in_use(task_graph, *lives(task_graph, start, end))
    return [
        {"name": "bytes in use", "ph": "C", "pid": device, "ts": at * 1e6, "args": {"bytes": size}}
        for device, (seconds, sizes) in enumerate(changes)
        for at, size in zip(seconds.tolist(), sizes.tolist(), strict=True)
    ]
