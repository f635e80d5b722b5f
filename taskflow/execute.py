"""Execution: replay a task graph, alone or under mpirun.

The executor decides nothing: rows, order and streams come from the task graph, offsets from the memory plan. Under
mpirun rank r drives device r; one process drives all devices. Each rank runs one thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from operator import length_hint
from types import TracebackType
from typing import Any

import numpy as np

from taskflow.backend import Run
from taskflow.comm import LocalTransport, Transport, connect
from taskflow.geometry import Rect
from taskflow.memory import check_memory, plan_memory
from taskflow.program import Feed, Memory, compile_program
from taskflow.random import fill, random_key
from taskflow.region import LogicalRegion
from taskflow.task import Array, Kind, TaskGraph
from taskflow.timeline import Timeline

FeedValue = Array | Callable[[Rect], Array]

_log = logging.getLogger(__name__)


class Executor:
    """Runs the steps of a task graph; use it as a context manager.

    Args:
        task_graph: from `lower`; the same on every rank.
        seed: of initial values and random operators.
        share: another executor whose persistent regions are used instead of own ones (training and evaluation).
        check: poison memory and verify privileges of every task (slow).
        allow_nan: go on when a fetched `loss` is not finite.
        record: keep the times of every call for `timeline`.

    Raises:
        ValueError: ranks and devices do not fit, ranks run different graphs, or a device's memory is too small.
    """

    def __init__(
        self,
        task_graph: TaskGraph,
        seed: int = 0,
        share: Executor | None = None,
        check: bool = False,
        allow_nan: bool = False,
        record: bool = True,
    ) -> None:
        self.task_graph = task_graph
        self.transport: Transport = connect()
        self.allow_nan, self.record = allow_nan, record
        self._check_ranks()
        self.plan = plan_memory(task_graph)
        check_memory(task_graph, self.plan)
        self._base = share
        self._run: Run = share._run if share else Run(seed)
        self._base_steps = -1
        self.memory = Memory(task_graph, self.plan, self.transport)
        self._stale = self._adopt(share) if share else []
        self._regions = {r.name: (k, r) for k, r in enumerate(task_graph.regions)}
        self._feeds = {k: Feed() for k, r in enumerate(task_graph.regions) if r.role == "input"}
        fed = np.flatnonzero(task_graph.kind == Kind.FEED)
        self._fed = {int(k) for k in task_graph.region[fed]}
        self.program = compile_program(
            task_graph,
            self.plan,
            self.memory,
            self.transport,
            self._feeds,
            self._run,
            check,
        )
        self._times: list[float] = []
        self._seconds = 0.0
        if share is None:
            self._initialise()

    # -- set-up ----------------------------------------------------------------------------------------------------

    def _check_ranks(self) -> None:
        transport, used = self.transport, self.task_graph.devices_used
        if transport.size > 1 and used and max(used) >= transport.size:
            raise ValueError(
                f"executor: the strategy uses {len(used)} devices up to number {max(used)}, "
                f"mpirun started {transport.size} ranks"
            )
        digests = transport.gather(self.task_graph.digest())
        for rank, digest in enumerate(digests):
            if digest != digests[0]:
                raise ValueError(f"executor: rank {rank} runs another task graph ({digest}) than rank 0 ({digests[0]})")

    def _initialise(self) -> None:
        """First values: functions of (seed, region name, global index)."""
        for _, region, instance, rect in self._homes():
            key = random_key(self._run.seed, region.name)
            fill(self.memory.view(instance, rect), region.init, key, region.shape, rect)

    def _homes(self) -> list[tuple[int, LogicalRegion, int, Rect]]:
        """Device, region, instance and box of the homes on this rank."""
        by_name = {r.name: r for r in self.task_graph.regions}
        return [
            (device, by_name[name], instance, rect)
            for name, homes in self.task_graph.homes.items()
            for instance, rect in homes
            if self.transport.drives(device := int(self.task_graph.instance_device[instance]))
        ]

    def _adopt(self, base: Executor) -> list[str]:
        """Bind homes to the memory of `base` where it holds them on the same device; gives the names of the others."""
        stale: dict[str, None] = {}
        for name, homes in self.task_graph.homes.items():
            if name not in base.task_graph.homes:
                raise ValueError(f"executor: the shared executor has no region '{name}'")
            for instance, rect in homes:
                device = int(self.task_graph.instance_device[instance])
                found = next(
                    (
                        (i, r)
                        for i, r in base.task_graph.homes[name]
                        if base.task_graph.instance_device[i] == device
                        and r.covers(self.task_graph.instance_rect(instance))
                    ),
                    None,
                )
                if found is None:
                    stale[name] = None
                elif self.transport.drives(device):
                    box = self.task_graph.instance_rect(instance)
                    self.memory.bind(instance, base.memory.view(found[0], box))
        return list(stale)

    # -- steps -----------------------------------------------------------------------------------------------------

    def __call__(self, feeds: Mapping[str, FeedValue] | None = None) -> dict[str, Array]:
        """Run one step.

        Args:
            feeds: input name -> array of the whole region, or a function Rect -> array of that box.

        Returns:
            output name -> array of the whole region, on every rank.

        Raises:
            ValueError: a feed is missing, unknown, or of another shape or dtype.
            FloatingPointError: the loss is not finite.
        """
        self._accept(feeds or {})
        if self._stale:
            self._refresh()
        self._replay()
        self._run.step += self._base is None
        values = self._fetch()
        loss = values.get("loss")
        if loss is not None and not self.allow_nan and not np.all(np.isfinite(loss)):
            raise FloatingPointError(f"step {self._run.step - 1}: the loss is {loss}")
        return values

    def _accept(self, feeds: Mapping[str, FeedValue]) -> None:
        for name in feeds:
            if name not in self._regions or self._regions[name][1].role != "input":
                raise ValueError(f"feed '{name}': the graph has no input of this name")
        for number in self._feeds:
            region = self.task_graph.regions[number]
            if region.name not in feeds:
                if number in self._fed:
                    raise ValueError(f"feed '{region.name}': is missing")
                continue
            value = feeds[region.name]
            if not callable(value):
                value = np.asarray(value)
                if value.shape != region.shape:
                    raise ValueError(f"feed '{region.name}': has shape {value.shape}, the region {region.shape}")
                if value.dtype != region.dtype:
                    raise ValueError(f"feed '{region.name}': has dtype {value.dtype}, the region {region.dtype}")
            self._feeds[number].value = value

    def _replay(self) -> None:
        calls = iter(self.program.calls)
        begin = time.perf_counter()
        try:
            if self.record:
                clock, times = time.perf_counter, [time.perf_counter()]
                for call in calls:
                    call()
                    times.append(clock())
                self._times = times
            else:
                for call in calls:
                    call()
            self._seconds = time.perf_counter() - begin
        except Exception as error:
            position = len(self.program.calls) - length_hint(calls) - 1
            error.add_note(self._where(position))
            raise

    def _where(self, position: int) -> str:
        row = self.program.rows[position]
        return (
            f"in step {self._run.step} on rank {self.transport.rank}, {self.program.roles[position]} of task "
            f"{self.task_graph[row]}"
        )

    def _fetch(self) -> dict[str, Array]:
        values = {}
        for name, places in self.task_graph.fetches.items():
            mine = next((p for p in places if self.transport.drives(p[0])), None)
            rect = places[0][2]
            if mine is not None:
                value = self.memory.view(mine[1], rect).copy()
            else:
                region = self.task_graph.regions[int(self.task_graph.instance_region[places[0][1]])]
                value = np.empty(region.shape, region.dtype)
            if self.transport.size > len(places):
                self.transport.broadcast(value, places[0][0])
            values[name] = value
        return values

    # -- persistent regions ----------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Number of finished steps."""
        return self._run.step

    @property
    def persistent(self) -> list[str]:
        """Names of the regions that can be read and written."""
        return list(self.task_graph.homes)

    def read(self, name: str) -> Array:
        """The whole value of a persistent region, on every rank; all ranks call it.

        Raises:
            ValueError: the graph has no persistent region of this name.
        """
        region = self._persistent(name)
        value = np.empty(region.shape, region.dtype)
        missing = [region.rect]
        for instance, rect in self.task_graph.homes[name]:
            device = int(self.task_graph.instance_device[instance])
            for piece in [p.intersect(rect) for p in missing if p.overlaps(rect)]:
                value[piece.slices()] = self._piece(region, instance, device, piece)
            missing = [rest for p in missing for rest in p.subtract(rect)]
        return value

    def _piece(self, region: LogicalRegion, instance: int, device: int, piece: Rect) -> Array:
        if self.transport.drives(device):
            part = np.ascontiguousarray(self.memory.view(instance, piece))
        else:
            part = np.empty(piece.shape, region.dtype)
        self.transport.broadcast(part, device)
        return part

    def write(self, name: str, value: Array | float) -> None:
        """Set a persistent region; every rank gives the whole value.

        Raises:
            ValueError: the graph has no persistent region of this name, or the shape differs.
        """
        region = self._persistent(name)
        value = np.asarray(value)
        if value.shape != region.shape:
            raise ValueError(f"write '{name}': the value has shape {value.shape}, the region {region.shape}")
        for instance, rect in self.task_graph.homes[name]:
            if self.transport.drives(int(self.task_graph.instance_device[instance])):
                self.memory.view(instance, rect)[...] = value[rect.slices()]

    def _persistent(self, name: str) -> LogicalRegion:
        if name not in self.task_graph.homes:
            raise ValueError(f"region '{name}': the graph has no persistent region of this name")
        return self._regions[name][1]

    def _refresh(self) -> None:
        """Copy the shared regions that lie elsewhere in the other executor, once after each of its steps."""
        assert self._base is not None
        if self._base_steps != self._base.steps:
            for name in self._stale:
                self.write(name, self._base.read(name))
            self._base_steps = self._base.steps

    # -- reports ---------------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Measured seconds of the last step on this rank (0 before the first)."""
        return self._seconds

    @property
    def timeline(self) -> Timeline:
        """The measured Timeline of the last step: rows of this rank, NaN for the others.

        Raises:
            ValueError: no step has run, or `record` is off.
        """
        if not self._times:
            raise ValueError("timeline: no recorded step has run")
        start, end = np.full(len(self.task_graph), np.nan), np.full(len(self.task_graph), np.nan)
        origin = self._times[0]
        for k, row in enumerate(self.program.rows):
            begun, done = self._times[k] - origin, self._times[k + 1] - origin
            if self.program.roles[k] in ("run", "send"):
                start[row] = begun
            elif np.isnan(start[row]) and self.program.roles[k] == "wait":
                start[row] = begun
            if self.program.roles[k] != "post":
                end[row] = done
        return Timeline(self.task_graph, start, end, self._times[-1] - origin, self.plan.peak_bytes)

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget the program; regions stay readable until the executor is dropped."""
        if isinstance(self.transport, LocalTransport):
            return
        _log.debug("rank %d closes", self.transport.rank)
