"""The judge of a search: strategy -> predicted seconds of one step, and the same after one operator changed.

It holds one current strategy. `propose` judges a neighbour of it, `accept` moves there; a proposal that is not accepted
leaves no trace. Infinite seconds mean: illegal, or more than the memory of a device.
"""

from __future__ import annotations

import math

from taskflow.cost import CostModel
from taskflow.graph import Graph
from taskflow.lower import Lowering
from taskflow.machine import MachineModel
from taskflow.memory import plan_memory
from taskflow.simulate import predict_seconds
from taskflow.strategy import ParallelConfig, Strategy
from taskflow.task import TaskGraph


class Judge:
    """See the module. `last_refusal` says why the last strategy was infinitely slow."""

    def __init__(self, graph: Graph, machine: MachineModel, costs: CostModel) -> None:
        self.lowering, self.machine, self.costs = Lowering(graph, machine), machine, costs
        self.last_refusal = ""
        self.strategy = Strategy({})
        self._proposed: Strategy | None = None

    def start(self, strategy: Strategy) -> float:
        """Make `strategy` the current one; its seconds."""
        self.strategy, self._proposed = strategy.copy(), None
        return self.seconds(strategy)

    def propose(self, name: str, config: ParallelConfig, limit: float = math.inf) -> float:
        """Seconds of the current strategy with another configuration of the operator `name`.

        What is slower than `limit` may be given up early: then the result is any number above `limit`.
        """
        self._proposed = self.strategy.copy()
        self._proposed[name] = config
        return self.seconds(self._proposed, limit)

    def accept(self) -> None:
        """Make the strategy that was proposed last the current one."""
        assert self._proposed is not None, "nothing was proposed"
        self.strategy, self._proposed = self._proposed, None

    def seconds(self, strategy: Strategy, limit: float = math.inf) -> float:
        """Seconds of any strategy; memory is checked only for what is not slower than `limit`."""
        try:
            task_graph = self.lowering.lower(strategy)
        except ValueError as error:
            self.last_refusal = str(error)
            return math.inf
        seconds = predict_seconds(task_graph, self.costs)
        return seconds if seconds > limit or self._fits(task_graph) else math.inf

    def _fits(self, task_graph: TaskGraph) -> bool:
        peak = plan_memory(task_graph).peak_bytes
        for number, device in enumerate(self.machine.devices):
            if peak[number] > device.memory_bytes:
                self.last_refusal = f"device {number} needs {peak[number]} bytes and has {device.memory_bytes}"
                return False
        return True
