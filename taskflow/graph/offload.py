"""Offload: what a device needs later is kept meanwhile in the memory of its host. A graph -> graph function.

    fc ─► fc.away, on the host ─► fc.back ─► fc.dweight          what a forward operator makes
    m, on the host ─► m.back ─► adam updates m.back ─► m.away writes m          a parameter or a state

`<region>.away` and `<region>.back` are identities that follow who makes, or updates, the region, and stand where that
does: what a device keeps on its host is the device's own. They are in queues of their own, and the links between both
memories say how long they take. Nothing else touches the memory of hosts but casts of parameters (homes), which read
it. So strategies and schedules are those of the graph without offload.

What goes away holds its memory until it has gone, and what comes back holds some before it is read. So that compute
does not wait for either, `.back` stands earlier in program order, and `.away` later: as many of them are on their way
as have at most twice the bytes of the largest.

Sources: Rhu et al., "vDNN", MICRO 2016; Zhu et al., "Mist", EuroSys 2025, which offloads a part of each kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from taskflow.backend import Array, Context
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.kernel import Kernel
from taskflow.graph.precision import cast, is_cast
from taskflow.graph.rebuild import emptied
from taskflow.graph.recompute import forward_operators
from taskflow.graph.update import launch_beside

AWAY = "away"
BACK = "back"  # those of `x` are `x.away` and `x.back`
BUFFERS = 2  # of the largest region, for what is on its way


class Stay(NamedTuple):
    """A region that is carried.

    Attributes:
        region: as it is without offload.
        begin, end: operators, by number: it goes away behind `begin` and is back before `end`; of what persists, it is
            back before `begin` and goes away behind `end`.
        leader, argument: the operator that the identities follow, and as which of its arguments.
        is_updated: whether it goes away, too; a parameter that nothing updates does not.
    """

    region: LogicalRegion
    begin: int
    end: int
    leader: int
    argument: int
    is_updated: bool = True


def offload(graph: Graph, names: Iterable[str] | str) -> Graph:
    """The graph in which some regions lie in the memory of hosts until operators need them.

    Numbers are the same. Scalars stay, and what no backward operator reads.

    Args:
        graph: with its backward operators; it stays as it is. After `recompute` and `homes`: a parameter with a home
            is brought for each pass, any other one once a step.
        names: of forward operators whose results are kept so; of parameters and of states.

    Raises:
        ValueError: there is no such operator, it is not a forward one, or what it makes is updated in place.
    """
    names = [names] if isinstance(names, str) else names
    regions = {name: graph.regions.get(name) for name in names}
    makers = forward_operators(
        "offload", graph, [name for name, r in regions.items() if not _persists(r)]
    )
    kept = {
        name: replace(r, is_on_host=True)
        for name, r in regions.items()
        if r and r.is_persistent and r.shape
    }
    other, operators = emptied(graph, kept)
    return _Offload(
        other, operators, [*_values(operators, makers)], [*_lasting(operators, kept)]
    ).run()


def offloaded(graph: Graph) -> tuple[str, ...]:
    """The regions of which a graph says that they lie in the memory of hosts, by their names without offload."""
    away = (region.name for region in graph.regions.values() if region.is_on_host)
    return tuple(name.removesuffix(f".{AWAY}") for name in away)


def _persists(region: LogicalRegion | None) -> bool:
    return region is not None and region.is_persistent


def _values(operators: Sequence[Operator], makers: Collection[str]) -> Iterator[Stay]:
    """What these forward operators make and a backward one reads, in program order."""
    first: dict[str, int] = {}
    for number, op in enumerate(operators):
        for region in op.inputs if op.is_backward else ():
            first.setdefault(region.name, number)
    made: dict[str, str] = {}
    for number, op in enumerate(operators):
        for k, region in enumerate(op.outputs if op.name in makers else ()):
            if region.name in first:
                made[region.name] = op.name
                yield Stay(region, number, first[region.name], number, len(op.inputs) + k)
        for name in (op.inputs[k].name for k in op.writes):
            if name in made:
                raise ValueError(
                    f"offload: '{made[name]}' makes '{name}', which '{op.name}' updates in place"
                )


def _lasting(operators: Sequence[Operator], names: Collection[str]) -> Iterator[Stay]:
    """Of these parameters and states, what is brought for others than casts, by who needs it first."""
    users: dict[str, list[tuple[int, int]]] = {}  # of a region: operators and their arguments
    updated: set[str] = set()
    for number, op in enumerate(operators):
        for k, region in enumerate(op.inputs):
            if region.name in names and (k in op.writes or not is_cast(op, region.dtype)):
                users.setdefault(region.name, []).append((number, k))
                updated |= {region.name} if k in op.writes else set()
    for uses in users.values():
        number, k = uses[0]
        region = operators[number].inputs[k]
        yield Stay(region, number, uses[-1][0], number, k, region.name in updated)


class _Offload:
    """Rewrites the operators of a graph of its own, which has none yet."""

    def __init__(
        self,
        graph: Graph,
        operators: Sequence[Operator],
        values: Sequence[Stay],
        lasting: Sequence[Stay],
    ) -> None:
        self.graph = graph
        self.operators = operators
        self.done: list[Operator] = []  # of `operators`, rewritten
        self.here: dict[str, LogicalRegion] = {}  # name -> what stands for the region now
        self.away: dict[str, LogicalRegion] = {}
        away = _late([(c.begin, c.end - 1, c.region.size_bytes) for c in values])
        back = _early([(c.end, at + 1, c.region.size_bytes) for c, at in zip(values, away)])
        brought = _early([(c.begin, 0, c.region.size_bytes) for c in lasting])
        stored = _late([(c.end, len(operators) - 1, c.region.size_bytes) for c in lasting])
        self.before = _in_turn(
            [(at, c.end, c) for at, c in zip(back, values)]
            + [(at, c.begin, c) for at, c in zip(brought, lasting)]
        )
        self.after = _in_turn(
            [(at, c.begin, c) for at, c in zip(away, values)]
            + [(at, c.end, c) for at, c in zip(stored, lasting)]
        )

    def run(self) -> Graph:
        """The graph, with all operators."""
        for number, op in enumerate(self.operators):
            for carried in self.before.get(number, ()):
                self._bring(carried)
            inputs = [self._input(op, k, region) for k, region in enumerate(op.inputs)]
            self.done.append(replace(op, inputs=tuple(inputs)))
            self.graph.operators.append(self.done[-1])
            for carried in self.after.get(number, ()):
                self._take(carried)
        return self.graph

    def _input(self, op: Operator, k: int, region: LogicalRegion) -> LogicalRegion:
        """What an operator reads for a region."""
        is_direct = region.is_persistent and k not in op.writes and is_cast(op, region.dtype)
        if is_direct or not (op.is_backward or region.is_persistent):
            return region
        return self.here.get(region.name, region)

    def _bring(self, carried: Stay) -> None:
        """Append `<region>.back`."""
        region = carried.region
        leader = (self.operators if region.is_persistent else self.done)[carried.leader]
        source = self.away.get(region.name, region)
        name = f"{region.name}.{BACK}"
        self.here[region.name] = cast(source, region.dtype, leader, carried.argument, name)
        is_backward = not region.is_persistent
        beside = leader.beside if region.is_persistent else region.name
        self._say(is_backward=is_backward, beside=beside, backward=None)

    def _take(self, carried: Stay) -> None:
        """Append `<region>.away`."""
        region = carried.region
        name = f"{region.name}.{AWAY}"
        leader = self.done[carried.leader]
        if not region.is_persistent:
            made = cast(region, region.dtype, leader, carried.argument, name)
            self.away[region.name] = on_host = replace(made, is_on_host=True)
            self.graph.regions[made.name] = on_host
            self._say(outputs=(on_host,), beside=region.name, backward=None)
        elif carried.is_updated:
            leader = self.operators[carried.leader]
            inputs = [region, self.here[region.name]]
            options = {"kernel": _store, "writes": (0,), "flops": 0.0}
            launch_beside(leader, carried.argument, name, "*, * -> ", inputs, **options)

    def _say(self, **fields: Any) -> None:
        """Change fields of the last operator."""
        operators = self.graph.operators
        operators[-1] = replace(operators[-1], **fields)


def _in_turn(moves: Sequence[tuple[int, int, Stay]]) -> dict[int, list[Stay]]:
    """By the operator where they are, what moves there, in the order of whom it follows or precedes."""
    table: dict[int, list[Stay]] = {}
    for at, _, carried in sorted(moves, key=lambda move: move[1]):
        table.setdefault(at, []).append(carried)
    return table


def _late(moves: Sequence[tuple[int, int, int]]) -> list[int]:
    """Behind which operators regions go away: of each the first that it may be, the last, and its bytes."""
    turned = [(-at, -last, size) for at, last, size in moves]
    return [-at for at in _early(turned)]


def _early(moves: Sequence[tuple[int, int, int]]) -> list[int]:
    """Before which operators regions come back: of each the last that it may be, the first, and its bytes."""
    order = sorted(range(len(moves)), key=lambda k: moves[k][0])
    room = BUFFERS * max((size for *_, size in moves), default=0)
    chosen = [0] * len(moves)
    reader = 0  # of which region, in order, those behind it come while it is read
    on_the_way = 0
    for place, k in enumerate(order):
        on_the_way += moves[k][2] if place else 0
        while on_the_way > room:
            reader += 1
            on_the_way -= moves[order[reader]][2]
        chosen[k] = max(moves[order[reader]][0], moves[k][1])
    return chosen


def _copy(ctx: Context, kept: Array, new: Array) -> None:
    ctx.xp.copyto(kept, new)


_store = Kernel(_copy, takes_mixed=True)
