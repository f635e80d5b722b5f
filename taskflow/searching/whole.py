"""The judge of a machine of very many devices: every strategy is lowered and simulated anew, by classes of devices.

`Judge` holds all rows, a few hundred bytes each, to judge the next strategy by what is new in it. Of 4,096 devices they
do not fit into memory. Where devices do the same, their rows are not made: a whole strategy takes some seconds and a
few gigabytes. Other strategies are refused if all their rows do not fit.
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
from taskflow.searching.judge import Judge
from taskflow.simulation.simulate import simulate
from taskflow.strategy.strategy import ParallelConfig, Strategy, check_strategy, completed
from taskflow.tasks.timeline import Timeline

HELD_BYTES = 2 << 30  # of fragments of strategies: all are forgotten when they take more
HELD_ROWS = 8_000_000  # of a graph, about, for which `Judge` has memory


def judge_of(graph: Graph, machine: MachineModel, costs: CostModel) -> Judge:
    """The judge of strategies of this graph."""
    rows = len(graph.operators) * len(machine.devices)
    return (WholeJudge if rows > HELD_ROWS else Judge)(graph, machine, costs)


class WholeJudge(Judge):
    """See the module. It answers what a search asks of a `Judge`."""

    is_quick = False

    def __init__(self, graph: Graph, machine: MachineModel, costs: CostModel) -> None:
        self.graph, self.machine, self.costs = graph, machine, costs
        self.last_refusal, self.last_excess = "", 0
        self.lowering, self.strategy = Lowering(graph, machine), Strategy({})
        self._capacity = np.array([d.memory_bytes for d in machine.devices])
        self._other: Strategy | None = None
        self._said: dict[
            object, tuple[Strategy, Timeline | str]
        ] = {}  # by the identities of configurations

    def start(self, strategy: Strategy) -> float:
        """See `Judge.start`."""
        self.strategy = strategy.copy()
        return self.seconds(strategy)

    def propose_all(self, changes: Mapping[str, ParallelConfig], limit: float = math.inf) -> float:
        """See `Judge.propose_all`."""
        self._other = self.strategy.copy()
        self._other.update(changes)
        seconds = self.seconds(self._other)
        return seconds if seconds <= limit else math.inf

    def accept(self) -> None:
        """See `Judge.accept`."""
        assert self._other is not None, "nothing was proposed"
        self.strategy = self._other

    def seconds(self, strategy: Strategy, limit: float = math.inf) -> float:
        """See `Judge.seconds`; what `simulate` says of it."""
        try:
            check_strategy(self.graph, strategy, len(self.machine.devices))
            timeline = next(self.timelines(strategy, [None]))
        except CostError:
            raise
        except (ValueError, MemoryError) as error:
            self.last_refusal, self.last_excess = str(error), sys.maxsize
            return math.inf
        return timeline.seconds if not timeline.shortage and timeline.seconds <= limit else math.inf

    def seconds_with_room(self, strategy: Strategy) -> float:
        """See `Judge.seconds_with_room`."""
        return next(self.timelines(strategy, [None])).seconds

    def count_rows(self, strategy: Strategy) -> int:
        """Rows of a strategy's task graph, about."""
        return len(self.lowering.operators) * len(self.machine.devices)

    def timelines(self, strategy: Strategy, orders: Iterable[str | None]) -> Iterator[Timeline]:
        """See `Judge.timelines`; nobody asks a judge that is not quick for another order than as lowered."""
        for order in orders:
            assert order is None, "as lowered"
            said = self._timeline(strategy)
            self._note(said)
            yield said

    def _timeline(self, strategy: Strategy) -> Timeline:
        """Of a strategy, found once; MemoryError, where it needs all rows and they do not fit."""
        key = frozenset((name, id(config)) for name, config in strategy.items())
        if key not in self._said:
            held = strategy.copy()  # who asks may change it
            self._said[key] = held, self._simulated(held)
        if isinstance(said := self._said[key][1], str):
            raise MemoryError(said)
        return said

    def _simulated(self, strategy: Strategy) -> Timeline | str:
        """Or why not."""
        if self.lowering.size_bytes > HELD_BYTES:
            self.lowering = Lowering(self.graph, self.machine)
        try:
            return simulate(
                self.lowering.rows_to_simulate(completed(self.graph, strategy), self.costs),
                self.costs,
            )
        except MemoryError as error:
            return str(error)  # the error itself would hold on to all that there was
        finally:
            gc.collect()  # else rows, of which there are gigabytes, stay until the end of the search
