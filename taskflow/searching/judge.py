"""The judge of a search: strategy -> predicted seconds of one step, and the same after some operators changed.

This one lowers and simulates every strategy as a whole, one of all devices that do the same: what it says is what
`simulate` says. Where few orbits stand for all devices that takes from a tenth of a second to some seconds. What
differs from a strategy in a few operators, `packed_judge` judges twenty to some hundred times as fast.
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from taskflow.core.errors import CostError
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.schedule.orders import reorder
from taskflow.simulation.simulate import simulate
from taskflow.strategy.strategy import ParallelConfig, Strategy, check_strategy, completed
from taskflow.tasks.task_graph import TaskGraph
from taskflow.tasks.timeline import Timeline

HELD_BYTES = 2 << 30  # of what is known of strategies: all is forgotten when it takes more
SAID_ROWS = 1 << 20  # of timelines that are remembered, some hundred bytes each


class Judge:
    """Holds one current strategy. `propose` judges another one, `accept` moves there.

    Infinite seconds mean: illegal, slower than the limit, or more than the memory of a device.

    Attributes:
        strategy: the current one.
        last_refusal: why the last strategy was infinitely slow, where it is not the limit.
        last_excess: bytes that it lacked, about, where that is the reason.
        is_quick: a neighbour of the current strategy is judged much faster than a strategy as a whole.
    """

    is_quick = False

    def __init__(self, graph: Graph, machine: MachineModel, costs: CostModel) -> None:
        self.graph, self.machine, self.costs = graph, machine, costs
        self.last_refusal, self.last_excess = "", 0
        self.strategy, self.lowering = Strategy({}), Lowering(graph, machine)
        self._devices = len(machine.devices)
        self._capacity = np.array([d.memory_bytes for d in machine.devices])
        self._other: Strategy | None = None
        # By the identities of configurations: the strategy, and what was found, or why nothing was.
        self._said: dict[object, tuple[Strategy, Timeline | str]] = {}

    def start(self, strategy: Strategy) -> float:
        """Make `strategy` the current one; its seconds. It may need too much memory, but it has to be legal."""
        self.strategy = strategy.copy()
        return self.seconds(strategy)

    def propose(self, name: str, config: ParallelConfig, limit: float = math.inf) -> float:
        """Seconds of the current strategy with another configuration of the operator `name`.

        What is slower than `limit` is given up early: then the result is infinite.
        """
        return self.propose_all({name: config}, limit)

    def propose_all(self, changes: Mapping[str, ParallelConfig], limit: float = math.inf) -> float:
        """Seconds of the current strategy with other configurations of some operators; `limit` as for `propose`."""
        self._other = self.strategy.copy()
        self._other.update(changes)
        return self.seconds(self._other, limit)

    def accept(self) -> None:
        """Make the strategy that was proposed last the current one."""
        assert self._other is not None, "nothing was proposed"
        self.strategy = self._other

    def seconds(self, strategy: Strategy, limit: float = math.inf) -> float:
        """Seconds of any strategy; `limit` as for `propose`."""
        try:
            check_strategy(self.graph, strategy, self._devices)
            timeline = next(self.timelines(strategy, [None]))
        except CostError:
            raise
        except (ValueError, MemoryError) as error:
            self.last_refusal, self.last_excess = str(error), sys.maxsize
            return math.inf
        is_refused = timeline.shortage or timeline.seconds > limit
        return math.inf if is_refused else timeline.seconds

    def seconds_with_room(self, strategy: Strategy) -> float:
        """Seconds of a strategy if memory were no limit, at least; -inf: to find out would take long."""
        return next(self.timelines(strategy, [None])).seconds

    def count_rows(self, strategy: Strategy) -> int:
        """Rows that `timelines` simulates; MemoryError, where they do not fit."""
        return len(self._timeline(strategy).task_graph)

    def predict(self, strategy: Strategy) -> float:
        """What `simulate` says of a strategy; infinite: no room.

        Links are shared fairly then, and rows wait for memory that they take over.
        """
        timeline = next(self.timelines(strategy, [None]))
        return math.inf if timeline.shortage else timeline.seconds

    def timelines(self, strategy: Strategy, orders: Iterable[str | None]) -> Iterator[Timeline]:
        """What `simulate` says of a strategy in each order (None: as lowered).

        Raises:
            MemoryError: devices do not do the same, and all rows do not fit.
        """
        lowered = None
        for order in orders:
            if order is None:
                timeline = self._timeline(strategy)
            else:
                lowered = self._lowered(strategy) if lowered is None else lowered
                timeline = simulate(reorder(lowered, self.costs, order), self.costs)
            if timeline.shortage:
                self.last_refusal = timeline.shortage
                self.last_excess = int((timeline.peak_bytes - self._capacity).max())
            yield timeline

    def _lowered(self, strategy: Strategy) -> TaskGraph:
        return self.lowering.rows_to_simulate(completed(self.graph, strategy), self.costs)

    def _timeline(self, strategy: Strategy) -> Timeline:
        """Of a strategy as lowered, found once."""
        key = frozenset((name, id(config)) for name, config in strategy.items())
        if key not in self._said:
            timelines = (said for _, said in self._said.values() if isinstance(said, Timeline))
            if sum(len(each.task_graph) for each in timelines) > SAID_ROWS:
                self._said.clear()
            self._make_room()
            held = strategy.copy()  # who asks may change it
            try:
                self._said[key] = held, simulate(self._lowered(held), self.costs)
            except MemoryError as error:
                self._said[key] = held, str(error)  # the error would hold on to all that there was
        if isinstance(said := self._said[key][1], str):
            raise MemoryError(said)
        return said

    def _make_room(self) -> None:
        """Forget what is known, if that has become much."""
        gc.collect()  # else rows, of which there may be gigabytes, stay until the end of the search
        if self.lowering.size_bytes > HELD_BYTES:
            self._said.clear()
            self.lowering = Lowering(self.graph, self.machine)
