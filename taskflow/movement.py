"""The life of one region under given configurations: instances, copies, folds and all dependences.

Takes the events of a region in program order (who makes it, reads it, updates it in place, and how each is split);
gives a `Fragment`: the instances every device needs, the rows that move data after each version, and the dependence
edges among all of them. Since every dependence is through some region, the fragments of all regions together hold all
dependences of a task graph. A fragment depends on nothing but its events, so it is cached by them.

The rules:

* An instance holds a box that somebody on the device needs, reads or writes; a box inside another uses its memory.
  So a halo arrives beside the rows that the producer wrote, with no copy of those.
* Partial results are combined where they are needed: a box needed by one device is summed there (reduce-scatter); one
  needed by several is cut among them, summed in parts and gathered (all-reduce). Bytes are the minimum for both.
* What more than a few devices sum or gather together is one row, a collective.
* A persistent region lives, between steps, in the instances from which the first readers of a step read.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskflow.collective import Group, classify, gather_of, owners, reduction_of
from taskflow.dependence import DependenceTracker
from taskflow.errors import InternalError
from taskflow.fragment import Event, Fragment, Move, Need, Version, versions_of
from taskflow.geometry import Rect, subtract_all
from taskflow.region import LogicalRegion
from taskflow.task import Kind, Privilege


def move_region(
    region: LogicalRegion, events: Sequence[Event], fetch_devices: Sequence[int], hosts: Sequence[int]
) -> Fragment:
    """The fragment of `region`; `hosts[d]` is the host of device d, used to prefer near sources."""
    return _Movement(region, events, fetch_devices, hosts).build()


class _Movement:
    """Plays the events in order, keeping which boxes of which instances are valid."""

    def __init__(
        self, region: LogicalRegion, events: Sequence[Event], fetch_devices: Sequence[int], hosts: Sequence[int]
    ) -> None:
        self.region, self.hosts, self.fetch_devices = region, hosts, fetch_devices
        self.out = Fragment(versions=versions_of(events))
        self.tracker = DependenceTracker()
        self.values: dict[int, list[int]] = {}  # device -> instances that hold values, not partial results
        self.found: dict[Need, int] = {}
        self.valid: dict[int, list[Rect]] = {}
        self.sources: list[tuple[int, int, Rect]] = []

    def build(self) -> Fragment:
        """Run the analysis."""
        out = self.out
        homes = self._gather_needs()
        self._make_instances()
        for v, version in enumerate(out.versions):
            self.valid, self.sources = {}, []
            self._produce(v, version, homes)
            self._deliver(v, version)
            version.collective = classify(version, self.region)
            for event in version.readers:
                self._consume(event)
        out.homes = [(self._instance(d, r), r) for d, r in homes]
        out.fetches = [(d, self._instance(d, self.region.rect), self.region.rect) for d in self.fetch_devices]
        out.edges = list(self.tracker.edges)
        return out

    # -- instances -------------------------------------------------------------------------------------------------

    def _gather_needs(self) -> list[Need]:
        versions = self.out.versions
        for version in versions:
            for event in version.readers:
                for need in zip(event.points.devices, event.rects, strict=True):
                    if not need[1].is_empty:
                        version.needs[need] = None
        homes: list[Need] = []
        if self.region.is_persistent:
            if not versions[0].needs:  # nobody reads it: it lives where it is fetched
                versions[0].needs.update(((d, self.region.rect), None) for d in self.fetch_devices)
            device = next(iter(versions[0].needs), (0,))[0]
            for piece in subtract_all(self.region.rect, [r for _, r in versions[0].needs]):
                versions[0].needs[device, piece] = None  # nobody uses it, but it can be read and written
            homes = list(versions[0].needs)
            versions[-1].needs.update(versions[0].needs)
        for device in self.fetch_devices:
            versions[-1].needs[device, self.region.rect] = None
        return homes

    def _make_instances(self) -> None:
        """One instance per device for every box that is not inside a larger one."""
        boxes: dict[Need, None] = {}
        for version in self.out.versions:
            boxes.update(version.needs)
            if version.producer is not None and not self._is_partial(version.producer):
                boxes.update(dict.fromkeys(zip(version.producer.points.devices, version.producer.rects, strict=True)))
        for device, rect in sorted(boxes, key=lambda b: (b[0], -b[1].volume, b[1].lo, b[1].hi)):
            held = self.values.setdefault(device, [])
            if not rect.is_empty and not any(self.out.rects[k].covers(rect) for k in held):
                held.append(self._add(device, rect, False))

    def _is_partial(self, event: Event) -> bool:
        count = len(event.points.operator.inputs)
        return event.arg >= count and event.points.outputs[event.arg - count].is_partial

    def _add(self, device: int, rect: Rect, partial: bool) -> int:
        self.out.devices.append(device)
        self.out.rects.append(rect)
        self.out.partial.append(partial)
        return len(self.out.rects) - 1

    def _instance(self, device: int, rect: Rect) -> int:
        """The value instance on `device` that holds `rect`."""
        key = (device, rect)
        if key not in self.found:
            self.found[key] = next(
                (k for k in self.values.get(device, ()) if self.out.rects[k].covers(rect)),
                -1,
            )
        return self.found[key]

    # -- producing -------------------------------------------------------------------------------------------------

    def _produce(self, v: int, version: Version, homes: Sequence[Need]) -> None:
        event = version.producer
        if event is None:
            if self.region.is_persistent:
                for device, rect in homes:
                    self._make_valid(device, self._instance(device, rect), rect)
            else:
                self._feed(v, version)
        elif self._is_partial(event):
            self._combine(v, version, event)
        else:
            for p, (device, rect) in enumerate(zip(event.points.devices, event.rects, strict=True)):
                instance = self._instance(device, rect)
                if event.privilege is not Privilege.READ_WRITE:  # else it was consumed as the last reader
                    self.out.arguments.setdefault((event.slot, event.arg), []).append(instance)
                    self.tracker.write(instance, rect, (event.slot, p))
                self._make_valid(device, instance, rect)

    def _feed(self, v: int, version: Version) -> None:
        for device, held in self.values.items():
            for instance in held:
                rect = self.out.rects[instance]
                self._move(v, version, Kind.FEED, device, device, [(instance, rect, Privilege.WRITE)])
                self._make_valid(device, instance, rect)

    def _make_valid(self, device: int, instance: int, rect: Rect) -> None:
        self.valid.setdefault(instance, []).append(rect)
        self.sources.append((device, instance, rect))

    def _combine(self, v: int, version: Version, event: Event) -> None:
        """Partial results: allocate them, fold those of one device, then fold each needed box at its owner."""
        output = event.points.outputs[event.arg - len(event.points.operator.inputs)]
        tiles: dict[Rect, dict[int, dict[int, int]]] = {}
        for p, (device, rect) in enumerate(zip(event.points.devices, event.rects, strict=True)):
            tiles.setdefault(rect, {}).setdefault(output.colours[p], {}).setdefault(device, p)
        instances = [-1] * len(event.points)
        plans = []
        for rect, colours in tiles.items():
            groups: dict[tuple[int, ...], list[int]] = {}
            for colour, placed in colours.items():
                groups.setdefault(tuple(placed), []).append(colour)
            partials: list[dict[int, int]] = []
            for devices, members in groups.items():
                partials.append({})
                for device in devices:
                    alone = all(device not in other for other in groups if other is not devices)
                    points = [colours[c][device] for c in members]
                    partials[-1][device] = self._partial_instances(event, rect, device, points, alone, instances)
            plans.append((rect, partials))
        self.out.arguments[event.slot, event.arg] = instances
        self._fold_local(v, version, event, tiles, instances)
        self._fold_atowners(v, version, plans)

    def _partial_instances(
        self, event: Event, rect: Rect, device: int, points: Sequence[int], alone: bool, instances: list[int]
    ) -> int:
        """Place the partial results of one device; the first lies where the result will be, if that is free."""
        for k, p in enumerate(points):
            place = self._instance(device, rect) if k == 0 and alone else -1
            instances[p] = place if place >= 0 else self._add(device, rect, True)
            self.tracker.write(instances[p], rect, (event.slot, p))
        return instances[points[0]]

    def _fold_local(
        self,
        v: int,
        version: Version,
        event: Event,
        tiles: dict[Rect, dict[int, dict[int, int]]],
        instances: Sequence[int],
    ) -> None:
        for rect, colours in tiles.items():
            groups: dict[tuple[int, ...], list[int]] = {}
            for colour, placed in colours.items():
                groups.setdefault(tuple(placed), []).append(colour)
            for devices, members in groups.items():
                for device in devices if len(members) > 1 else ():
                    parts = [instances[colours[c][device]] for c in members]
                    self._fold(v, version, device, parts[0], rect, parts, rect)

    def _fold_atowners(self, v: int, version: Version, plans: Sequence[tuple[Rect, list[dict[int, int]]]]) -> None:
        folds, copies = [], []
        for rect, partials in plans:
            if len(partials) == 1:  # every holder has the whole sum
                for device, instance in partials[0].items():
                    self._make_valid(device, instance, rect)
                continue
            if together := reduction_of(rect, partials, version.needs, self.hosts, self.region.itemsize):
                self._reduce_together(v, version, together)
                continue
            for owner, piece in owners(rect, partials, version.needs):
                parts: list[int] = []
                for group in partials:
                    if owner in group:
                        parts.insert(0, group[owner])
                        continue
                    source = list(group)[owner % len(group)]
                    scratch = self._add(owner, piece, True)
                    copies.append((source, group[source], owner, scratch, piece))
                    parts.append(scratch)
                folds.append((owner, piece, parts))
        self._copy_in_rounds(v, version, copies)
        for owner, piece, parts in folds:
            target = self._instance(owner, piece)
            if len(parts) > 1 or parts[0] != target:
                self._fold(v, version, owner, target, piece, parts, piece)
            self._make_valid(owner, target, piece)

    def _fold(
        self, v: int, version: Version, device: int, target: int, rect: Rect, parts: Sequence[int], box: Rect
    ) -> None:
        args = [(target, rect, Privilege.READ_WRITE if parts[0] == target else Privilege.WRITE)]
        self._move(v, version, Kind.FOLD, device, device, args + [(k, box, Privilege.READ) for k in parts])

    def _reduce_together(self, v: int, version: Version, group: Group) -> None:
        """One row: every target is the sum."""
        scratch = [(self._add(d, piece, True), piece, Privilege.WRITE) for d, piece in group.summed]
        held = {instance for _, instance, _ in group.sources}
        sources = [(instance, box, Privilege.READ) for _, instance, box in group.sources]
        targets = []
        for device, box in group.targets:
            target = self._instance(device, box)
            targets.append((target, box, Privilege.READ_WRITE if target in held else Privilege.WRITE))
            self._make_valid(device, target, box)
        self._move_together(v, version, group, [*sources, *targets, *scratch], [*targets, *scratch])

    # -- delivering ------------------------------------------------------------------------------------------------

    def _deliver_together(self, v: int, version: Version, arrived: dict[int, list[tuple[int, int, Rect]]]) -> None:
        """One row for every box that many devices lack and that others hold in tiles, or whole."""
        lacking: dict[Rect, list[int]] = {}
        for device, rect in version.needs:
            if self._missing(device, rect):
                lacking.setdefault(rect, []).append(device)
        for box, devices in lacking.items():
            places = [(d, self._instance(d, box), self._missing(d, box)) for d in sorted(devices)]
            group = gather_of(box, [p for p in places if p[2]], self.sources, self.hosts)
            if group is None:
                continue
            held = {instance for _, instance, _ in group.sources}
            sources = [(instance, piece, Privilege.READ) for _, instance, piece in group.sources]
            targets, written = [], []
            for device, target, missing in (p for p in places if p[2]):
                targets.append((target, box, Privilege.READ_WRITE if target in held else Privilege.WRITE))
                written += [(target, piece, Privilege.WRITE) for piece in missing]
                self.valid.setdefault(target, []).extend(missing)
                arrived.setdefault(device, []).append((device, target, box))
            self._move_together(v, version, group, [*sources, *targets], written)

    def _missing(self, device: int, rect: Rect) -> list[Rect]:
        """What of a needed box is not valid where `device` needs it."""
        return subtract_all(rect, self.valid.get(self._instance(device, rect), ()))

    def _deliver(self, v: int, version: Version) -> None:
        """Copy into every needed box what is not valid there."""
        copies: list[tuple[int, int, int, int, Rect]] = []
        arrived: dict[int, list[tuple[int, int, Rect]]] = {}  # a box is sent to a device once
        self._deliver_together(v, version, arrived)
        for device, rect in version.needs:
            target = self._instance(device, rect)
            missing = self._missing(device, rect)
            if not missing:
                continue
            near = sorted(self.sources + arrived.get(device, []), key=lambda s: self._distance(s[0], device))
            for source, instance, held in near:
                left: list[Rect] = []
                for piece in missing:
                    if not piece.overlaps(held) or instance == target:
                        left.append(piece)
                        continue
                    part = piece.intersect(held)
                    copies.append((source, instance, device, target, part))
                    self.valid.setdefault(target, []).append(part)
                    arrived.setdefault(device, []).append((device, target, part))
                    left += piece.subtract(held)
                missing = left
                if not missing:
                    break
            if missing:
                raise InternalError(f"region '{self.region.name}': nobody holds {missing[0]} for device {device}")
        self._copy_in_rounds(v, version, copies)

    def _distance(self, source: int, device: int) -> tuple[bool, bool, int]:
        """The device itself, then its host; replicas of a source serve different readers."""
        return source != device, self.hosts[source] != self.hosts[device], (source - device) % len(self.hosts)

    def _copy_in_rounds(self, v: int, version: Version, copies: list[tuple[int, int, int, int, Rect]]) -> None:
        """Emit copies (source, its instance, target device, its instance, box): in round k device d gets from d + k.

        So every device sends and receives one at a time, and all are busy in every round. Copies within a device come
        last, since they may copy what has just arrived.
        """
        count = len(self.hosts)
        for source, from_, device, to, rect in sorted(copies, key=lambda c: ((c[0] - c[2]) % count or count, c[2])):
            args = [(from_, rect, Privilege.READ), (to, rect, Privilege.WRITE)]
            self._move(v, version, Kind.COPY, source, device, args)

    def _move(
        self,
        v: int,
        version: Version,
        kind: Kind,
        source: int,
        device: int,
        args: Sequence[tuple[int, Rect, Privilege]],
    ) -> None:
        self._track((-1 - v, len(version.moves)), args)
        version.moves.append(Move(kind, source, device, tuple(args)))

    def _move_together(
        self,
        v: int,
        version: Version,
        group: Group,
        args: Sequence[tuple[int, Rect, Privilege]],
        written: Sequence[tuple[int, Rect, Privilege]],
    ) -> None:
        """A collective; of its targets it writes only `written`: a tile that is there stays as it is."""
        reads = [a for a in args if a[2] is Privilege.READ]
        self._track((-1 - v, len(version.moves)), [*reads, *written])
        first = min(self.out.devices[instance] for instance, _, _ in args)
        version.moves.append(Move(Kind.COLLECTIVE, first, first, tuple(args), group.name, group.volume))

    def _track(self, task: tuple[int, int], args: Sequence[tuple[int, Rect, Privilege]]) -> None:
        for instance, rect, privilege in args:
            if privilege is Privilege.READ:
                self.tracker.read(instance, rect, task)
        for instance, rect, privilege in args:
            if privilege is not Privilege.READ:
                self.tracker.write(instance, rect, task)

    def _consume(self, event: Event) -> None:
        placed = self.out.arguments.setdefault((event.slot, event.arg), [])
        for p, (device, rect) in enumerate(zip(event.points.devices, event.rects, strict=True)):
            instance = -1 if rect.is_empty else self._instance(device, rect)
            placed.append(instance)
            if instance >= 0:
                self.tracker.read(instance, rect, (event.slot, p))
        if event.privilege is Privilege.READ_WRITE:
            for p, rect in enumerate(event.rects):
                self.tracker.write(placed[p], rect, (event.slot, p))
