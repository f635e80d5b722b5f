"""The judge of changes: what differs from a strategy in a few operators -> seconds, by which a walk ranks.

It holds one current strategy, as fragments of a pool of packed rows. `propose` judges a neighbour of it, from the first
span of rows that changed and only as far as it may still be accepted; `accept` moves there. A proposal that is not
accepted leaves no trace.
No proposal has a memory plan, and waits for memory are left out; links are shared by `core.start_rule`. What `simulate`
says, with a memory plan, its waits, and links that are shared fairly, `judge` asks of strategies as a whole.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from taskflow.core.columns import Array
from taskflow.core.errors import CostError
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.searching.layout import Chosen, lay_out
from taskflow.searching.pool import Index, Pool
from taskflow.searching.program import JudgedProgram
from taskflow.searching.resimulate import alive_peak, resimulate
from taskflow.strategy.strategy import (
    ParallelConfig,
    Strategy,
    check_config,
    check_strategy,
    completed,
    effective_config,
)
from taskflow.tasks.memory import FEED_BLOCKS

POOL_BYTES = (
    2 << 30
)  # points, packed rows and all about them are forgotten when they take more before a proposal
MARKS = 40  # groups before which the state is remembered, so that a proposal need not begin at the first row
GROUPS = 4  # at least, between two marks
ROOMY = 1 << 62  # bytes
PREPARED = 1 << 18  # changes of one operator that are remembered


@dataclass
class _Proposal:
    """Another strategy as a whole, or what it has other than the current one."""

    changes: Mapping[str, ParallelConfig]
    own: dict[int, str]
    work: Array = field(default_factory=lambda: np.zeros(0))
    bytes: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class PackedJudge:
    """Holds one current strategy. `propose` judges changes of it, `accept` makes them.

    Infinite seconds mean: illegal, slower than the limit, or more than the memory of a device as far as a quick look
    can tell, which takes all instances of a region to live as long as the region does: peaks of memory plans were found
    within 1 % of that. What seems to need no more than the strategy that it was started with is let pass.

    Args:
        is_roomy: memory is no limit.

    Attributes:
        strategy: the current one.
        refusal: the rule that the last illegal change broke.
    """

    def __init__(
        self, graph: Graph, machine: MachineModel, costs: CostModel, is_roomy: bool = False
    ) -> None:
        self.graph, self.machine, self.costs, self.refusal = graph, machine, costs, ""
        self.strategy, self.lowering = Strategy({}), Lowering(graph, machine)
        self._devices = len(machine.devices)
        self._capacity = np.array([ROOMY if is_roomy else d.free_bytes for d in machine.devices])
        self._allowed = self._capacity
        self._known = {op.name: op for op in graph.operators}
        self._number = {op.name: number for number, op in enumerate(graph.operators)}
        self._followers: dict[str, list[int]] = {
            name: [number] for name, number in self._number.items()
        }
        for number, op in enumerate(graph.operators):
            if op.follows:
                self._followers[op.follows].append(number)
        self._has_staging = np.array([d.kind == "cuda" for d in machine.devices])
        fed = {region.name for region in graph.inputs} if self._has_staging.any() else set()
        self._fed = np.flatnonzero([name in fed for name in graph.regions])
        self._is_refilling, self._most_bytes = False, POOL_BYTES
        self._fill()

    def _fill(self) -> None:
        """An empty pool and no current strategy."""
        self.layout = lay_out(self.lowering)
        self.pool = Pool(self.lowering, self.costs)
        self.index = Index(self.layout, self._devices)
        self.strategy = Strategy({})
        self._own: dict[int, str] = {}  # operators that are named although they follow another
        kinds = list(zip(self.lowering.op_kind, self.lowering.cost_kind, strict=True))
        # operators with the same have the same points and rows, and so have those that follow them
        self._alike = {
            name: tuple(kinds[op] for op in ops) for name, ops in self._followers.items()
        }
        self._prepared: dict[tuple[object, int], tuple[ParallelConfig, Array]] = {}
        self._joined: dict[tuple[str, int], tuple[ParallelConfig, Array]] = {}
        streams = self.pool.sets.count
        self._work, self._bytes = np.zeros(streams), np.zeros(self._devices, np.int64)
        self._alive = np.zeros((self._devices, len(self.lowering.operators) + 1), np.int64)
        self._peaks, self._affected = (
            np.zeros(self._devices, np.int64),
            np.zeros(self._devices, np.bool_),
        )
        spans, groups = len(self.layout.span), len(self.layout.group_ptr) - 1
        self.program = JudgedProgram(spans, groups, streams, min(MARKS, -(-groups // GROUPS)))
        self._proposed: _Proposal | None = None

    def start(self, strategy: Strategy) -> float:
        """Make `strategy` the current one; its seconds. It may need too much memory, but it has to be legal."""
        self._forget()
        self._allowed = np.full_like(self._capacity, ROOMY)
        seconds = self._judge(*self._read(strategy.copy()), math.inf)
        self.accept()
        staged = self._staged(self.pool.packed.bytes)
        self._allowed = np.maximum(self._capacity, self._peaks + staged)
        return seconds

    def propose(self, name: str, config: ParallelConfig, limit: float = math.inf) -> float:
        """Seconds of the current strategy with another configuration of the operator `name`.

        What is slower than `limit` is given up early: then the result is infinite.
        """
        return self.propose_all({name: config}, limit)

    def propose_all(self, changes: Mapping[str, ParallelConfig], limit: float = math.inf) -> float:
        """Seconds of the current strategy with other configurations of some operators; `limit` as for `propose`."""
        self._forget()
        try:
            proposal, columns = self._read(changes)
        except CostError:
            raise
        except ValueError as error:
            self.refusal = str(error)
            return math.inf
        return self._judge(proposal, columns, limit)

    def is_slower(self, strategy: Strategy, limit: float) -> bool:
        """Whether a strategy takes longer than the limit, if memory were none; what is illegal does not."""
        self._forget()
        try:
            return self._seconds(*self._read(strategy.copy()), limit) > limit
        except CostError:
            raise
        except ValueError:
            return False

    def accept(self) -> None:
        """Make the strategy that was proposed last the current one."""
        p = self._proposed
        assert p is not None, "nothing was proposed, or it was refused"
        self.program.accept()
        self._peak(self._peaks, is_kept=True)
        self.index.accept()
        if isinstance(p.changes, Strategy):
            self.strategy = p.changes
        else:
            self.strategy.update(p.changes)
        self._own, self._work, self._bytes, self._proposed = p.own, p.work, p.bytes, None

    def _forget(self) -> None:
        """Forget what was proposed; and if it has become much, all points and fragments but the current strategy's."""
        self._proposed = None
        if self._held_bytes <= self._most_bytes or self._is_refilling:
            return
        strategy, allowed, self._is_refilling = self.strategy, self._allowed, True
        try:
            self._most_bytes = -1  # if this is interrupted, it is done once more
            self.lowering = Lowering(self.graph, self.machine)
            self._fill()
            if len(strategy):
                self.start(strategy)
            self._most_bytes = max(POOL_BYTES, 2 * self._held_bytes)
        finally:
            self.strategy, self._allowed, self._is_refilling = strategy, allowed, False

    @property
    def _held_bytes(self) -> int:
        lowered = self.lowering.store.size_bytes + self.lowering.kinds.size_bytes
        return self.pool.size_bytes + self.index.size_bytes + lowered

    # -- what changes --------------------------------------------------------------------------------------------------

    def _read(self, changes: Mapping[str, ParallelConfig]) -> tuple[_Proposal, list[Array]]:
        """A proposal, and see `_columns`: a `Strategy` is one as a whole."""
        own = self._own
        if isinstance(changes, Strategy):
            check_strategy(self.graph, changes, self._devices)
            own, changes = {}, completed(self.graph, changes)
        own = own | {self._number[name]: name for name in changes if self._known[name].follows}
        return _Proposal(changes, own), [
            self._columns(name, config, own) for name, config in changes.items()
        ]

    def _columns(self, name: str, config: ParallelConfig, own: Mapping[int, str]) -> Array:
        """(3, n): the operators that have the configuration of `name`, the numbers of their points and of the rows.

        Raises:
            ValueError: one of them cannot be split so.
        """
        held = self._joined.get((name, id(config)))
        if held is None or held[0] is not config:
            if len(self._joined) > PREPARED:
                self._joined.clear()
            columns = np.empty((3, len(self._followers[name])), np.int64)
            columns[0], columns[1:] = self._followers[name], self._prepared_columns(name, config)
            held = self._joined[name, id(config)] = config, columns
        if not own:
            return held[1]
        return np.ascontiguousarray(
            held[1][:, [own.get(op, name) == name for op in held[1][0].tolist()]]
        )

    def _prepared_columns(self, name: str, config: ParallelConfig) -> Array:
        """The last two rows of `_columns`, which are the same for operators that are alike."""
        key = self._alike[name], id(config)
        held = self._prepared.get(key)
        if held is None or held[0] is not config:
            if len(self._prepared) > PREPARED:
                self._prepared.clear()
            check_config(self._known[name], config, self._devices)
            ops = self._followers[name]
            numbers = self.lowering.store.numbers(ops, config)
            held = self._prepared[key] = (
                config,
                np.array([numbers, self.pool.add_points(ops, numbers)], np.int64),
            )
        return held[1]

    def _with_additions(self, p: _Proposal, columns: Array) -> Array:
        """The columns, with those of additions that add partial results, or do so no longer."""
        additions = self.lowering.additions
        touched = additions.behind(columns[0].tolist())
        if not touched:
            return columns
        operators, named = self.lowering.operators, ChainMap({**p.changes}, self.strategy.data)
        numbers, is_other = self.index.current.points.copy(), ~np.isin(columns[0], touched)
        numbers[columns[0]] = columns[1]
        for op in touched:
            config, _ = effective_config(operators[op], named)
            configured = self.lowering.store.number(op, config)
            numbers[op] = additions.number(op, configured, numbers)
        rows = self.pool.add_points(touched, numbers[touched].tolist())
        settled = np.array([touched, numbers[touched], rows], np.int64)
        return np.concatenate([columns[:, is_other], settled], axis=1)

    # -- judging -------------------------------------------------------------------------------------------------------

    def _judge(self, p: _Proposal, columns: Sequence[Array], limit: float) -> float:
        seconds = self._seconds(p, columns, limit)
        if seconds <= limit and math.isfinite(seconds):
            if not self._may_fit(p):
                return math.inf
            self._proposed = p
        return seconds

    def _seconds(self, p: _Proposal, columns: Sequence[Array], limit: float) -> float:
        """See `propose`, if memory were no limit."""
        joined = self._with_additions(p, np.concatenate(columns, axis=1))
        known = self.pool.fragments
        missing = self.index.find(joined, known, self.lowering.store)
        if len(missing) and self._is_too_slow(p, limit, missing):
            self.pool.drop()
            self.index.forget(known, known + len(missing))
            return math.inf
        return self._simulate(p, limit)

    def _is_too_slow(self, p: _Proposal, limit: float, missing: Array) -> bool:
        """Make the fragments of some regions; True: before the last one a proposal is known to be above the limit.

        What takes least comes first: the work of all streams without them, with one, with three and so on; a pass in
        which collectives take nothing; then these are priced.
        """
        proposed, is_limited = self.index.proposed, math.isfinite(limit)
        used = proposed.used[proposed.used >= 0]
        done = 0
        while done < len(missing):
            if is_limited and self._simulate(p, limit) > limit:
                return True
            more = missing[done : 2 * done + 1] if is_limited else missing
            self.pool.add_fragments(more, proposed.points, used)
            done += len(more)
        if is_limited and self._simulate(p, limit) > limit:
            return True
        self.pool.settle()
        return False

    def _simulate(self, p: _Proposal, limit: float) -> float:
        """The one pass from the first changed span, over the proposed fragments."""
        while True:
            p.work, p.bytes = self._work.copy(), self._bytes.copy()
            seconds, needed = self._pass(p, limit, self.index.changed)
            if seconds >= 0:
                return seconds
            self._lay_anew(needed)

    def _lay_anew(self, more: int) -> None:
        """Make room for `more` rows: the current strategy is proposed once more, as if all of it were changed."""
        self.program.clear(more)
        if not len(self.strategy):
            return
        again = _Proposal({}, {}, self._work.copy(), self._bytes.copy())
        touched = np.flatnonzero(self.index.current.fragment >= 0)
        seconds, more = self._pass(
            again, math.inf, (np.zeros(0, np.int64), touched), proposed=self.index.current
        )
        if seconds >= 0:
            self.program.accept()
        else:
            self._lay_anew(more)

    def _pass(
        self,
        p: _Proposal,
        limit: float,
        changed: tuple[Array, Array],
        proposed: Chosen | None = None,
    ) -> tuple[float, int]:
        """See `resimulate`; `changed` are operators and regions."""
        index, pool, besides = self.index, self.pool, self.machine.step_seconds
        seconds, needed = resimulate(
            limit - besides,
            *changed,
            tuple(index.current),
            tuple(proposed or index.proposed),
            p.work,
            p.bytes,
            index.layout_columns,
            tuple(pool.packed),
            (pool.op_rows.data, *pool.sets.columns),
            tuple(self.program.tables),
        )
        return float(seconds + besides if seconds >= 0 else seconds), int(needed)

    # -- memory --------------------------------------------------------------------------------------------------------

    def _may_fit(self, p: _Proposal) -> bool:
        """Whether a proposal seems to fit into memory: side by side, or as far as a quick look can tell."""
        staged = self._staged(self.pool.packed.bytes)
        if np.all(p.bytes + staged <= self._allowed):
            return True
        return bool(np.all(self._peak(self._peaks.copy()) + staged <= self._allowed))

    def _staged(self, sizes: Array) -> Array:
        """What the proposal's feeds take beside the arenas of GPUs, about: their instances, FEED_BLOCKS times.

        Args:
            sizes: (fragments, devices) bytes.
        """
        if not len(self._fed):
            return np.zeros_like(self._peaks)
        fragment = self.index.proposed.fragment[self._fed]
        staged: Array = FEED_BLOCKS * sizes[fragment[fragment >= 0]].sum(axis=0) * self._has_staging
        return staged

    def _peak(self, peaks: Array, is_kept: bool = False) -> Array:
        """The peaks of all devices, of which those that the proposal changes; `is_kept`: it becomes the current one."""
        alive_peak(
            self._alive,
            self.layout.alive,
            self.index.changed[1],
            self.index.current.fragment,
            self.index.proposed.fragment,
            self.pool.packed.bytes,
            peaks,
            self._affected,
            is_kept,
        )
        return peaks
