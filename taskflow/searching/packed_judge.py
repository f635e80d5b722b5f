"""The judge of changes: what differs from a strategy in a few operators -> seconds, by which a walk ranks.

It holds one current strategy, as fragments of a pool of packed rows. `propose_all` judges one like it, from the first
span of rows that changed and only as far as it may still be accepted; `accept` moves there. A proposal that is not
accepted leaves no trace.
No proposal has a memory plan, and waits for memory are left out; links are shared by `core.start_rule`. What `simulate`
says, with a memory plan, its waits, and links that are shared fairly, `judge` asks of strategies as a whole.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.errors import CostError
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.searching.layout import constants, lay_out, lifetimes
from taskflow.searching.pool import HELD_BYTES, OBJECT_BYTES, Pool
from taskflow.searching.resimulate import LAID, SLACK, Timed, change_work, pass_rows
from taskflow.strategy.strategy import (
    ParallelConfig,
    Strategy,
    check_config,
    check_strategy,
    completed,
    effective_config,
)
from taskflow.tasks.memory import FEED_BLOCKS


@dataclass
class Chosen:
    """A strategy in numbers; -1 where there is none yet.

    Attributes:
        named: operators that have a configuration of their own although they follow another, by number.
        points, rows: per operator the number of its points in a `PointStore`, and of their rows in a pool.
        fragment: per region the number of its fragment in a pool.
        used: the devices of every job, in the order in which operators name them.
        ops, regions: those that are other than in the current strategy.
        missing, new: regions whose fragments are to be made, and what these depend on, with their numbers.
        work: seconds that every stream has to do.
        timed: its rows.
    """

    named: Mapping[int, str]
    points: Array
    rows: Array
    fragment: Array
    used: tuple[tuple[int, ...], ...]
    work: Array
    timed: Timed
    ops: Array
    regions: Array
    missing: list[int] = field(default_factory=list)
    new: dict[Hashable, int] = field(default_factory=dict)


class PackedJudge:
    """Holds one current strategy. `propose_all` judges changes of it, `accept` makes them.

    Infinite seconds mean: illegal, slower than the limit, or more than the memory of a device as far as a quick look
    can tell, which takes all instances of a region to live as long as the region does: peaks of memory plans were found
    within 1 % of that. What seems to need no more than the strategy that it was started with is let pass.

    Args:
        is_roomy: memory is no limit.
        lowering: of the graph; default: one of its own.

    Attributes:
        strategy: the current one.
        refusal: the rule that the last illegal change broke.
        followers: operator -> the numbers of those that have its configuration, its own first.
        touching: per region the operators whose points decide what moves; none: nothing does.
    """

    def __init__(
        self,
        graph: Graph,
        machine: MachineModel,
        costs: CostModel,
        is_roomy: bool = False,
        lowering: Lowering | None = None,
    ) -> None:
        self.graph = graph
        self.machine = machine
        self.costs = costs
        self.refusal = ""
        self._known = {op.name: op for op in graph.operators}
        self.followers = {op.name: [number] for number, op in enumerate(graph.operators)}
        for number, op in enumerate(graph.operators):
            if op.follows:
                self.followers[op.follows].append(number)
        self._has_staging = np.array([d.kind == "cuda" for d in machine.devices])
        self._capacity = np.array([math.inf if is_roomy else d.free_bytes for d in machine.devices])
        self._allowed = self._capacity
        self._most_bytes = HELD_BYTES
        self.strategy = Strategy({})
        self._fill(lowering or Lowering(graph, machine))

    def _fill(self, lowering: Lowering) -> None:
        """An empty pool and no current strategy."""
        self.lowering = lowering
        self.pool = Pool(lowering, self.costs)
        self.layout = lay_out(lowering)
        self._lifetimes = lifetimes(lowering)
        self._prepared: dict[object, tuple[ParallelConfig, Array]] = {}
        self._index(lowering)
        self.current = self._nothing_chosen()
        self._proposed: tuple[Mapping[str, ParallelConfig], Chosen] | None = None

    def _index(self, lowering: Lowering) -> None:
        """Who is like whom, and which regions an operator touches."""
        kinds = list(zip(lowering.op_kind, lowering.cost_kind, strict=True))
        # operators with the same have the same points and rows, and so have those that follow them
        self._alike = {name: tuple(kinds[op] for op in ops) for name, ops in self.followers.items()}
        self._region_kind = list(zip(lowering.dtype_kind, lowering.life_kind, strict=True))
        idle = {*constants(lowering.lives)}
        self._job = lowering.mover.table.region["job"].tolist()
        self._by_used = idle | lowering.fetched
        self.touching = [() if k in idle else life.ops for k, life in enumerate(lowering.lives)]
        self._regions: list[list[int]] = [[] for _ in lowering.operators]
        for region, ops in enumerate(self.touching):
            for op in ops:
                self._regions[op].append(region)
        self._is_here = np.array([not region.is_on_host for region in lowering.regions])
        self._fed = [lowering.number[region.name] for region in self.graph.inputs]

    def _nothing_chosen(self) -> Chosen:
        numbers = np.full(len(self._regions), -1)
        none = np.zeros(0, np.int64)
        timed = Timed(np.zeros(len(self.layout.span), LAID), np.zeros(0))
        fragment = np.full(len(self.touching), -1)
        work = np.zeros(self.pool.sets.count)
        return Chosen({}, numbers, numbers, fragment, (), work, timed, none, none)

    def start(self, strategy: Strategy) -> float:
        """Make `strategy` the current one; its seconds. It may need too much memory, but it has to be legal."""
        self._forget()
        seconds = self._start(strategy)
        self._allowed = np.maximum(self._capacity, self._needed(self.current))
        return seconds

    def _start(self, strategy: Strategy) -> float:
        chosen = self._read(strategy.copy())
        seconds = self._simulate(chosen, math.inf)
        self._proposed = strategy.copy(), chosen
        self.accept()
        return seconds

    def propose_all(self, changes: Mapping[str, ParallelConfig], limit: float = math.inf) -> float:
        """Seconds of the current strategy with other configurations of some operators.

        What is slower than `limit` is given up early: then the result is infinite.
        """
        return self._try(lambda: self._judge(changes, limit), math.inf)

    def is_slower(self, strategy: Strategy, limit: float) -> bool:
        """Whether a strategy takes longer than the limit, if memory were none; what is illegal does not."""
        return self._try(lambda: self._simulate(self._read(strategy.copy()), limit), 0.0) > limit

    def _try(self, judge: Callable[[], float], illegal: float) -> float:
        """Seconds of a proposal; those of one that is illegal, or has too many rows for the memory here, are given."""
        self._forget()
        try:
            return judge()
        except CostError:
            raise
        except (ValueError, MemoryError) as error:
            self.refusal = str(error)
            return illegal

    def accept(self) -> None:
        """Make the strategy that was proposed last the current one."""
        assert self._proposed is not None, "nothing was proposed, or it was refused"
        changes, self.current = self._proposed
        if isinstance(changes, Strategy):
            self.strategy = completed(self.graph, changes)
        else:
            self.strategy.update(changes)
        self._proposed = None

    def _forget(self) -> None:
        """Forget what was proposed; and if it has become much, all but the current strategy."""
        self._proposed = None
        self.pool.drop()
        if self._held_bytes <= self._most_bytes:
            return
        self._most_bytes = -1  # if this is interrupted, it is done once more
        self._fill(Lowering(self.graph, self.machine))
        if len(self.strategy):
            self._start(self.strategy)
        self._most_bytes = max(HELD_BYTES, 2 * self._held_bytes)

    @property
    def _held_bytes(self) -> int:
        lowered = self.lowering.store.size_bytes + self.lowering.kinds.size_bytes
        return self.pool.size_bytes + lowered + OBJECT_BYTES * len(self._prepared)

    # -- what changes --------------------------------------------------------------------------------------------------

    def _read(self, changes: Mapping[str, ParallelConfig]) -> Chosen:
        """What changes make of the current strategy: a `Strategy` is one as a whole.

        Raises:
            ValueError: an operator cannot be split so.
        """
        now = self.current
        named = now.named
        if isinstance(changes, Strategy):
            check_strategy(self.graph, changes, len(self.machine.devices))
            named = {}
            changes = completed(self.graph, changes)
        followers = {self.followers[name][0]: name for name in changes if self._known[name].follows}
        chosen = replace(
            now,
            named={**named, **followers},
            points=now.points.copy(),
            rows=now.rows.copy(),
            fragment=now.fragment.copy(),
            missing=[],
            new={},
        )
        for name, config in changes.items():
            self._configure(chosen, name, config)
        self._settle_additions(chosen, changes)
        chosen.ops = np.flatnonzero(chosen.points != now.points)
        self._find_fragments(chosen)
        return chosen

    def _configure(self, chosen: Chosen, name: str, config: ParallelConfig) -> None:
        """Give an operator a configuration, and those that follow it and have none of their own."""
        ops = np.array(self.followers[name])
        columns = self.columns(name, config)
        if chosen.named:
            kept = [chosen.named.get(op, name) == name for op in ops.tolist()]
            ops = ops[kept]
            columns = columns[:, kept]
        chosen.points[ops], chosen.rows[ops] = columns

    def columns(self, name: str, config: ParallelConfig) -> Array:
        """(2, n): of the operators that follow `name`, the numbers of their points and of the rows."""
        key = self._alike[name], id(config)
        if key not in self._prepared:
            check_config(self._known[name], config, len(self.machine.devices))
            ops = self.followers[name]
            numbers = self.lowering.store.numbers(ops, config)
            rows = self.pool.add_points(ops, numbers)
            self._prepared[key] = config, np.array([numbers, rows], np.int64)
        return self._prepared[key][1]

    def _settle_additions(self, chosen: Chosen, changes: Mapping[str, ParallelConfig]) -> None:
        """Additions add partial results, or do so no longer."""
        lowering = self.lowering
        points = chosen.points
        touched = lowering.additions.behind(np.flatnonzero(points != self.current.points).tolist())
        strategy = ChainMap({**changes}, self.strategy.data)
        for op in touched:
            config, _ = effective_config(lowering.operators[op], strategy)
            number = lowering.store.number(op, config)
            points[op] = lowering.additions.number(op, number, points)
        chosen.rows[touched] = self.pool.add_points(touched, points[touched].tolist())

    def _find_fragments(self, chosen: Chosen) -> None:
        """The numbers of its fragments, those that are to be made among them."""
        points = chosen.points.tolist()
        first = self.pool.fragments
        chosen.used = tuple(self._used(chosen.points[ops].tolist()) for ops in self.lowering.jobs)
        regions = {region for op in chosen.ops.tolist() for region in self._regions[op]}
        if chosen.used != self.current.used:
            regions |= self._by_used
        for region in sorted(regions):
            key = self.key(region, points, chosen.used)
            number = self.pool.known.get(key, -1)
            if number < 0:
                number = chosen.new.setdefault(key, first + len(chosen.new))
                if number == first + len(chosen.missing):
                    chosen.missing.append(region)
            chosen.fragment[region] = number
        chosen.regions = np.flatnonzero(chosen.fragment != self.current.fragment)

    def key(self, region: int, points: Sequence[int], used: Sequence[Sequence[int]]) -> Hashable:
        """What its fragment depends on: its life, its operators' points and, where it is fetched, who fetches it."""
        of_points = tuple([points[op] for op in self.touching[region]])
        fetch = used[self._job[region]] if region in self._by_used else ()
        return self._region_kind[region], fetch, of_points

    def _used(self, points: Sequence[int]) -> tuple[int, ...]:
        """The devices that points of these numbers are on, in the order in which operators name them."""
        devices = dict[int, None]()
        for number in dict.fromkeys(points):
            devices |= dict.fromkeys(self.lowering.store.config(number).devices)
            if len(devices) == len(self.machine.devices):
                break
        return tuple(devices)

    # -- judging -------------------------------------------------------------------------------------------------------

    def _judge(self, changes: Mapping[str, ParallelConfig], limit: float) -> float:
        chosen = self._read(changes)
        seconds = self._simulate(chosen, limit)
        if seconds <= limit and math.isfinite(seconds):
            if not (self._needed(chosen) <= self._allowed).all():
                return math.inf
            self._proposed = changes, chosen
        return seconds

    def _simulate(self, chosen: Chosen, limit: float) -> float:
        """See `propose_all`, if memory were no limit.

        Fragments are made while nothing says that it is above the limit. What takes least comes first: the work of all
        streams without them, with one, with three and so on; a pass in which collectives take nothing; then these are
        priced.
        """
        done = 0
        is_limited = math.isfinite(limit)
        while done < len(chosen.missing):
            if is_limited and self._pass(chosen, limit) > limit:
                return math.inf
            more = chosen.missing[done : 2 * done + 1] if is_limited else chosen.missing
            self.pool.add_fragments(np.array(more), chosen.points, list(map(np.array, chosen.used)))
            done += len(more)
        if done:
            if is_limited and self._pass(chosen, limit) > limit:
                return math.inf
            self.pool.settle(chosen.new)
        return self._pass(chosen, limit)

    def _pass(self, chosen: Chosen, limit: float) -> float:
        """See `resimulate`."""
        limit -= self.machine.step_seconds
        old = self.current.rows, self.current.fragment
        choice = chosen.rows, chosen.fragment
        tables = tuple(self.pool.packed), (self.pool.op_rows.data, *self.pool.sets.columns)
        chosen.work = self.current.work.copy()
        is_known = change_work(chosen.work, chosen.ops, chosen.regions, old, choice, *tables)
        if chosen.work.max() * (1 - SLACK) > limit:
            return math.inf
        if not is_known:
            return 0.0
        span = np.zeros(len(self.layout.span), LAID)
        seconds, end = pass_rows(limit, choice, span, len(chosen.work), tuple(self.layout), *tables)
        chosen.timed = Timed(span, end)
        return float(seconds + self.machine.step_seconds)

    def _needed(self, chosen: Chosen) -> Array:
        """Bytes that a strategy seems to need of every device.

        What feeds take beside the arenas of GPUs is their instances, FEED_BLOCKS times.
        """
        sizes = self.pool.packed.bytes[chosen.fragment] * self._is_here[:, None]
        (first, last) = self._lifetimes
        change = np.zeros((len(self.lowering.operators) + 1, sizes.shape[1]), np.int64)
        np.add.at(change, first, sizes)
        np.subtract.at(change, last + 1, sizes)
        staged = FEED_BLOCKS * sizes[self._fed].sum(axis=0) * self._has_staging
        needed: Array = change.cumsum(axis=0).max(axis=0) + staged
        return needed
