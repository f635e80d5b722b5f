"""Pipelines as a walk changes them, and the moves that it makes.

A `PlannedPipeline` says of every stage its atoms, its devices, how it is split within them and which of its atoms are
computed again, and how many micro-batches there are. Its schedule is decided apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.schedule.plan import Plan
from taskflow.schedule.schedule import Schedule
from taskflow.searching.joint.cells import DATA, Cells, CellTables
from taskflow.searching.joint.costs import on_devices
from taskflow.searching.joint.cutting import Found
from taskflow.strategy.stages import stages
from taskflow.strategy.strategy import ParallelConfig


class PlannedStage(NamedTuple):
    """A stage: atoms from `begin` to before `end`, on `devices` devices from `first` on.

    Attributes:
        split: the name of its split within them.
        again: its atoms that are computed again.
    """

    begin: int
    end: int
    first: int
    devices: int
    split: str
    again: frozenset[int]


class PlannedPipeline(NamedTuple):
    """Stages in the order of atoms, and micro-batches."""

    stages: tuple[PlannedStage, ...]
    parts: int

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The devices of every stage."""
        return tuple(tuple(range(s.first, s.first + s.devices)) for s in self.stages)

    def __str__(self) -> str:
        sizes = sorted({stage.devices for stage in self.stages})
        splits = ", ".join(sorted({stage.split for stage in self.stages}))
        again, atoms = (
            sum(len(stage.again) for stage in self.stages),
            sum(s.end - s.begin for s in self.stages),
        )
        of = (
            "-".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))
            + f" of {len(set().union(*self.groups))} devices"
        )
        recomputed = f", {again} of {_say(atoms, 'atom')} recomputed" if again else ""
        many = f"{_say(len(self.stages), 'stage')} on {of} ({splits})"
        return f"{many} x {_say(self.parts, 'micro-batch', 'es')}{recomputed}"


def _say(count: int, what: str, several: str = "s") -> str:
    return f"{count} {what}{several if count > 1 else ''}"


def pipeline_of_cut(
    tables: CellTables, cells: Cells, found: Found, parts: int, devices: int
) -> PlannedPipeline:
    """What `cutting` found, on the last of so many devices."""
    first, planned = devices - sum(cells.ways[way].devices for way, _, _ in found), []
    for number, begin, last in found:
        way = cells.ways[number]
        again = tables.recomputable & frozenset(range(begin, last + 1) if way.is_again else ())
        planned.append(PlannedStage(begin, last + 1, first, way.devices, way.split, again))
        first += way.devices
    return PlannedPipeline(tuple(planned), parts)


def loops(pipeline: PlannedPipeline, groups: int) -> Iterator[PlannedPipeline]:
    """Two stages on each of so many groups of devices: around twice, or there and back with one stage at the turn."""
    old, size = pipeline.stages, pipeline.stages[0].devices
    around = [stage._replace(first=k % groups * size) for k, stage in enumerate(old)]
    back = [stage._replace(first=min(k, 2 * groups - 1 - k) * size) for k, stage in enumerate(old)]
    turn = back[groups - 1]._replace(
        end=back[groups].end, again=old[groups - 1].again | old[groups].again
    )
    yield pipeline._replace(stages=tuple(around))
    yield pipeline._replace(stages=(*back[: groups - 1], turn, *back[groups + 1 :]))


def plan_of(
    graph: Graph,
    machine: MachineModel,
    tables: CellTables,
    pipeline: PlannedPipeline,
    schedule: Schedule | str | None,
) -> Plan:
    """The plan of a pipeline under a schedule."""
    atoms, within = tables.pricing.atoms, dict[str, ParallelConfig]()
    for stage in pipeline.stages:
        split = tables.splits(stage.devices)[stage.split]
        leaders = {
            family.leader.name
            for atom in atoms[stage.begin : stage.end]
            for family in atom.families
        }
        within |= {name: config for name, config in split.items() if name in leaders}
    cuts = [atoms[stage.begin].name for stage in pipeline.stages[1:]]
    strategy = stages(graph, machine, cuts=cuts, within=within, devices=pipeline.groups)
    for stage, group in zip(pipeline.stages, pipeline.groups, strict=True):
        split = tables.splits(stage.devices)[stage.split]
        for op in (op for atom in atoms[stage.begin : stage.end] for op in atom.operators):
            if op.follows and op.name in split:
                strategy[op.name] = on_devices(split[op.name], group)
    again = sorted(k for stage in pipeline.stages for k in stage.again)
    recomputed = tuple(name for k in again for name in atoms[k].inner)
    return Plan(strategy, pipeline.parts, schedule, recomputed)


# -- moves -------------------------------------------------------------------------------------------------------------


def moves(pipeline: PlannedPipeline, tables: CellTables) -> Iterator[PlannedPipeline]:
    """All that one move makes of it; stages have the same devices, or none in common."""
    old, parts = pipeline.stages, pipeline.parts
    yield from (PlannedPipeline(old, many) for many in (2 * parts, parts // 2) if many)
    changed = [
        (*old[:k], *other, *old[k + 1 :])
        for k, stage in enumerate(old)
        for other in _alone(stage, tables)
    ]
    for k, (left, right) in enumerate(pairwise(old)):
        changed += [(*old[:k], *pair, *old[k + 2 :]) for pair in _together(left, right, tables)]
    for each in changed:
        found = PlannedPipeline(each, parts)
        if sum(map(len, set(found.groups))) == len(set().union(*found.groups)):
            yield found


def _alone(stage: PlannedStage, tables: CellTables) -> Iterator[Sequence[PlannedStage]]:
    """Another split, more or less of it computed again, or two stages instead."""
    everything = tables.recomputable & frozenset(range(stage.begin, stage.end))
    for split in tables.splits(stage.devices):
        if split != stage.split:
            yield [stage._replace(split=split)]
    kinds = {
        tables.pricing.atoms[k].kind: k for k in sorted(everything - stage.again, reverse=True)
    }
    less = {tables.pricing.atoms[k].kind: k for k in sorted(stage.again)}
    toggled = [stage.again | {k} for k in kinds.values()] + [
        stage.again - {k} for k in less.values()
    ]
    for again in dict.fromkeys([frozenset[int](), everything, *toggled]):
        if again != stage.again:
            yield [stage._replace(again=again)]
    for size in tables.sizes:
        if size < stage.devices and stage.devices - size in tables.sizes:
            for middle in _shared_out(stage, size):
                yield _halves(stage, middle, size)


def _shared_out(stage: PlannedStage, size: int) -> list[int]:
    """Where a stage is cut whose first part is on so many of its devices."""
    middle = stage.begin + round((stage.end - stage.begin) * size / stage.devices)
    return [k for k in (middle - 1, middle, middle + 1) if stage.begin < k < stage.end]


def _halves(stage: PlannedStage, middle: int, size: int) -> list[PlannedStage]:
    early = frozenset(k for k in stage.again if k < middle)
    left = stage._replace(end=middle, devices=size, split=DATA, again=early)
    rest = stage.first + size, stage.devices - size
    return [left, PlannedStage(middle, stage.end, *rest, DATA, stage.again - early)]


def _together(
    left: PlannedStage, right: PlannedStage, tables: CellTables
) -> Iterator[Sequence[PlannedStage]]:
    """The cut between two stages moved by an atom, their devices shared out in another way, or one stage of both."""
    again, many = left.again | right.again, left.devices + right.devices
    both = PlannedStage(left.begin, right.end, left.first, many, left.split, again)
    for middle in (left.end - 1, left.end + 1):
        if left.begin < middle < right.end:
            early = frozenset(k for k in again if k < middle)
            yield [
                left._replace(end=middle, again=early),
                right._replace(begin=middle, again=again - early),
            ]
    if left.first + left.devices != right.first:
        return
    for size in tables.sizes:
        if size != left.devices and many - size in tables.sizes:
            yield _halves(both, left.end, size)
    if many in tables.sizes:
        yield [both if left.split in tables.splits(many) else both._replace(split=DATA)]
