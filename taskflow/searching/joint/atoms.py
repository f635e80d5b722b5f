"""Atoms: runs of operators between which a pipeline may be cut.

Takes a graph; gives its leaders in program order, merged where a cut between them carries more bytes than it must. A
cut stays where one value crosses it, or where those to either side of it carry more. Atoms of equal content have one
kind, so that 24 equal layers are priced once; names count for nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from taskflow.graph.family import Family, families
from taskflow.graph.graph import Graph, Operator
from taskflow.graph.phases import Phase, phases_of
from taskflow.searching.tables import content

MOST_ATOMS = 64  # neighbours with the least work are merged until there are no more


@dataclass(frozen=True, eq=False)
class Atom:
    """A run of leaders and all that follow them.

    Attributes:
        families: of its leaders.
        operators: of all of them, in program order.
        phases: of every operator.
        inner: forward operators whose results no other atom reads: what recomputation drops.
        kind: atoms with the same have equal content.
        crossing_bytes: what the atoms before hand over to it and to later ones.
    """

    families: tuple[Family, ...]
    operators: tuple[Operator, ...]
    phases: tuple[Phase, ...]
    inner: tuple[str, ...]
    kind: object
    crossing_bytes: int

    @property
    def name(self) -> str:
        """Of its first leader, at which a cut is named."""
        return self.families[0].leader.name

    @property
    def regions(self) -> list[str]:
        """What it touches, in the order in which `kind` numbers it."""
        return list(dict.fromkeys(r.name for op in self.operators for r in op.args))


def find_atoms(graph: Graph) -> list[Atom]:
    """The atoms of a graph, in program order."""
    found = families(graph)
    number = {family.leader.name: k for k, family in enumerate(found)}
    phases = dict(zip((op.name for op in graph.operators), phases_of(graph.operators), strict=True))
    leader = {op.name: number[op.follows or op.name] for op in graph.operators}
    crossing = _crossing(graph, phases, leader, len(found))
    bounds = _merged(graph, leader, _cuts(*crossing))
    members: dict[int, list[Operator]] = defaultdict(list)
    atom_of = {
        name: int(np.searchsorted(bounds, k, side="right")) - 1 for name, k in leader.items()
    }
    for op in graph.operators:
        members[atom_of[op.name]].append(op)
    outer = _read_elsewhere(graph, phases, atom_of)
    return [
        _atom(found[begin:end], members[k], phases, outer, int(crossing[0][begin]))
        for k, (begin, end) in enumerate(pairwise(bounds))
    ]


def _atom(
    found: Sequence[Family],
    operators: Sequence[Operator],
    phases: dict[str, Phase],
    outer: set[str],
    crossing: int,
) -> Atom:
    own = tuple(phases[op.name] for op in operators)
    forward = [
        op
        for op, phase in zip(operators, own, strict=True)
        if phase == Phase.FORWARD and not op.writes
    ]
    inner = tuple(op.name for op in forward if not any(r.name in outer for r in op.outputs))
    kind = content(operators), own, tuple(op.name in inner for op in operators)
    return Atom(tuple(found), tuple(operators), own, inner, kind, crossing)


def _crossing(
    graph: Graph, phases: dict[str, Phase], leader: dict[str, int], count: int
) -> tuple[list[float], ...]:
    """Per cut before a leader: bytes of the values that cross it in the forward pass, and how many these are.

    No cut: infinite bytes. A value would go back, or an update would stand in a stage of its own.
    """
    size, values = np.zeros(count + 1), np.zeros(count + 1)
    made: dict[str, int] = {}
    last: dict[str, int] = {}
    for op in graph.operators:
        if phases[op.name] == Phase.UPDATE and op.follows is None:
            size[leader[op.name]] = np.inf
        if phases[op.name] != Phase.FORWARD:
            continue
        for region in op.inputs:
            last[region.name] = max(last.get(region.name, 0), leader[op.name])
            if region.name in made and leader[op.name] < made[region.name]:
                size[leader[op.name] + 1 : made[region.name] + 1] = np.inf
        made |= {r.name: leader[op.name] for r in op.outputs}
    for name, first in made.items():
        size[first + 1 : last.get(name, first) + 1] += graph.regions[name].size_bytes
        values[first + 1 : last.get(name, first) + 1] += 1
    return size.tolist(), values.tolist()


def _cuts(size: Sequence[float], values: Sequence[float]) -> list[int]:
    """The first leaders of atoms: see the head of this file."""
    runs = [
        (key, [k for k, _ in run])
        for key, run in groupby(enumerate(size[1:-1], 1), key=lambda each: each[1])
    ]
    sides = [np.inf, *(key for key, _ in runs), np.inf]
    least = [
        k for at, (key, run) in enumerate(runs) if key < min(sides[at], sides[at + 2]) for k in run
    ]
    single = [
        k
        for k, (many, each) in enumerate(zip(values, size, strict=True))
        if many <= 1 and 0 < k < len(size) - 1
    ]
    return sorted({0, *least, *single} - {k for k, each in enumerate(size) if each == np.inf and k})


def _merged(graph: Graph, leader: dict[str, int], starts: list[int]) -> list[int]:
    """The bounds of at most MOST_ATOMS atoms."""
    work = np.zeros(1 + max(leader.values(), default=0))
    for op in graph.operators:
        work[leader[op.name]] += op.total_flops
    while len(starts) > MOST_ATOMS:
        each = np.add.reduceat(work, starts)
        starts.pop(int(np.argmin(each[:-1] + each[1:])) + 1)
    return [*starts, len(work)]


def _read_elsewhere(graph: Graph, phases: dict[str, Phase], atom_of: dict[str, int]) -> set[str]:
    """Values that an atom makes in the forward pass and another one reads, in any; and what is fetched."""
    made: dict[str, int] = {}
    found = {region.name for region in graph.outputs.values()}
    for op in graph.operators:
        found |= {
            r.name for r in op.inputs if made.get(r.name, atom_of[op.name]) != atom_of[op.name]
        }
        if phases[op.name] == Phase.FORWARD:
            made |= {r.name: atom_of[op.name] for r in op.outputs}
    return found
