"""Fragments: what one region adds to a task graph, as plain data. `movement` makes them, `lower` lays them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from taskflow.dependence import Ref
from taskflow.geometry import Rect
from taskflow.partition import Points
from taskflow.task import Kind, Privilege

Need = tuple[int, Rect]  # device, box


@dataclass(frozen=True)
class Event:
    """Argument `arg` of the operator in `slot`, for which its points hold `privilege`."""

    slot: int
    points: Points
    arg: int
    privilege: Privilege

    @property
    def rects(self) -> tuple[Rect, ...]:
        return self.points.args[self.arg].rects


@dataclass(frozen=True)
class Move:
    """One row that moves data: arguments as in `Kind`; name and elements moved of a collective."""

    kind: Kind
    source: int
    device: int
    args: tuple[tuple[int, Rect, Privilege], ...]
    name: str = ""
    volume: int = 0


@dataclass
class Version:
    """One value of the region: its producing event (None: fed or persistent), its readers, the boxes needed."""

    producer: Event | None
    readers: list[Event] = field(default_factory=list)
    needs: dict[Need, None] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    collective: str = ""


@dataclass
class Fragment:
    """What one region adds to a task graph.

    Attributes:
        devices, rects, partial: of every instance.
        versions: with the rows that move each of them; movement rows of version v are slot `-1 - v`.
        arguments: (slot, arg) -> instance per point (-1 where the box is empty).
        edges: (waiting, waited for), each a (slot, index).
        homes: instances that hold a persistent region between steps.
        fetches: per device that fetches the region: instance and box.
    """

    devices: list[int] = field(default_factory=list)
    rects: list[Rect] = field(default_factory=list)
    partial: list[bool] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    arguments: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    edges: list[tuple[Ref, Ref]] = field(default_factory=list)
    homes: list[tuple[int, Rect]] = field(default_factory=list)
    fetches: list[tuple[int, int, Rect]] = field(default_factory=list)


def versions_of(events: Sequence[Event]) -> list[Version]:
    """The values of a region that its events, in program order, make one after the other."""
    versions: list[Version] = []
    for event in events:
        if event.privilege in (Privilege.WRITE, Privilege.REDUCE):
            versions.append(Version(event))
            continue
        if not versions:
            versions.append(Version(None))
        versions[-1].readers.append(event)
        if event.privilege is Privilege.READ_WRITE:
            versions.append(Version(event))
    return versions or [Version(None)]
