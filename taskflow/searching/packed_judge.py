"""The judge that holds rows: strategy -> predicted seconds, and those of its neighbours much faster.

It holds one current strategy, as fragments of a pool of packed rows. `propose` judges a neighbour of it, from the first
span of rows that changed and only as far as it may still be accepted; `accept` moves there. A proposal that is not
accepted leaves no trace.
No proposal has a memory plan, and waits for memory are left out; links are shared by `core.start_rule`.
What `predict` gives is what `simulate` says: with a memory plan, its waits, and links that are shared fairly.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from taskflow.core.columns import Array, spread
from taskflow.core.errors import CostError
from taskflow.core.text import describe_shortage
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.searching.judge import Judge
from taskflow.searching.layout import Chosen, lay_out
from taskflow.searching.least import least_bytes
from taskflow.searching.pool import Index, Pool
from taskflow.searching.program import JudgedProgram
from taskflow.searching.resimulate import alive_peak, resimulate
from taskflow.strategy.strategy import (
    ParallelConfig,
    Strategy,
    check_config,
    check_strategy,
    completed,
)
from taskflow.tasks.memory import FEED_BLOCKS

POOL_BYTES = (
    2 << 30
)  # points, packed rows and all about them are forgotten when they take more before a proposal
HELD_ROWS = 8_000_000  # of a graph, about, for which there is memory
MARKS = 40  # groups before which the state is remembered, so that a proposal need not begin at the first row
GROUPS = 4  # at least, between two marks
# Times of other work, in rows: as many are passed meanwhile.
SKETCH_ROWS = 800  # a third of the movement of a region on one device: what a sketch may take of it
CALL_ROWS = 12000  # asking for a sketch
PLANNED = 1.1  # times its memory a device may need by a quick look, before a whole strategy is refused without a plan
SLACK = 1e-9  # of what is summed in another order
MANY = 64  # devices of a machine on which what a whole strategy moves may take long, or much memory, to find out
PREPARED = 1 << 18  # changes of one operator that are remembered


@dataclass
class _Proposal:
    """Another strategy as a whole, or what it has other than the current one."""

    changes: Mapping[str, ParallelConfig]
    own: dict[int, str]
    work: Array = field(default_factory=lambda: np.zeros(0))
    bytes: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class PackedJudge(Judge):
    """See the module."""

    is_quick = True

    def __init__(self, graph: Graph, machine: MachineModel, costs: CostModel) -> None:
        super().__init__(graph, machine, costs)
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
        check_strategy(self.graph, strategy, self._devices)
        seconds = self.seconds(strategy)
        if self._proposed is None:
            self._judge(*self._read(strategy.copy()), math.inf, is_forced=True)
        self.accept()
        self._allowed = self._capacity
        if math.isfinite(seconds):  # its plan fits
            staged = self._staged(self.pool.packed.bytes)
            self._allowed = np.maximum(self._capacity, self._peaks + staged)
        return seconds

    def propose_all(self, changes: Mapping[str, ParallelConfig], limit: float = math.inf) -> float:
        """Seconds of the current strategy with other configurations of some operators; `limit` as for `propose`."""
        self._forget()
        try:
            proposal, columns = self._read(changes)
        except CostError:
            raise
        except ValueError as error:
            self.last_refusal, self.last_excess = (
                str(error),
                sys.maxsize,
            )  # memory would be of no help
            return math.inf
        return self._judge(proposal, columns, limit)

    def seconds(self, strategy: Strategy, limit: float = math.inf) -> float:
        """Seconds of any strategy; `limit` as for `propose`. It counts as proposed."""
        return self.propose_all(strategy.copy(), limit)

    def seconds_with_room(self, strategy: Strategy) -> float:
        """Seconds of a strategy if memory were no limit, at least; -inf: to find out would take long."""
        if self._devices > MANY:
            return -math.inf
        return self._judge(*self._read(strategy.copy()), math.inf, is_forced=True)

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

    @property
    def rows(self) -> int:
        """Rows of the current strategy's task graph."""
        return self.program.rows

    def count_rows(self, strategy: Strategy) -> int:
        """Rows of the task graph of any strategy; it counts as proposed."""
        self.seconds(strategy)
        return self.program.proposed_rows

    @property
    def ends(self) -> Array:
        """When each of them ends, in row order."""
        span, spans = self.program.tables.span, np.arange(len(self.layout.span))
        ordinal = self.pool.packed.ordinal[spread(span["packed"], span["count"])]
        group = np.repeat(
            np.searchsorted(self.layout.group_ptr, spans, side="right"), span["count"]
        )
        return self.program.ends[np.lexsort((ordinal, group))]

    # -- what changes --------------------------------------------------------------------------------------------------

    def _read(self, changes: Mapping[str, ParallelConfig]) -> tuple[_Proposal, list[Array]]:
        """A proposal, and see `_columns`: a `Strategy` is judged as a whole."""
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

    # -- judging -------------------------------------------------------------------------------------------------------

    def _judge(
        self, p: _Proposal, columns: Sequence[Array], limit: float, is_forced: bool = False
    ) -> float:
        joined = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        known, proposed = self.pool.fragments, self.index.proposed
        missing = self.index.find(joined, known, self.lowering.store)
        if len(missing):
            if (
                isinstance(p.changes, Strategy)
                and self._devices > MANY
                and not is_forced
                and not self._may_fit()
            ):
                self.index.forget(known, known + len(missing))
                return math.inf
            if math.isfinite(limit) and self._is_hopeless(p, limit, missing):
                self.index.forget(known, known + len(missing))
                return math.inf
            self.pool.add_fragments(missing, proposed.points, proposed.used[proposed.used >= 0])
        seconds = self._simulate(p, limit)
        if seconds <= limit and math.isfinite(seconds):
            if not is_forced and not self._fits(p):
                return math.inf
            self._proposed = p
        return seconds

    def _is_hopeless(self, p: _Proposal, limit: float, missing: Array) -> bool:
        """Whether the step takes longer than the limit, as can be told without the fragments that are to be made.

        First by the work of what is there. Then with sketches of the missing: fewer rows and dependences end no later,
        to the last bit, since a start is a largest and an end a sum; where they stand for several, sums are rounded.
        A sketch that takes longer than the fragment is not tried.
        """
        if len(missing) * self._devices * SKETCH_ROWS < CALL_ROWS + self.program.rows:
            return False
        if self._simulate(p, limit) > limit:
            return True
        layout, parts = self.layout, self.pool.op_rows.data["parts"]
        touching = [layout.op[layout.op_ptr[r] : layout.op_ptr[r + 1]] for r in missing.tolist()]
        if (parts[self.index.proposed.rows[np.concatenate(touching)]] > 1).any():
            return False  # sketches know nothing of ordinals
        rounded = limit * (1.0 + SLACK)
        is_short = self.pool.sketch(
            missing, self.index.proposed.points, p.work, rounded * (1.0 + SLACK)
        )
        seconds = self._simulate(p, rounded) if is_short else math.inf
        self.pool.drop_sketches()
        return seconds > rounded

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
        index, pool = self.index, self.pool
        seconds, needed = resimulate(
            limit,
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
        return float(seconds), int(needed)

    # -- memory --------------------------------------------------------------------------------------------------------

    def _fits(self, p: _Proposal) -> bool:
        """Whether a proposal fits into memory, as far as a quick look can tell; `fits` plans it.

        It does where all instances have room side by side. Else all instances of a region are taken to live as long
        as the region does: plans were found within 1 % of the peak of that. A whole strategy whose peak is above the
        capacity by up to a tenth is planned. Its neighbours, which are many, are held to the capacity, or to its own
        peak if that is larger and yet its plan fits. What is said to fit may turn out not to, when `fits` plans it.
        """
        staged = self._staged(self.pool.packed.bytes)
        if np.all(p.bytes + staged <= self._capacity):
            return True
        peak = self._peak(self._peaks.copy()) + staged
        allowed = self._capacity if isinstance(p.changes, Strategy) else self._allowed
        if np.all(peak <= allowed):
            return True
        if isinstance(p.changes, Strategy) and np.all(peak <= PLANNED * self._capacity):
            return math.isfinite(self.predict(p.changes))
        return self._is_within(peak, allowed)

    def _may_fit(self) -> bool:
        """Whether a whole strategy may fit, as far as its points tell: nobody has looked at what it moves."""
        lowering, every = self.lowering, np.arange(len(self.layout.kind))
        known = tuple(lowering.mover.table), tuple(lowering.store.table), self.index.proposed.points
        sizes, none, peak = (
            least_bytes(*known, self._devices),
            np.full_like(every, -1),
            np.zeros_like(self._peaks),
        )
        alive, affected = np.zeros_like(self._alive), np.zeros_like(self._affected)
        alive_peak(alive, self.layout.alive, every, none, every, sizes, peak, affected, True)
        return self._is_within(peak + self._staged(sizes, every), PLANNED * self._capacity)

    def _staged(self, sizes: Array, fragment: Array | None = None) -> Array:
        """What the proposal's feeds take beside the arenas of GPUs, about: their instances, FEED_BLOCKS times.

        Args:
            sizes: (fragments, devices) bytes.
            fragment: of every region; default: those of the proposal.
        """
        if not len(self._fed):
            return np.zeros_like(self._peaks)
        own = (self.index.proposed.fragment if fragment is None else fragment)[self._fed]
        found: Array = FEED_BLOCKS * sizes[own[own >= 0]].sum(axis=0) * self._has_staging
        return found

    def _is_within(self, peak: Array, allowed: Array) -> bool:
        device = int(np.argmax(peak - allowed))
        if is_over := bool(peak[device] > allowed[device]):
            self.last_refusal = describe_shortage(device, peak[device], self._capacity[device])
            self.last_excess = int(peak[device] - self._capacity[device])
        return not is_over

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

    def _make_room(self) -> None:
        """`_forget` does."""


def judge_of(graph: Graph, machine: MachineModel, costs: CostModel) -> Judge:
    """The judge of strategies of this graph."""
    rows = len(graph.operators) * len(machine.devices)
    return (Judge if rows > HELD_ROWS else PackedJudge)(graph, machine, costs)
