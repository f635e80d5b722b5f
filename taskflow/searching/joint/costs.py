"""What an atom costs in a stage: seconds of one micro-batch, and bytes; lowered alone, once for atoms of equal content.

Takes an atom, the devices of a stage, a way to split it within them, a number of micro-batches, and whether what it
makes is computed again. A micro-batch is lowered beside another one that is all the rest of the samples, so the cost of
a price does not grow with their number. What moves within the stage counts as if nothing were computed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array
from taskflow.cost.model import CostModel
from taskflow.graph.family import Family
from taskflow.graph.graph import Graph
from taskflow.graph.phases import Phase, phases_of
from taskflow.graph.recompute import recompute
from taskflow.graph.samples import sample_groups
from taskflow.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.searching.joint.atoms import Atom
from taskflow.searching.tables import content, subgraph
from taskflow.strategy.stages import config_in_stage
from taskflow.strategy.strategy import ParallelConfig, Strategy
from taskflow.strategy.strategy import parts as parts_of
from taskflow.tasks.task_graph import Kind, Privilege, TaskGraph

PASSES = Phase.FORWARD, Phase.BACKWARD, Phase.WEIGHT  # of every micro-batch


class AtomCosts(NamedTuple):
    """Of one atom; bytes are those of the device that holds most.

    Attributes:
        spans: seconds of a micro-batch, by PASSES.
        sync_seconds, update_seconds: once a step, of what moves gradients and of updates.
        moving_seconds: the part of `spans` in which values move within the stage.
        gradient_bytes: from the first backward pass to the update.
        transient_bytes: at most, within a micro-batch, beside all else.
        passed_bytes: of a micro-batch, from gradients of activations to those of weights.
        kept, held: number of a region -> bytes: between steps; of one micro-batch, until its backward pass.
    """

    spans: Array
    sync_seconds: float
    update_seconds: float
    moving_seconds: float
    gradient_bytes: int
    transient_bytes: int
    passed_bytes: int
    kept: Mapping[int, int]
    held: Mapping[int, int]


class Pricing:
    """Prices of the atoms of a graph, and of the same where all that can be is computed again.

    Attributes:
        atoms: as given, without what cannot be computed again in `inner`.
        again: with the clones of recomputation.
    """

    def __init__(
        self, graph: Graph, atoms: Sequence[Atom], machine: MachineModel, costs: CostModel
    ) -> None:
        self.graph, self.machine, self.costs, self.samples = (
            graph,
            machine,
            costs,
            sample_groups(graph),
        )
        self.atoms, self.again_graph = _recomputable(graph, atoms)
        self.again = _with_clones(self.again_graph, self.atoms)
        self._forward = {r.name for r in graph.inputs} | {
            r.name
            for atom in atoms
            for op, p in zip(atom.operators, atom.phases, strict=True)
            if p == 0
            for r in op.outputs
        }
        self._known: dict[object, AtomCosts | None] = {}
        self._lowerings: dict[object, tuple[Atom, Lowering]] = {}

    def price(
        self,
        number: int,
        devices: Sequence[int],
        within: Mapping[str, ParallelConfig],
        parts: int,
        is_again: bool,
    ) -> AtomCosts | None:
        """The costs of atom `number` on the devices of a stage; None: it cannot be split so.

        Args:
            number: of the atom.
            devices: of the stage.
            within: see `taskflow.stages`; it may name followers, too.
            parts: micro-batches.
            is_again: whether what it makes is computed again.
        """
        atom = (self.again if is_again else self.atoms)[number]
        own = [within.get(family.leader.name) for family in atom.families]
        followers = [within.get(op.name) for op in atom.operators if op.follows]
        key = atom.kind, (*own, *followers), tuple(devices), parts
        if key not in self._known:
            if atom.kind not in self._lowerings:
                graph = subgraph(self.again_graph if is_again else self.graph, atom.operators)
                self._lowerings[atom.kind] = atom, Lowering(graph, self.machine)
            self._known[key] = None
            with suppress(ValueError):
                shared = (
                    self._shared(number, devices, within, parts, is_again)
                    if set(key[1]) == {None}
                    else None
                )
                self._known[key] = shared or self._lowered(
                    *self._lowerings[atom.kind], own, followers, devices, parts
                )
        return self._known[key]

    def _shared(
        self,
        number: int,
        devices: Sequence[int],
        within: Mapping[str, ParallelConfig],
        parts: int,
        is_again: bool,
    ) -> AtomCosts | None:
        """Where nothing moves within a stage of equal devices, its points are those of one with more micro-batches."""
        if (
            min(parts, len(devices)) < 2
            or len({replace(self.machine.devices[d], host=0) for d in devices}) > 1
        ):
            return None
        once = self.price(number, devices, within, 1, is_again)
        if once is None or once.moving_seconds:
            return None
        if (
            each := self.price(number, devices[:1], within, parts * len(devices), is_again)
        ) is None:
            return None
        late = once.sync_seconds, once.update_seconds, 0.0, once.gradient_bytes
        return AtomCosts(
            each.spans, *late, each.transient_bytes, each.passed_bytes, once.kept, each.held
        )

    def _lowered(
        self,
        atom: Atom,
        lowering: Lowering,
        own: Sequence[ParallelConfig | None],
        followers: Sequence[ParallelConfig | None],
        devices: Sequence[int],
        parts: int,
    ) -> AtomCosts:
        """The costs of an atom whose leaders and followers have these configurations within the stage."""
        each = zip(atom.families, own, strict=True)
        strategy = Strategy(
            {f.leader.name: self._config(f, devices, config, parts) for f, config in each}
        )
        names = [op.name for op in atom.operators if op.follows]
        strategy.update(
            {
                n: on_devices(c, devices)
                for n, c in zip(names, followers, strict=True)
                if c is not None
            }
        )
        rows = lowering.lower(strategy)
        return _Read(rows, self.costs.seconds(rows), atom, self._forward).costs()

    def _config(
        self, family: Family, devices: Sequence[int], own: ParallelConfig | None, parts: int
    ) -> ParallelConfig:
        axes = self.samples.get(family.leader.name, ())
        config_in_stage(family, axes, list(devices), parts, own)  # so many samples there are
        found = config_in_stage(family, axes, list(devices), min(parts, 2), own)
        cut = [
            (axis, degree)
            for axis, degree in found.degrees
            if axis in axes and parts_of(degree) > 1
        ]
        if parts <= 2 or len(cut) != 1 or not isinstance(cut[0][1], int):
            return found if parts <= 2 else config_in_stage(family, axes, list(devices), parts, own)
        axis, each = cut[0][0], cut[0][1] // 2
        shares = [1 / parts / each] * each + [(1 - 1 / parts) / each] * each
        return ParallelConfig(
            {a: shares if a == axis else degree for a, degree in found.degrees}, found.devices
        )


def on_devices(config: ParallelConfig, devices: Sequence[int]) -> ParallelConfig:
    """A configuration of devices 0, 1, ... on others."""
    return ParallelConfig(dict(config.degrees), [devices[k] for k in config.devices])


def _recomputable(graph: Graph, atoms: Sequence[Atom]) -> tuple[list[Atom], Graph]:
    """The atoms without what cannot be computed again, and the graph in which all the rest is."""
    try:
        return list(atoms), recompute(graph, [name for atom in atoms for name in atom.inner])
    except ValueError:
        found = [
            replace(atom, inner=tuple(name for name in atom.inner if _can_be_again(graph, name)))
            for atom in atoms
        ]
        return found, recompute(graph, [name for atom in found for name in atom.inner])


def _can_be_again(graph: Graph, name: str) -> bool:
    try:
        recompute(graph, [name])
    except ValueError:
        return False
    return True


def _with_clones(graph: Graph, atoms: Sequence[Atom]) -> list[Atom]:
    """The atoms in the graph with clones; one without them is as it was."""
    phases, members = phases_of(graph.operators), [list[int]() for _ in atoms]
    atom_of = {family.leader.name: k for k, atom in enumerate(atoms) for family in atom.families}
    for number, op in enumerate(graph.operators):
        members[atom_of[op.follows or op.name]].append(number)
    found = []
    for atom, here in zip(atoms, members, strict=True):
        operators, each = tuple(graph.operators[n] for n in here), tuple(phases[n] for n in here)
        kind = content(operators), each, "again"
        found.append(
            replace(atom, operators=operators, phases=each, kind=kind) if atom.inner else atom
        )
    return found


class _Read:
    """The rows of an atom that was lowered alone, asked for its costs."""

    def __init__(self, rows: TaskGraph, seconds: Array, atom: Atom, forward: set[str]) -> None:
        self.rows, self.seconds, self.count = rows, seconds, len(rows.machine.devices)
        is_point = rows.kind == Kind.POINT
        behind = np.maximum.accumulate(np.where(is_point, rows.launch, -1))
        phase = np.array([*atom.phases, Phase.FORWARD], np.int64)[behind]
        number = {name: k for k, name in enumerate(atom.regions)}
        self.number = np.array([number[r.name] for r in rows.regions], np.int64)
        is_gradient = self._among(_gradients(atom))
        is_sync = (
            ~is_point & (rows.region >= 0) & is_gradient[rows.region] & (rows.kind != Kind.FOLD)
        )
        self.update = (phase == Phase.UPDATE) & ~is_sync
        self.sync, self.phase = is_sync, phase
        self.each = (
            (rows.ordinal == 0) & ~is_sync & (phase != Phase.UPDATE) & (rows.kind != Kind.FEED)
        )
        self.moving = self.each & ~is_point & ~((rows.region >= 0) & is_gradient[rows.region])
        self.size, self.region, self.device = (
            rows.instance_bytes(),
            rows.instance_region,
            rows.instance_device,
        )
        persistent = np.array([r.is_persistent for r in rows.regions], np.bool_)
        self.persistent, self.gradient = persistent[self.region], is_gradient[self.region]
        self.forward = self._among(forward)[self.region] & ~self.persistent

    def _among(self, names: set[str]) -> Array:
        return np.array([r.name in names for r in self.rows.regions], np.bool_)

    def costs(self) -> AtomCosts:
        """All of them."""
        rows = self.rows
        row = np.repeat(np.arange(len(rows)), np.diff(rows.arg_ptr))
        used = (rows.arg_instance >= 0) & self.each[row]
        row, instance, is_read = (
            row[used],
            rows.arg_instance[used],
            rows.arg_privilege[used] == Privilege.READ,
        )
        early, late, weight = (self._used(row, instance, phase) for phase in PASSES)
        is_read &= rows.kind[row] == Kind.POINT
        held = self.forward & np.logical_or(
            *(self._used(row[is_read], instance[is_read], p) for p in PASSES[1:])
        )
        passing = ~(held | self.persistent | self.gradient)
        return AtomCosts(
            np.array([self._seconds(self.each & (self.phase == phase)) for phase in PASSES]),
            self._seconds(self.sync),
            self._seconds(self.update),
            self._seconds(self.moving),
            sum(self._by_region(self.gradient).values()),
            self._transient(row, instance, passing),
            sum(self._by_region(passing & ~early & late & weight).values()),
            self._by_region(self.persistent),
            self._by_region(held),
        )

    def _used(self, row: Array, instance: Array, phase: Phase) -> Array:
        """Whether an instance is used in a phase."""
        found = np.zeros(len(self.size), np.bool_)
        found[instance[self.phase[row] == phase]] = True
        return found

    def _seconds(self, which: Array) -> float:
        """Of these rows on the busiest device; all of them take part in collectives."""
        shared = which & (self.rows.kind == Kind.COLLECTIVE)
        own = which & ~shared
        of_device = np.bincount(self.rows.device[own], self.seconds[own], self.count)
        return float(of_device.max(initial=0.0) + self.seconds[shared].sum())

    def _by_region(self, which: Array) -> dict[int, int]:
        """Region -> bytes of the device that holds most of it."""
        found = np.zeros((len(self.rows.regions), self.count), np.int64)
        is_sum = not which[self.gradient].any()
        (np.add if is_sum else np.maximum).at(
            found, (self.region[which], self.device[which]), self.size[which]
        )
        most = found.max(axis=1, initial=0)
        return {int(self.number[k]): int(most[k]) for k in np.flatnonzero(most)}

    def _transient(self, row: Array, instance: Array, which: Array) -> int:
        """The most bytes of instances that rows of one micro-batch use, from first to last, on a device."""
        count = len(self.rows)
        first, last = np.full(len(self.size), count), np.full(len(self.size), -1)
        np.minimum.at(first, instance, row)
        np.maximum.at(last, instance, row)
        passing = np.flatnonzero(which & (last >= 0))
        change = np.zeros((count + 1, self.count), np.int64)
        np.add.at(change, (first[passing], self.device[passing]), self.size[passing])
        np.add.at(change, (last[passing] + 1, self.device[passing]), -self.size[passing])
        return int(change.cumsum(axis=0).max(initial=0))


def _gradients(atom: Atom) -> set[str]:
    """What its updates read and its backward operators make."""
    made = {
        r.name
        for op, p in zip(atom.operators, atom.phases, strict=True)
        if p in PASSES[1:]
        for r in op.outputs
    }
    read = {
        r.name
        for op, p in zip(atom.operators, atom.phases, strict=True)
        if p == Phase.UPDATE
        for r in op.inputs
    }
    return made & read
