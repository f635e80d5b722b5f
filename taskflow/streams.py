"""Streams: the in-order queues of a machine, and which of them each row occupies."""

from __future__ import annotations

import numpy as np

from taskflow.machine import MachineModel
from taskflow.task import STREAMS, Array, Kind


class StreamTable:
    """Numbers of the streams of a machine: per device compute, sending, receiving and host copies, then the links.

    Folds are part of receiving. A CPU device has one stream for all: its one thread computes and communicates, and it
    is the receiver that copies, out of the sender's memory, so that sending costs the sender nothing.
    """

    def __init__(self, machine: MachineModel) -> None:
        count = len(machine.devices)
        self.one_thread = np.array([d.kind == "cpu" for d in machine.devices])
        self.compute = np.arange(count)
        self.sending = np.where(self.one_thread, -1, count + self.compute)
        self.receiving = np.where(self.one_thread, self.compute, 2 * count + self.compute)
        self.host = np.where(self.one_thread, self.compute, 3 * count + self.compute)
        routes = machine.routes
        self.routes = np.where(routes < 0, -1, STREAMS * count + routes)

    def of_rows(self, kind: Array, source: Array, device: Array) -> Array:
        """(rows, n) stream numbers, -1 where there are fewer."""
        streams = np.full((len(kind), 2 + self.routes.shape[2]), -1, np.int64)
        streams[:, 0] = self.compute[device]
        moves = (kind == Kind.COPY) | (kind == Kind.FOLD)
        streams[moves, 0] = self.receiving[device[moves]]
        streams[kind == Kind.FEED, 0] = self.host[device[kind == Kind.FEED]]
        remote = moves & (source != device)
        streams[remote, 1] = self.sending[source[remote]]
        streams[remote, 2:] = self.routes[source[remote], device[remote]]
        return streams


def stream_names(machine: MachineModel) -> dict[int, str]:
    """Stream number -> what it is, for traces."""
    count = len(machine.devices)
    names = {}
    for k, what in enumerate(("compute", "sending", "receiving", "host copies")):
        names.update({k * count + d: f"device {d} {what}" for d in range(count)})
    names.update({STREAMS * count + k: f"link {link.ends[0]}->{link.ends[1]}" for k, link in enumerate(machine.links)})
    return names
