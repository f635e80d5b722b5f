"""Persistent regions: what outlives a step, read and written as whole arrays, and shared between executors.

The homes of a region are the instances that hold it between steps. An executor that shares the regions of another one
uses the other's memory where both have the same home. Else the region is copied when it has changed, in either
direction. All ranks call these functions together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from taskflow.backend import Run
from taskflow.comm.transport import Transport
from taskflow.core.arrays import as_array, cast_array
from taskflow.core.dtypes import is_finite
from taskflow.core.geometry import Rect
from taskflow.core.random import Constant, Values, fill, random_key
from taskflow.execute.memory import Memory
from taskflow.graph.beside import in_job
from taskflow.graph.graph import LogicalRegion
from taskflow.tasks.everywhere import homes_of
from taskflow.tasks.task_graph import Array, TaskGraph


@dataclass(frozen=True)
class Loan:
    """Which memory of another executor a task graph can use.

    Attributes:
        instances: own instance -> instance of the lender that holds its box on the same device.
        stale: names of regions with a home that is not borrowed: they are copied in.
        apart: names of regions that have other homes in either graph: updates are copied out.
        job: of the lender, whose regions these are.
    """

    instances: dict[int, int]
    stale: list[str]
    apart: list[str]
    job: str = ""

    def lent(self, name: str) -> str:
        """What the lender calls a region."""
        return in_job(name, self.job) if self.job else name


def borrow(graph: TaskGraph, lender: TaskGraph, transport: Transport, job: str = "") -> Loan:
    """What `graph` can use of the memory of `lender`'s executor; all ranks call it, and get the same names.

    With a `job` the regions are those of this job among others (`graph.beside`).

    Raises:
        ValueError: the lender lacks a region, or has it with another shape or dtype.
    """
    regions = {r.name: r for r in graph.regions}
    others = {r.name: r for r in lender.regions}
    loan = Loan({}, [], [], job)
    for name in graph.homes:
        lent = loan.lent(name)
        if regions[name].is_constant and (
            lent not in others or others[lent].init != regions[name].init
        ):
            continue  # it has values of its own
        if lent not in lender.homes:
            raise ValueError(f"executor: the shared executor has no region '{lent}'")
        mine = regions[name]
        theirs = others[lent]
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            raise ValueError(
                f"executor: region '{name}' is {mine.shape} {mine.dtype}, "
                f"in the shared executor {theirs.shape} {theirs.dtype}"
            )
        is_whole = _borrow_region(graph, lender, name, loan)
        if not is_whole:
            loan.stale.append(name)
        if not is_whole or set(homes_of(graph, name)) != set(homes_of(lender, lent)):
            loan.apart.append(name)
    if transport.size == 1:
        return loan
    by_rank = transport.gather((loan.stale, loan.apart))
    stale, apart = (set[str]().union(*names) for names in zip(*by_rank, strict=True))
    names = [[n for n in graph.homes if n in kind] for kind in (stale, apart)]
    return Loan(loan.instances, names[0], names[1], job)


def _borrow_region(graph: TaskGraph, lender: TaskGraph, name: str, loan: Loan) -> bool:
    """Borrow the homes of one region where possible; whether all could be."""
    bound: list[tuple[int, Rect]] = []
    is_whole = True
    for instance in dict.fromkeys(i for i, _ in graph.homes[name]):
        device = int(graph.instance_device[instance])
        box = graph.instance_rect(instance)
        lent = next(
            (
                i
                for i, r in lender.homes[loan.lent(name)]
                if lender.instance_device[i] == device and r.covers(box)
            ),
            None,
        )
        # two instances in the same memory would have dependences that nobody knows of
        if lent is None or any(d == device and r.overlaps(box) for d, r in bound):
            is_whole = False
            continue
        bound.append((device, box))
        loan.instances[instance] = lent
    return is_whole


class PersistentRegions:
    """The persistent regions of one executor; `base` are those that it shares."""

    def __init__(
        self,
        graph: TaskGraph,
        memory: Memory,
        transport: Transport,
        run: Run,
        base: PersistentRegions | None = None,
        loan: Loan | None = None,
    ) -> None:
        self.graph = graph
        self.memory = memory
        self.transport = transport
        self.run = run
        self._regions = {r.name: r for r in graph.regions if r.name in graph.homes}
        self._base = base
        self._loan = loan or Loan({}, [], [])
        self._updated = _updated_regions(graph)
        self._seen = -1  # the change up to which the stale regions are known
        if base is None:
            return
        for instance, lent in self._loan.instances.items():
            if int(graph.instance_device[instance]) in memory.arenas:
                memory.bind(instance, base.memory.view(lent, graph.instance_rect(instance)))

    def initialise(self) -> None:
        """Fill in first values, unless they are another executor's: functions of (seed, region name, global index)."""
        for name, homes in self.graph.homes.items():
            region = self._regions[name]
            key = random_key(self.run.seed, region.drawn_as or name)
            if self._base is not None and not region.is_constant:
                continue
            if self.memory.begins_zeroed and region.init == Constant(0.0):
                continue  # what is not touched now costs nothing
            for instance, rect in homes:
                if self._is_here(instance):
                    values = partial(
                        fill, distribution=region.init, key=key, shape=region.shape, rect=rect
                    )
                    self.memory.fill(instance, rect, values)

    def _is_here(self, instance: int) -> bool:
        return self.transport.drives(int(self.graph.instance_device[instance]))

    @property
    def names(self) -> list[str]:
        """Of those that can change."""
        return [name for name, region in self._regions.items() if not region.is_constant]

    @property
    def constants(self) -> dict[str, str]:
        """Name -> digest of the values of those that cannot."""
        states = self._regions.items()
        return {name: r.init.digest for name, r in states if isinstance(r.init, Values)}

    @property
    def are_updated(self) -> bool:
        """Whether a step updates any of them."""
        return bool(self._updated)

    def region(self, name: str) -> LogicalRegion:
        """The region of that name; ValueError if there is none."""
        if name not in self._regions:
            raise ValueError(f"region '{name}': the graph has no persistent region of this name")
        return self._regions[name]

    def read(self, name: str) -> Array:
        """The whole value, on every rank."""
        self.region(name)
        self.transport.barrier()  # asleep, for a rank may come late
        self.refresh()
        return self._load(name)

    def write(self, name: str, value: Array | float) -> None:
        """Set the whole value, the same on every rank, which is not compared.

        Raises:
            ValueError: there is no such region, it has another shape, or its dtype cannot hold a number of the value.
        """
        self._store(name, self.cast(name, value))
        self.run.changes += 1

    def cast(self, name: str, value: Array | float) -> Array:
        """The value in the dtype of a region; ValueError as `write`."""
        region = self.region(name)
        where = f"write '{name}'"
        if region.is_constant:
            raise ValueError(f"{where}: it is a constant, which nothing updates")
        given = as_array(where, value)
        if given.shape != region.shape:
            raise ValueError(
                f"{where}: the value has shape {given.shape}, the region {region.shape}"
            )
        return cast_array(where, given, region.dtype)

    def whole_on(self, name: str) -> list[int]:
        """The ranks that hold all of a region in one instance."""
        rect = self.region(name).rect
        devices = {device for device, box in homes_of(self.graph, name) if box.covers(rect)}
        return sorted({self.transport.rank_of(d) for d in devices})

    def read_own(self, name: str) -> Array:
        """This rank's own value of a region that it holds whole: no exchange, and no copy where it may be read."""
        rect = self.region(name).rect
        home = next(i for i, box in self.graph.homes[name] if box.covers(rect) and self._is_here(i))
        return self.memory.get(home, rect)

    def _here(self) -> Iterator[tuple[str, int, Rect]]:
        """Name, instance and box of every home on this rank."""
        for name, homes in self.graph.homes.items():
            yield from (
                (name, instance, rect) for instance, rect in homes if self._is_here(instance)
            )

    def keep(self) -> dict[int, Array]:
        """A copy of all that this rank holds, by instance."""
        return {
            instance: np.array(self.memory.get(instance, rect))
            for _, instance, rect in self._here()
        }

    def restore(self, kept: Mapping[int, Array]) -> None:
        """Give all that this rank holds the values of `keep`; all ranks call it."""
        for _, instance, rect in self._here():
            self.memory.put(instance, rect, kept[instance])
        self.run.changes += 1

    def not_finite(self) -> set[str]:
        """The regions that hold a number which is not finite, on any rank; all ranks call it."""
        floating = [
            (name, i, rect) for name, i, rect in self._here() if self._regions[name].is_floating
        ]
        bad = {name for name, i, rect in floating if not is_finite(self.memory.get(i, rect))}
        return set().union(*self.transport.gather(bad))

    def refresh(self) -> None:
        """Copy in the shared regions that lie elsewhere in the base, if any has changed."""
        if self._base is not None and self._seen != self.run.changes:
            for name in self._loan.stale:
                self._set(name, self._base.read(self._loan.lent(name)))
            self._seen = self.run.changes

    def publish(self) -> None:
        """After a step: copy out what it updated where the base has homes of its own for it."""
        if not self._updated:
            return
        self.run.changes += 1
        self._seen = self.run.changes
        if self._base is not None:
            for name in self._updated:
                if name in self._loan.apart:
                    self._base._store(self._loan.lent(name), self._load(name))

    def _load(self, name: str) -> Array:
        region = self._regions[name]
        value = np.empty(region.shape, region.dtype)
        missing = [region.rect]
        for device, rect in homes_of(self.graph, name):
            for box in [p.intersect(rect) for p in missing if p.overlaps(rect)]:
                value[box.slices()] = self._part(region, device, box)
            missing = [rest for p in missing for rest in p.subtract(rect)]
        return value

    def _part(self, region: LogicalRegion, device: int, box: Rect) -> Array:
        if self.transport.drives(device):
            homes = self.graph.homes[region.name]
            at = self.graph.instance_device
            home = next(i for i, rect in homes if at[i] == device and rect.covers(box))
            part = np.ascontiguousarray(self.memory.get(home, box))
        else:
            part = np.empty(box.shape, region.dtype)
        self.transport.broadcast(part, self.transport.rank_of(device))
        return part

    def _store(self, name: str, value: Array) -> None:
        """Set a region here and, where it has other homes there, in the base."""
        self._set(name, value)
        if self._base is not None and name in self._loan.apart:
            self._base._store(self._loan.lent(name), value)

    def _set(self, name: str, value: Array) -> None:
        for instance, rect in self.graph.homes[name]:
            if self._is_here(instance):
                self.memory.put(instance, rect, value[rect.slices()])


def _updated_regions(graph: TaskGraph) -> list[str]:
    """Names of the persistent regions that a step updates in place, on any device."""
    numbers = {launch.args[k] for launch in graph.launches for k in launch.writes}
    return [r.name for k, r in enumerate(graph.regions) if k in numbers and r.is_persistent]
