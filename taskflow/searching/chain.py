"""Dynamic programming over strategies, as OptCNN does: exact where costs add up and the graph is series-parallel.

Jia, Lin, Qi, Aiken, "Exploring hidden dimensions in parallelizing convolutional neural networks", ICML 2018: the cost
of a strategy is taken as the sum, over the operators that a strategy names, of what each costs by itself (`node`: its
forward, backward and update points and the synchronisation of its parameters, simulated alone) and, over each two of
which one reads what the other makes, of what moving it takes (`edge`). A node with two neighbours is eliminated into an
edge between them, one with one neighbour into that neighbour, parallel edges are added. What is left has nodes with
more neighbours; of those the one with most is fixed at the configuration that is cheapest with the least that its edges
can cost, and elimination goes on: then the result need not be a minimum.

Real steps overlap what is added here, so the result is a start for a search, and a peer of it, rather than its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph, Operator
from taskflow.lowering import lower
from taskflow.machine import MachineModel
from taskflow.searching.space import Space, power_of_two
from taskflow.searching.tables import content, subgraph
from taskflow.simulation.simulate import busiest, schedule
from taskflow.strategy.strategy import ParallelConfig, Strategy
from taskflow.tasks.task_graph import Array, Kind

CONFIGS = 6  # of an operator, the cheapest by themselves, are considered


@dataclass(frozen=True)
class ChainOptimum:
    """What dynamic programming found.

    Attributes:
        strategy: a configuration for every operator that a strategy names.
        added_seconds: its costs added up; not what the simulator predicts.
        is_exact: whether no strategy of the considered configurations has a smaller sum.
    """

    strategy: Strategy
    added_seconds: float
    is_exact: bool


def dynamic_programming(
    graph: Graph, machine: MachineModel, costs: CostModel, space: Space | None = None, configs: int = CONFIGS
) -> ChainOptimum:
    """The strategy whose added costs are smallest.

    Args:
        graph, machine, costs: as for `taskflow.search`.
        space: default: powers of two, on the first devices of the machine.
        configs: how many configurations of each operator to consider, the cheapest by themselves first.
    """
    count = len(machine.devices)
    lists = [range(k) for k in range(1, count + 1) if count % k == 0]
    space = space or Space(graph, machine, power_of_two, lists)
    added = AddedCosts(space, costs, configs)
    numbers, total, is_exact = minimise(added.nodes, added.edges)
    chosen = {name: added.configs[k][numbers[k]] for k, name in enumerate(space.names)}
    return ChainOptimum(Strategy.of_graph(graph, chosen), total, is_exact)


class AddedCosts:
    """Node and edge costs in seconds; operators of equal content (`tables.content`) are lowered once.

    Attributes:
        configs: per operator that a strategy names, the configurations that are considered.
        nodes: per such operator, the cost of each.
        edges: (operator, later operator) -> (configurations, configurations) costs, where they share a region that
            one of them writes.
    """

    def __init__(self, space: Space, costs: CostModel, most: int) -> None:
        self.space, self.costs = space, costs
        self.members: dict[str, list[Operator]] = {name: [] for name in space.names}
        for op in space.graph.operators:
            self.members[op.follows or op.name].append(op)
        self._touched = [frozenset(r.name for op in ops for r in op.args) for ops in self.members.values()]
        self._written = [frozenset(r.name for op in ops for r in op.written) for ops in self.members.values()]
        self._known: dict[object, float] = {}
        self.configs, self.nodes = [], []
        for name in space.names:
            every = list(space.configs(name))
            seconds = np.array([self._cost([name], [c]) for c in every])
            cheapest = np.argsort(seconds, kind="stable")[:most]
            self.configs.append([every[k] for k in cheapest])
            self.nodes.append(seconds[cheapest])
        pairs = combinations(range(len(space.names)), 2)
        self.edges = {(a, b): self._edge(a, b) for a, b in pairs if self._shared(a, b)}

    def _shared(self, a: int, b: int) -> frozenset[str]:
        """The regions that both operators touch and one of them writes."""
        return self._touched[a] & self._touched[b] & (self._written[a] | self._written[b])

    def _edge(self, a: int, b: int) -> Array:
        names = [self.space.names[a], self.space.names[b]]
        return np.array([[self._cost(names, [c, d]) for d in self.configs[b]] for c in self.configs[a]])

    def _cost(self, names: Sequence[str], configs: Sequence[ParallelConfig]) -> float:
        key = (self._content(names), *configs)
        if key not in self._known:
            self._known[key] = self._lowered(names, configs)
        return self._known[key]

    def _content(self, names: Sequence[str]) -> object:
        return content([op for name in names for op in self.members[name]])

    def _lowered(self, names: Sequence[str], configs: Sequence[ParallelConfig]) -> float:
        """One operator: simulated seconds. Two: the busiest stream's seconds of moving what both touch."""
        together = [op for op in self.space.graph.operators if (op.follows or op.name) in names]
        graph = subgraph(self.space.graph, together)
        task_graph = lower(graph, Strategy(dict(zip(names, configs, strict=True))), self.space.machine)
        seconds = np.where(task_graph.kind == Kind.FEED, 0.0, self.costs.seconds(task_graph))
        if len(names) == 1:
            return schedule(task_graph, seconds)[2]
        between = self._shared(*(self.space.names.index(name) for name in names))
        shared = [k for k, region in enumerate(task_graph.regions) if region.name in between]
        moves = np.isin(task_graph.region, shared)
        return busiest(task_graph, np.where(moves, seconds, 0.0))


def minimise(nodes: Sequence[Array], edges: Mapping[tuple[int, int], Array]) -> tuple[list[int], float, bool]:
    """The choice for every node for which the sum of node and edge costs is smallest.

    Args:
        nodes: per node its costs.
        edges: (a, b) -> costs by the choices of a and b.

    Returns:
        The choices, the sum, and whether it is the minimum (no node had to be fixed).
    """
    work = _Elimination(nodes, edges)
    while work.near:
        work.eliminate(min(work.near, key=lambda n: (len(work.near[n]), n)))
    chosen: dict[int, int] = {}
    for node, near, best in reversed(work.trail):
        chosen[node] = int(best[tuple(chosen[n] for n in near)])
    numbers = [chosen[n] for n in range(len(nodes))]
    total = sum(float(cost[k]) for cost, k in zip(nodes, numbers, strict=True))
    total += sum(float(table[numbers[a], numbers[b]]) for (a, b), table in edges.items())
    return numbers, total, work.is_exact


class _Elimination:
    """Node costs, edge costs and what was eliminated: (node, its neighbours then, best choice by theirs)."""

    def __init__(self, nodes: Sequence[Array], edges: Mapping[tuple[int, int], Array]) -> None:
        self.cost = {n: np.array(c, float) for n, c in enumerate(nodes)}
        self.near: dict[int, dict[int, Array]] = {n: {} for n in self.cost}
        self.trail: list[tuple[int, list[int], Array]] = []
        self.is_exact = True
        for (a, b), table in edges.items():
            self._join(a, b, table)

    def eliminate(self, node: int) -> None:
        """Take out a node with the fewest neighbours; where they are too many, fix one with the most."""
        if len(self.near[node]) > 2:
            self._fix(max(self.near, key=lambda n: (len(self.near[n]), -n)))
            return
        near = sorted(self.near[node])
        # axes: the node's choices, then those of its neighbours
        total = self.cost[node].reshape(-1, *[1] * len(near))
        for k, other in enumerate(near):
            table = self.near[node][other]
            total = total + (table if len(near) == 1 else np.expand_dims(table, 2 - k))
        best, least = total.argmin(axis=0), total.min(axis=0)
        self._take_out(node, near, best)
        if len(near) == 1:
            self.cost[near[0]] += least
        elif near:
            self._join(near[0], near[1], least)

    def _fix(self, node: int) -> None:
        self.is_exact = False
        hope = self.cost[node] + sum(table.min(axis=1) for table in self.near[node].values())
        choice = int(np.argmin(hope))
        for other, table in self.near[node].items():
            self.cost[other] += table[choice]
        self._take_out(node, [], np.array(choice))

    def _take_out(self, node: int, near: list[int], best: Array) -> None:
        for other in self.near.pop(node):
            del self.near[other][node]
        self.trail.append((node, near, best))

    def _join(self, a: int, b: int, table: Array) -> None:
        """Add an edge; to one that is there already, its costs."""
        self.near[a][b] = self.near[a].get(b, 0.0) + table
        self.near[b][a] = self.near[a][b].T
