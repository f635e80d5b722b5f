"""Rehearsal: the rows of a task graph timed as they run in a step, before there is one.

A kernel that is timed alone, again and again, finds its data and its code in the cache and the memory to itself. In a
step it does not: on two cores that share both, steps took up to 40 % longer than the sum of such times. So here every
rank makes the calls of its rows one after the other in their order, all ranks at the same time, compiled as the
executor compiles them, in memory that is laid out by the same plan but is not the executor's. How an array lies
matters: a call on a part of a wider array took 1.6 times as long as on one of its own, and arrays that begin alike in
their pages 1.3 times. So does whose it is: ranks that share memory read each other's, as they do in a step, since what
another core has just written, or read, is not in one's own cache alone. Where ranks exchange much, rows took 5 to 10 %
longer than with arrays of zeros in its place, and steps of a transformer 9 % longer than predicted instead of 3 %. What
a rehearsal leaves out is what the simulation is for: dependences, waiting and whatever overlaps.

The times of a row vary, and where ranks wait for each other, each step takes the longest. So every round is simulated,
not only what they have in common.

All ranks call it and learn the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from taskflow.backend import Run
from taskflow.comm.transport import Transport, connect
from taskflow.cost.model import MeasuredCosts
from taskflow.cost.samples import sample_array
from taskflow.execute.divide import divide_program
from taskflow.execute.expand import expand, expand_plan
from taskflow.execute.feed import Feed, make_cells
from taskflow.execute.memory import Memory
from taskflow.execute.persistent import PersistentRegions
from taskflow.execute.program import RankProgram
from taskflow.execute.shared import UnawaitedCompiler
from taskflow.simulation.simulate import schedule
from taskflow.tasks.memory import needed_bytes, plan_memory, with_reuse
from taskflow.tasks.task_graph import Array, Kind, TaskGraph
from taskflow.tasks.threads.crew import crew

_log = logging.getLogger(__name__)

ROUNDS = 15
FEWEST = 5  # rounds, however long they take
LONG_SECONDS = 1.0  # of the rounds of a rehearsal
SHORT_SECONDS = 0.03  # of a pass that is made twice: a step finds in the cache what the one before has left there


def rehearse(
    costs: MeasuredCosts,
    *task_graphs: TaskGraph,
    rounds: int = ROUNDS,
    is_late: Callable[[], bool] = lambda: False,
) -> list[TaskGraph]:
    """Let `costs` learn the seconds of the rows of task graphs.

    They take turns, so that what slows the machine down for a while slows all of them.

    Args:
        costs: what learns.
        task_graphs: those whose rehearsals fit into memory are rehearsed, as many at a time as fit together.
        rounds: of each; FEWEST if they take long.
        is_late: asked on rank 0; if so, no further rehearsal is made, and those that are made end soon.

    Returns:
        What was rehearsed: the first that fits, whatever `is_late` says.
    """
    done: list[TaskGraph] = []
    for group in _groups([rows for rows in task_graphs if can_rehearse(rows)]):
        rehearsals: list[Rehearsal] = []
        for task_graph in group:
            if not (done or rehearsals) or not connect().on_rank_0(is_late):
                rehearsals.append(Rehearsal(task_graph))
        turns = _take_turns([rehearsal.time_rows for rehearsal in rehearsals], rounds, is_late)
        for rehearsal, times in zip(rehearsals, turns, strict=True):
            _learn(costs, rehearsal.task_graph, times)
            done.append(rehearsal.task_graph)
    return done


def rehearse_own(
    costs: MeasuredCosts,
    own_rows: TaskGraph,
    whole: Callable[[], TaskGraph],
    rounds: int = ROUNDS,
) -> None:
    """Let `costs` learn on rank 0 the seconds of all rows, of which every rank has those of its host's devices.

    Args:
        costs: what learns.
        own_rows: of this rank's host.
        whole: makes all rows, on rank 0.
        rounds: see `rehearse`.
    """
    transport = connect()
    if transport.is_any(not can_rehearse(own_rows)):
        return
    (times,) = _take_turns([Rehearsal(own_rows).time_own], rounds, lambda: False)
    by_rank = transport.gather((own_rows.numbers, times))
    if transport.rank == 0:
        rows = whole()
        seconds = np.zeros((len(times), len(rows)))
        for numbers, mine in by_rank:
            seconds[:, numbers] += mine
        complete_seconds(rows, seconds, transport)
        _learn(costs, rows, seconds)


def _learn(costs: MeasuredCosts, rows: TaskGraph, rounds: Array) -> None:
    """Of rows, whose seconds in every round are given."""
    waiting = with_reuse(rows, plan_memory(rows))
    costs.learn(rows, typical_seconds(waiting, rounds))


def _groups(task_graphs: Sequence[TaskGraph]) -> Iterator[list[TaskGraph]]:
    """Those that follow each other whose arenas fit into memory together, beside the largest of an executor."""
    group: list[TaskGraph] = []
    for task_graph in task_graphs:
        peaks = np.array([needed_bytes(rows, plan_memory(rows)) for rows in [*group, task_graph]])
        memory = [d.memory_bytes for d in task_graph.machine.devices]
        if group and np.any(peaks.sum(axis=0) + peaks.max(axis=0) > memory):
            yield group
            group = []
        group.append(task_graph)
    if group:
        yield group


def _take_turns(
    timers: Sequence[Callable[[int], Array]], rounds: int, is_late: Callable[[], bool]
) -> list[Array]:
    """Seconds of the rows of each rehearsal, (rounds, rows), by what times some rounds of it."""
    turns = list[list[Array]]()
    end = time.perf_counter() + LONG_SECONDS * len(timers)
    while len(turns) < rounds and not (
        len(turns) >= FEWEST and connect().on_rank_0(lambda: is_late() or time.perf_counter() > end)
    ):
        turns.append([take(1) for take in timers])
    return [np.concatenate(times) for times in zip(*turns, strict=True)]


def can_rehearse(task_graph: TaskGraph) -> bool:
    """Whether every device has room for two arenas, one of an executor and one of a rehearsal; GPUs have none.

    What a GPU does at a time is one kernel, mostly, which has its memory to itself, as it has when it is timed alone.
    """
    if any(d.kind == "cuda" for d in task_graph.machine.devices):
        return False
    peak_bytes = needed_bytes(task_graph, plan_memory(task_graph))
    fits = all(
        2 * size <= d.memory_bytes
        for size, d in zip(peak_bytes, task_graph.machine.devices, strict=True)
    )
    if not fits:
        _log.info("no rehearsal: its arenas would take %s bytes", peak_bytes.tolist())
    return fits


class Rehearsal:
    """The calls of this rank's rows, bound to memory of their own, which is as much as an executor takes."""

    def __init__(self, task_graph: TaskGraph) -> None:
        self.task_graph = task_graph
        self._transport = connect().over(task_graph.devices_used)
        self._program = _compile(task_graph, self._transport)
        _time_all(self._program.calls)  # compiled, and their memory touched
        self._is_short = _time_all(self._program.calls).sum() < SHORT_SECONDS

    def time_rows(self, rounds: int) -> Array:
        """Seconds of every row in every round, (rounds, rows), the same on all ranks; see `complete_seconds`."""
        seconds: Array = sum(self._transport.gather(self.time_own(rounds)))
        complete_seconds(self.task_graph, seconds, self._transport)
        return seconds

    def time_own(self, rounds: int) -> Array:
        """Seconds of the calls of this rank, by row, in every round; all ranks call it."""
        mine = np.zeros((rounds, len(self.task_graph)))
        for number in range(rounds):
            if self._is_short:
                _time_all(self._program.calls)
            self._transport.barrier()
            np.add.at(mine[number], self._program.rows, _time_all(self._program.calls))
        return mine


def complete_seconds(graph: TaskGraph, seconds: Array, transport: Transport) -> None:
    """Add what calls do not take, to the seconds of all rows, (rounds, rows).

    A transfer takes the latency of its link, and its copy where no fold makes it. NaN for collectives and for transfers
    between hosts: what many do together, and what a network does, has a formula.
    """
    seconds += graph.machine.ways.latency(graph.source, graph.device) * graph.is_transfer
    ranks = transport.over(graph.devices_used).ranks_of(len(graph.machine.devices))
    host = np.array(transport.hosts)[ranks]
    is_between = graph.is_transfer & (host[graph.source] != host[graph.device])
    seconds[:, is_between | (graph.kind == Kind.COLLECTIVE)] = np.nan


def typical_seconds(task_graph: TaskGraph, rounds: Array) -> Array:
    """Seconds of every row in an ordinary step, given those of every round.

    Medians row by row, all made longer by one factor, with which a step takes as long as the median of the simulated
    rounds. In every step something is slower than usual, now one row, now another, which medians leave out; where
    ranks wait for each other, the slower one counts. Together that is 5 to 10 % of a step here.
    """
    medians = np.median(rounds, axis=0)
    steps = [schedule(task_graph, np.nan_to_num(seconds))[2] for seconds in rounds]
    usual = schedule(task_graph, np.nan_to_num(medians))[2]
    typical: Array = medians * (np.median(steps) / usual if usual else 1.0)
    return typical


def _compile(task_graph: TaskGraph, transport: Transport) -> RankProgram:
    """The calls of this rank's rows, with the rows of `task_graph` that they belong to."""
    expansion = expand(task_graph)
    rows = expansion.task_graph
    plan = expand_plan(plan_memory(task_graph), expansion)
    run = Run()
    memory = Memory(rows, plan, transport, share_memory=transport.size > 1)
    _set_apart(memory)
    PersistentRegions(task_graph, memory, transport, run).initialise()
    compiler = UnawaitedCompiler(rows, plan, memory, transport, _sample_feeds(rows), run, False)
    program = compiler.compile()
    divide_program(compiler, program)
    program.rows = expansion.origin[program.rows].tolist()
    return program


def _sample_feeds(rows: TaskGraph) -> dict[int, Feed]:
    return {
        number: replace(cell, value=sample_array(cell.shape, cell.dtype))
        for number, cell in make_cells(rows).items()
    }


def _set_apart(memory: Memory) -> None:
    """Give what other ranks hold out of reach, and what is no floating-point number, arrays of its own: of zeros.

    Nobody sends anything in a rehearsal, and an index must be a legal one where the arena holds other things. Where
    ranks share memory, what they read of each other are any numbers: those of this round or of the one before.
    """
    graph = memory.task_graph
    here = list(memory.arenas)
    is_used = np.isin(graph.device, here) | np.isin(graph.source, here)
    used = np.unique(graph.arg_instance[np.repeat(is_used, np.diff(graph.arg_ptr))])
    for instance in used[used >= 0].tolist():
        region = int(graph.instance_region[instance])
        dtype = np.dtype(graph.regions[region].dtype)
        if int(graph.instance_device[instance]) not in here or dtype.kind != "f":
            memory.bind(instance, _zeros(graph, instance, dtype))


def _zeros(graph: TaskGraph, instance: int, dtype: np.dtype[Any]) -> Array:
    """Touched, unlike those of `np.zeros`; in the order in which the instance lies in memory."""
    order = graph.order(int(graph.instance_region[instance]))
    shape = graph.instance_rect(instance).shape
    return np.full([shape[d] for d in order], 0, dtype).transpose(np.argsort(order))


def _time_all(calls: Iterable[Callable[[], object]]) -> Array:
    """Seconds of every call, made one after the other."""
    clock = time.perf_counter
    times = [time.perf_counter()]
    with crew(), np.errstate(all="ignore"):  # what is updated again and again may overflow
        for call in calls:
            call()
            times.append(clock())
    return np.diff(times)
