"""Dynamic programming over strategies, as OptCNN does: exact where costs add up and the graph is series-parallel.

Jia, Lin, Qi, Aiken, "Exploring hidden dimensions in parallelizing convolutional neural networks", ICML 2018: the cost
of a strategy is taken as the sum, over the operators that a strategy names, of what each costs by itself (`node`: its
forward, backward and update points and the synchronisation of its parameters) and, over each two of which one reads
what the other makes, of what moving it takes (`edge`); both are prices of rows of a pool (`priced`). A node with two
neighbours is eliminated into an edge between them, one with one neighbour into that neighbour, parallel edges are
added. What is left has nodes with more neighbours; of those the one with most is fixed at the configuration that is
cheapest with the least that its edges can cost, and elimination goes on: then the result need not be a minimum.

Equal layers are priced once. Where nothing fits into memory, bisection finds a price of every byte at which it does.

Real steps overlap what is added here, so the result is a start for a search, and a peer of it, rather than its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import product

import numpy as np

from taskflow.core.numbers import whole
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph, Operator
from taskflow.machine import MachineModel
from taskflow.searching.judge import Judge
from taskflow.searching.priced import Prices
from taskflow.searching.space import Space, power_of_two
from taskflow.searching.tables import content
from taskflow.strategy.strategy import ParallelConfig, Strategy, parts
from taskflow.tasks.task_graph import Array

CONFIGS = 12  # of an operator, the cheapest by themselves, are considered
TRIED = 3  # times as many are priced with their movement
ALIKE, TINY_SECONDS = (
    4,
    1e-9,
)  # points that differ by less than a fourth of a factor of two are alike
HIDDEN = (
    0.0,
    0.5,
    1.0,
)  # parts of the movement of nodes, above all sums of gradients, that other work may hide
LEAST_BYTE_SECONDS, MOST_BYTE_SECONDS, BISECTIONS = 1e-15, 1.0, 12  # of the price of memory


@dataclass(frozen=True)
class ChainOptimum:
    """What dynamic programming found.

    Attributes:
        strategy: a configuration for every operator that a strategy names.
        added_seconds: its costs added up; not what the simulator predicts.
        is_exact: whether no strategy of the considered configurations has a smaller sum.
        seconds: what the judge of a search says of it; infinite: it does not fit into memory.
    """

    strategy: Strategy
    added_seconds: float
    is_exact: bool
    seconds: float


def dynamic_programming(
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    space: Space | None = None,
    configs: int = CONFIGS,
) -> ChainOptimum:
    """The strategy whose added costs are smallest; of several prices of movement and memory, the one judged best.

    Args:
        graph, machine, costs: as for `taskflow.search`.
        space: default: powers of two, on the first devices of the machine.
        configs: how many configurations of each operator to consider, the cheapest by themselves first.
    """
    count, configs = len(machine.devices), whole("dynamic_programming", "configs", configs)
    lists = [range(k) for k in range(1, count + 1) if count % k == 0]
    space = space or Space(graph, machine, power_of_two, lists)
    added, judge = AddedCosts(space, costs, configs), Judge(graph, machine, costs)
    found = [_cheapest(added, judge, hidden, 0.0) for hidden in HIDDEN]
    if not any(math.isfinite(each.seconds) for each in found):
        found += _within_memory(added, judge)
    return min(found, key=lambda each: each.seconds)


def _cheapest(added: AddedCosts, judge: Judge, hidden: float, byte_seconds: float) -> ChainOptimum:
    """The minimum where a part of what parameters take is hidden behind other work, and a byte costs so much."""
    nodes, edges = added.priced(hidden, byte_seconds)
    numbers, total, is_exact = minimise(nodes, edges)
    chosen = {name: added.configs[k][numbers[k]] for k, name in enumerate(added.space.names)}
    strategy = Strategy.of_graph(added.space.graph, chosen)
    return ChainOptimum(strategy, total, is_exact, judge.seconds(strategy))


def _within_memory(added: AddedCosts, judge: Judge) -> Iterator[ChainOptimum]:
    """Bisection of the price of a byte: what fits at ever lower prices."""
    low, high = LEAST_BYTE_SECONDS, MOST_BYTE_SECONDS
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        found = _cheapest(added, judge, 0.0, middle)
        if math.isfinite(found.seconds):
            yield found
        low, high = (low, middle) if math.isfinite(found.seconds) else (middle, high)


class AddedCosts:
    """Node and edge costs; operators of equal content (`tables.content`) are priced once.

    Attributes:
        configs: per operator that a strategy names, the configurations that are considered.
        nodes: per such operator, the cost of each in seconds.
        edges: (operator, later operator) -> (configurations, configurations) costs, where they share a region that
            one of them writes.
    """

    def __init__(self, space: Space, costs: CostModel, most: int) -> None:
        self.space, self.costs = space, costs
        self.members: dict[str, list[Operator]] = {name: [] for name in space.names}
        for op in space.graph.operators:
            self.members[op.follows or op.name].append(op)
        self._touched = [
            frozenset(r.name for op in ops for r in op.args) for ops in self.members.values()
        ]
        self._written = [
            frozenset(r.name for op in ops for r in op.written) for ops in self.members.values()
        ]
        self._place = {op.name: k for k, op in enumerate(space.graph.operators)}
        self._touching: dict[str, list[int]] = {}
        for k, touched in enumerate(self._touched):
            for region in touched:
                self._touching.setdefault(region, []).append(k)
        self._known: dict[object, Array] = {}
        self.configs, self._nodes = [], []
        for k, name in enumerate(space.names):
            likely = self._likely(k, list(space.configs(name)), TRIED * most)
            prices = self._prices([name], self._own(k), [[c] for c in likely])
            kept = self._kept(prices[:, 0] + prices[:, 1] + self._surface(k, likely), most)
            self.configs.append([likely[k] for k in kept])
            self._nodes.append(prices[kept])
        self._edges = {(a, b): self._edge(a, b) for a, b in self._pairs()}
        self.nodes, self.edges = self.priced(0.0, 0.0)

    def priced(
        self, hidden: float, byte_seconds: float
    ) -> tuple[list[Array], dict[tuple[int, int], Array]]:
        """Nodes and edges: that part of the movement of nodes is `hidden`; every byte costs so many seconds."""
        weights = np.array([1.0, 1.0 - hidden, byte_seconds]), np.array([0.0, 1.0, byte_seconds])
        return [node @ weights[0] for node in self._nodes], {
            k: e @ weights[1] for k, e in self._edges.items()
        }

    def _likely(self, k: int, configs: Sequence[ParallelConfig], most: int) -> list[ParallelConfig]:
        """Those whose points take least, about; of these those that split the fewest axes, the first ones most."""
        points = self._prices([self.space.names[k]], set(), [[c] for c in configs])[:, 0]
        axes = np.array([len(config.degrees) for config in configs])
        order = np.lexsort(
            (-np.arange(len(axes)), axes, np.round(np.log2(points + TINY_SECONDS) * ALIKE))
        )
        return [configs[k] for k in order[:most]]

    @staticmethod
    def _kept(seconds: Array, most: int) -> Array:
        """The first fourth, which suit neighbours that are split along one axis; then the cheapest."""
        cheapest, first = (
            np.argsort(seconds, kind="stable"),
            np.arange(min(len(seconds), -(-most // 4))),
        )
        return np.concatenate([first, cheapest[~np.isin(cheapest, first)][: most - len(first)]])

    def _surface(self, k: int, configs: Sequence[ParallelConfig]) -> Array:
        """Seconds in which a tile of everything that an operator shares with others would come and go."""
        own, op, found = self._own(k), self.space.operators[k], np.zeros(len(configs))
        shared = [
            j
            for j, region in enumerate(op.args)
            if region.name not in own and region.role != "input"
        ]
        for number, config in enumerate(configs):
            for j in shared:
                split = math.prod(parts(d) for a, d in config.degrees if a in op.bound.term_axes[j])
                found[number] += op.args[j].size_bytes / split
        surface: Array = found / self.costs.rates.throughput.min()
        return surface

    def _own(self, k: int) -> set[str]:
        """The regions that this operator and those that follow it touch alone; inputs are fed in any case."""
        regions, alone = (
            self.space.graph.regions,
            (r for r in self._touched[k] if len(self._touching[r]) == 1),
        )
        return {name for name in alone if regions[name].role != "input"}

    def _pairs(self) -> list[tuple[int, int]]:
        """Operators that share a region that one of them writes, in order."""
        writers = ((region, k) for k, written in enumerate(self._written) for region in written)
        pairs = {
            (min(k, other), max(k, other))
            for region, k in writers
            for other in self._touching[region]
        }
        return sorted((a, b) for a, b in pairs if a != b)

    def _shared(self, a: int, b: int) -> frozenset[str]:
        """The regions that both operators touch and one of them writes."""
        return self._touched[a] & self._touched[b] & (self._written[a] | self._written[b])

    def _edge(self, a: int, b: int) -> Array:
        """(configurations, configurations, numbers of a `Price`)."""
        names, pairs = (
            [self.space.names[a], self.space.names[b]],
            list(product(self.configs[a], self.configs[b])),
        )
        prices = self._prices(names, set(self._shared(a, b)), pairs)
        return prices.reshape(len(self.configs[a]), len(self.configs[b]), -1)

    def _prices(
        self, names: Sequence[str], regions: set[str], configs: Sequence[Sequence[ParallelConfig]]
    ) -> Array:
        """A `Price` of each of these configurations of some operators, of which equal ones have the same."""
        key = self._content(names, regions), tuple(map(tuple, configs))
        if key not in self._known:
            members = (op for name in names for op in self.members[name])
            together = sorted(members, key=lambda op: self._place[op.name])
            prices = Prices(self.space.graph, self.space.machine, self.costs, together, regions)
            self._known[key] = np.array(
                [prices.price(dict(zip(names, each, strict=True))) for each in configs]
            )
        return self._known[key]

    def _content(self, names: Sequence[str], regions: set[str]) -> object:
        """What costs depend on, see `tables.content`, and which regions are priced."""
        operators = [op for name in names for op in self.members[name]]
        return content(operators), tuple(r.name in regions for op in operators for r in op.args)


def minimise(
    nodes: Sequence[Array], edges: Mapping[tuple[int, int], Array]
) -> tuple[list[int], float, bool]:
    """The choice for every node for which the sum of node and edge costs is smallest.

    Args:
        nodes: per node its costs.
        edges: (a, b) -> costs by the choices of a and b.

    Returns:
        The choices, the sum, and whether it is the minimum (no node had to be fixed).
    """
    work = _Elimination(nodes, edges)
    waiting = [(len(near), n) for n, near in work.near.items()]  # also with what they had before
    heapify(waiting)
    while work.near:
        count, node = heappop(waiting)
        if node in work.near and len(work.near[node]) == count:
            for changed in work.eliminate(node):
                heappush(waiting, (len(work.near[changed]), changed))
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

    def eliminate(self, node: int) -> list[int]:
        """Take out a node with the fewest neighbours; where they are too many, fix one with the most.

        Returns:
            the nodes that have other neighbours now, or are to be taken out still.
        """
        if len(self.near[node]) > 2:
            fixed = max(self.near, key=lambda n: (len(self.near[n]), -n))
            changed = [*self.near[fixed], node]
            self._fix(fixed)
            return [n for n in changed if n != fixed]
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
        return near

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
