"""Execution: replay a task graph, alone or under mpirun.

The executor decides nothing: rows, order and streams come from the task graph, offsets from the memory plan. Under
mpirun rank r drives device r, or a run of devices where the plan has more of them than there are ranks; one process
drives all. One thread of a rank steps; where it has more cores, long points are divided over other threads
(`taskflow.tasks.threads.sections`).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from taskflow.backend import Run, StreamBackend
from taskflow.backend.choices import Choices
from taskflow.checking.checker import check_own_plan
from taskflow.collective.choose import with_own_steps
from taskflow.comm.ending import end_all_leaving, note_phase, phase
from taskflow.comm.held import HeldInterrupt
from taskflow.comm.transport import OneCall, Transport
from taskflow.core import ahead
from taskflow.core.dtypes import HALF
from taskflow.core.garbage import collect_rarely
from taskflow.core.geometry import Rect
from taskflow.core.older import renamed
from taskflow.cost.model import CostModel
from taskflow.cost.samples import warm_up
from taskflow.execute.agreement import (
    check_ranks,
    check_room,
    check_written,
    connect_for,
    kind_of_devices,
)
from taskflow.execute.divide import divide_program
from taskflow.execute.emulate import EmulatedCompiler
from taskflow.execute.expand import expand, expand_plan
from taskflow.execute.feed import FeedValue, accept, by_step, make_cells
from taskflow.execute.guard import GivenUp, StepGuard, UpdateGuard, check_finite
from taskflow.execute.memory import Memory
from taskflow.execute.own import rows_of_host
from taskflow.execute.persistent import PersistentRegions, borrow
from taskflow.execute.program import Compiler
from taskflow.execute.readings import fetch, find_outputs, on_device, times_of_rows, together
from taskflow.execute.shared import SharedCompiler
from taskflow.execute.standing import Standing
from taskflow.tasks.calls import is_by_library
from taskflow.tasks.memory import MemoryPlan, needed_bytes, plan_memory, shortage, with_reuse
from taskflow.tasks.task_graph import Array, TaskGraph
from taskflow.tasks.timeline import Timeline

if TYPE_CHECKING:
    from taskflow.execute.gpu.meeting import Meeting


class Executor:
    """Runs the steps of a task graph; use it as a context manager.

    Args:
        task_graph: from `lower`; the same on every rank, or on every rank the rows of at least its host's devices.
        seed: of initial values and random operators.
        share: another executor whose persistent regions are used instead of own ones (training and evaluation).
        watch: prove the plan (where all rows are there), poison memory, put red zones round it and verify privileges of
            every task (slow). GPUs then capture no graphs, and their scratch memory has no red zones.
        allow_nan: go on when a `loss` or a gradient is not finite; else such a step changes nothing, and raises.
        record: keep the times of every call for `timeline`, which takes 0.2 us a row.
        transport: what carries data between ranks: `shared` memory in place, MPI `messages`, or `auto`: shared memory
            within a host, if it has room, and messages between hosts. On GPUs `shared` is CUDA IPC, there is also
            `nccl`, and `auto` chooses for every pair and every collective (`taskflow.execute.gpu.carriers`).
        costs: how long tasks take on `emulated` devices; default: analytic. On GPUs: which of two kernels for one thing
            is faster; default: what is shipped for the kind of GPU. All ranks take what rank 0 has.
        capture: on `cuda` devices, replay steps as CUDA graphs; not with `record`, for which every row is timed.
        backend: what runs the streams of `cuda` devices; default: that of `share`, else CuPy's.
        job: of the graphs beside each other that `share` runs (`taskflow.beside`), the one whose regions these are.

    Raises:
        ValueError: ranks and devices do not fit, ranks run different graphs, memory is short, or the plan is wrong.
    """

    @renamed("check", "watch")
    @phase("construction")
    def __init__(
        self,
        task_graph: TaskGraph,
        seed: int = 0,
        share: Executor | None = None,
        watch: bool = False,
        allow_nan: bool = False,
        record: bool = False,
        transport: str = "auto",
        costs: CostModel | None = None,
        capture: bool = True,
        backend: StreamBackend | None = None,
        job: str = "",
    ) -> None:
        self.task_graph, self.allow_nan, self.record = task_graph, allow_nan, record
        self._kind = kind_of_devices(task_graph, transport)
        self.transport: Transport = (
            share.transport if share else connect_for(task_graph, self._kind)
        )
        self._alone: OneCall = share._alone if share else self.transport.alone or OneCall()
        check_ranks(task_graph, seed, self.transport)
        if watch and task_graph.is_complete:  # on every rank, since each has columns of its own
            check_own_plan(task_graph)
        # GPUs number flags, and emulated devices what is over, by the rows of all devices.
        needs_all = self._kind != "cpu"
        host_rows, self._numbers = rows_of_host(task_graph, self.transport, needs_all)
        self._host_rows = host_rows
        loan = borrow(host_rows, share._host_rows, self.transport, job) if share else None
        self._borrowed = list(loan.instances) if loan else []
        self.plan = plan_memory(host_rows, self._borrowed)
        check_room(shortage(host_rows, self.plan), self.transport)
        can_share = share is None or share.memory.is_shared
        gpus = None
        if self._kind == "cuda":
            gpus = self._meet(backend, share, transport, can_share, costs)
        self._backend = gpus.backend if gpus else None
        host_rows, calls = self._with_calls(host_rows, gpus.carriers.plans if gpus else ())
        self._expansion = expand(host_rows, calls)
        plan = expand_plan(self.plan, self._expansion)
        rows = with_reuse(self._expansion.task_graph, plan)
        self._rows = rows  # what runs: without collectives
        self._run: Run = share._run if share else Run(int(seed))
        make = gpus.make_memory if gpus else partial(self._make_memory, transport, can_share)
        self.memory: Memory = make(rows, plan).with_counters(task_graph.launches)
        self.regions: PersistentRegions = PersistentRegions(
            host_rows,
            self.memory,
            self.transport,
            self._run,
            share.regions if share else None,
            loan,
        )
        if not gpus:
            self.regions.initialise()  # now: others may read them as soon as a step begins
        # An evaluation is no step of the run.
        self._advances = share is None or self.regions.are_updated
        self._outputs = find_outputs(host_rows, self.transport)
        self._feeds = make_cells(host_rows)
        self._overflows = any(r.dtype in HALF for r in task_graph.regions)
        self._args = rows, plan, self.memory, self.transport, self._feeds, self._run, watch
        self._streamed = (
            gpus.make_compiler(self._expansion.origin, capture, record, self._args)
            if gpus
            else None
        )
        self._row_seconds: Array | None = None
        if self._kind == "emulated":
            costs = costs or CostModel.analytic(task_graph.machine)
            self._row_seconds = costs.of_calls(rows, costs.seconds(rows))
        compiler = self._streamed or self._make_compiler()
        self._crew = compiler.crew
        self._skips, self.is_skipped, self.is_guarded = False, False, not allow_nan and not gpus
        self.guard: StepGuard | None = (
            UpdateGuard.of(rows, self.memory, self.transport) if self.is_guarded else None
        )
        self._compile(compiler)
        if gpus and self._streamed:
            gpus.try_program(self._streamed, is_borrowing=share is not None)
            self.regions.initialise()
            self._guard(not allow_nan)
        self._clocked = getattr(compiler, "replay", None)  # of devices that keep their own time
        self._held = HeldInterrupt(self._can_stop)
        self._next: Mapping[str, FeedValue] | None = None
        self._times: memoryview[float] | None = None
        self._seconds = 0.0
        ahead.withdraw()

    # -- set-up ----------------------------------------------------------------------------------------------------

    def _meet(
        self,
        backend: StreamBackend | None,
        share: Executor | None,
        transport: str,
        can_share: bool,
        costs: CostModel | None,
    ) -> Meeting:
        from taskflow.execute.gpu.meeting import (
            Meeting,
            find_backend,
        )  # who has no GPU need not wait for it

        chosen = find_backend(backend, share._backend if share else None)
        choices = chosen.choices if share else None  # as the lender's kernels are chosen
        if costs is not None and choices is None:
            choices = costs.choices(chosen.name(self.transport.rank))
        return Meeting(self.task_graph, chosen, self.transport, transport, can_share, choices)

    def _with_calls(
        self, host_rows: TaskGraph, planned: Collection[int]
    ) -> tuple[TaskGraph, Collection[int]]:
        """The rows that are calls of a library, and own rows whose other collectives go in steps.

        Emulated devices wait as long as the library would take.
        """
        calls = (
            np.flatnonzero(is_by_library(host_rows)).tolist()
            if self._kind == "emulated"
            else planned
        )
        stepped = with_own_steps(host_rows, calls)
        if host_rows is self.task_graph:
            self.task_graph = stepped
        self._host_rows = stepped
        return stepped, calls

    def _make_memory(
        self, transport: str, can_share: bool, rows: TaskGraph, plan: MemoryPlan
    ) -> Memory:
        memory = Memory(
            rows, plan, self.transport, share_memory=transport != "messages" and can_share
        )
        is_apart = max(self.transport.hosts) > 0 or not memory.is_shared
        if self._kind == "emulated" and self.transport.size > 1 and is_apart:
            raise ValueError(
                f"executor: emulated devices share memory, which transport='{transport}' lacks here"
            )
        return memory

    def _make_compiler(self) -> Compiler:
        """Of devices whose memory is the host's."""
        if self._row_seconds is None:
            return (SharedCompiler if self.memory.is_shared else Compiler)(*self._args)
        compiler = EmulatedCompiler(*self._args)
        compiler.seconds = self._row_seconds
        return compiler

    def _compile(self, compiler: Compiler) -> None:
        compiler.fuses = not self.record
        if isinstance(self.guard, UpdateGuard):
            compiler.guard = self.guard
            compiler.guard_row = self.guard.row
            compiler.notes = self.guard.notes
        with collect_rarely():
            self.program = compiler.compile()
        self._finish = weakref.finalize(self, self.program.close)
        self._finish.atexit = False  # MPI frees all that is left when it ends
        self._standing = Standing(self.program, self._rows, may_wait=self._kind != "cpu")
        if self._kind == "cpu":
            warm_up(self._rows, self.transport.drives, divide_program(compiler, self.program))

    def guard_updates(self, skips: bool = True) -> None:
        """From now on a step whose loss or a gradient is not finite does not raise, and `is_skipped` then says so.

        All ranks call it between steps. Such a step changes nothing but the number of steps; of repeated ones, all of a
        call are given up. Executors that `allow_nan` guard their steps for as long as this is wanted.
        """
        self._skips = skips
        self._guard(skips or not self.allow_nan)

    def _guard(self, is_wanted: bool) -> None:
        """Whether a step that is not finite changes nothing: ranks then agree in every step before its first update."""
        if is_wanted == self.is_guarded:
            return
        self.is_guarded = is_wanted
        if self._streamed:
            from taskflow.execute.gpu.device_guard import guard_updates

            is_any = self.transport.is_any if is_wanted else None
            self.guard = guard_updates(self._streamed, is_any)
            return
        self.guard = UpdateGuard.of(self._rows, self.memory, self.transport) if is_wanted else None
        self._finish()
        self._compile(self._make_compiler())

    @property
    def choices(self) -> Choices:
        """Which kernels run where a library and an own one do the same thing; none but on GPUs."""
        return self._backend.choices if self._backend else Choices()

    def _can_stop(self) -> bool:
        """Whether a step that has begun may end where it is, and change nothing."""
        return not self.regions.are_updated if self.guard is None else self.guard.can_undo

    # -- steps -----------------------------------------------------------------------------------------------------

    def __call__(
        self,
        feeds: Mapping[str, FeedValue] | None = None,
        prefetch: Mapping[str, FeedValue] | None = None,
    ) -> dict[str, Array]:
        """Run one step.

        Args:
            feeds: input name -> array of the whole region, or a function Rect -> array of that box. Where the task
                graph repeats steps: one such value for each, along a leading axis or in a sequence.
            prefetch: the feeds of the next step, which is called without any; GPUs get them while this one runs.

        Returns:
            output name -> array of the whole region, on every rank; of several steps, along a leading axis.

        Raises:
            ValueError: a feed is missing, unknown, or of another shape or dtype, or was given as `prefetch` already;
                or the executor is closed, or in use by another thread.
            FloatingPointError: the loss or a gradient is not finite; nothing has changed.
        """
        with self._alone, self._held:
            return self._step(feeds, prefetch)

    def _step(
        self, feeds: Mapping[str, FeedValue] | None, prefetch: Mapping[str, FeedValue] | None
    ) -> dict[str, Array]:
        if not self._finish.alive:
            raise ValueError("executor: it is closed")
        if feeds is not None and self._next is not None:
            raise ValueError("step: its feeds were given to the last step as `prefetch`")
        self._accept(feeds or self._next or {})
        self._next = prefetch
        if prefetch is not None and self._streamed is not None:
            self._streamed.replay.prefetch = partial(self._stage, prefetch)
        self.regions.refresh()
        self._held.begin()
        is_watched = self._overflows or self.guard is not None  # by loss scaling, or the guard
        with self._crew, np.errstate(all="ignore") if is_watched else nullcontext():
            self._replay()
        step, is_refused = self._run.step, self.is_skipped and not self._skips
        self._run.step += self._advances * self.task_graph.repeat * (not is_refused)
        self.regions.publish()
        values = fetch(self._outputs, self.transport, self._hold)
        if self.task_graph.repeat > 1:
            values = together(values, self.task_graph.repeat)
        self._standing.end()
        if is_refused or not (self.allow_nan or self.is_skipped):
            check_finite(f"step {step}", values, self.guard if is_refused else None, self.transport)
        return values

    def forget_next(self) -> None:
        """The next step is called with feeds, whatever the last one got as `prefetch`."""
        self._next = None
        if self._streamed is not None:
            self._streamed.replay.prefetch = None
            self._streamed.staging.forget()

    def _stage(self, feeds: Mapping[str, FeedValue]) -> None:
        assert self._streamed is not None
        self._accept(feeds)
        self._streamed.staging.stage()

    def _accept(self, feeds: Mapping[str, FeedValue]) -> None:
        repeat = self.task_graph.repeat
        accept(self._feeds.values(), feeds if repeat == 1 else by_step(feeds, repeat))

    def _replay(self) -> None:
        calls = iter(self.program.calls)
        times = self._standing.times
        self.is_skipped = False
        if self.guard is not None:
            self.guard.keep()
        self._standing.begin(self._run.step, None if self.record else calls)
        try:
            if self.record:
                self._times = None
                clock = time.perf_counter
                for k, call in enumerate(calls, 1):
                    call()
                    times[k] = clock()
                self._times = times
            else:
                for call in calls:
                    call()
            self._seconds = time.perf_counter() - times[0]
        except GivenUp:
            self.is_skipped = True
            assert self.guard is not None, "it was raised by the guard"
            with np.errstate(all="ignore"):
                self.guard.give_up(self.program)
        except BaseException as error:
            position = len(self.program.calls) - length_hint(calls) - 1
            step = self._run.step
            if self.guard is not None:
                self.guard.undo(self.program, position)
            what = self.program.roles[position]
            if len(self._rows):
                what += f" of task {self._rows[self.program.rows[position]]}"
            error.add_note(f"in step {step} on rank {self.transport.rank}, {what}")
            note_phase(error, f"step {step}, {what}")
            if isinstance(error, SystemExit):
                end_all_leaving(error, is_alone=True)
            self._standing.end()
            raise

    def _hold(self, instance: int, rect: Rect) -> Array:
        """An output after a step, in the host's memory."""
        return (
            self._streamed.outputs[instance] if self._streamed else self.memory.view(instance, rect)
        )

    # -- persistent regions ----------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Number of finished steps."""
        return self._run.step

    @property
    def seed(self) -> int:
        """The seed of initial values and random operators."""
        return self._run.seed

    def continue_from(self, steps: int, seed: int) -> None:
        """Go on as a run with this seed does after so many steps; its persistent regions are to be written, too."""
        self._run.step, self._run.seed = steps, seed

    @property
    def persistent(self) -> list[str]:
        """Names of the regions that can be read and written."""
        return self.regions.names

    def read(self, name: str) -> Array:
        """The whole value of a persistent region, on every rank; all ranks call it.

        Raises:
            ValueError: the graph has no persistent region of this name.
        """
        with self._alone:
            return self.regions.read(name)

    def write(self, name: str, value: Array | float) -> None:
        """Set a persistent region; all ranks call it, and each gives the whole value.

        Raises:
            ValueError: the graph has no persistent region of this name, the shape differs, the region's dtype cannot
                hold the numbers, or ranks give different ones.
        """
        with self._alone:
            check_written(name, self.regions.cast(name, value), self.transport)
            self.regions.write(name, value)

    def on_device(self, name: str) -> Array:
        """A persistent region, or an output, where it lies on this rank: for DLPack; see `readings.on_device`."""
        with self._alone:
            return on_device(self._host_rows, self.memory, name)

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
        if self._times is None:
            raise ValueError("timeline: no recorded step has run; Executor(record=True) records")
        start, end = self._times_of_rows()
        times = np.full((2, len(self.task_graph)), np.nan)
        seconds = (
            float(np.nanmax(end, initial=0.0))
            if self._clocked
            else self._times[-1] - self._times[0]
        )
        row = self._numbers[self._expansion.origin]
        np.fmin.at(times[0], row, start)
        np.fmax.at(times[1], row, end)
        plan = self._plan_of_all
        rows = with_reuse(self.task_graph, plan)
        return Timeline(rows, times[0], times[1], seconds, needed_bytes(self.task_graph, plan))

    @cached_property
    def _plan_of_all(self) -> MemoryPlan:
        """The memory plan of all rows of the task graph; `plan` is that of this host's."""
        is_own = self._host_rows is self.task_graph
        return self.plan if is_own else plan_memory(self.task_graph, self._borrowed)

    def _times_of_rows(self) -> tuple[Array, Array]:
        """Start and end of every row that runs."""
        if self._clocked:
            return self._clocked.start, self._clocked.end
        return times_of_rows(self.program, self._times or (), len(self._rows))

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, SystemExit):
            end_all_leaving(error)
        self.close()

    def close(self) -> None:
        """Forget the program, also what MPI holds for it; regions stay readable until the executor is dropped."""
        self._finish()
