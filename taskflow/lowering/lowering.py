"""Lowering: graph + strategy + machine -> task graph.

Decides nothing about order or time: it partitions every operator, moves every region (`movement`), and lays the rows
out in program order (`rows`). Points of an operator are kept by its configuration (`pointstore`), and what happens to
a region by the points that touch it (`fragments`): equal layers share both, and a search that changes one operator
lowers only that operator and its neighbours again. The columns of a task graph are gathered from these parts, all at
once (`rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from taskflow.collective.choose import BY_COPIES, check_collectives, with_algorithms
from taskflow.collective.price import CollectiveCosts
from taskflow.core.columns import Array, distinct, each_once
from taskflow.core.geometry import Rect
from taskflow.core.numbers import is_whole
from taskflow.core.system import give_back_memory
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.graph.repeat import repeated
from taskflow.lowering.additions import Additions
from taskflow.lowering.alike import PlacedKind
from taskflow.lowering.digest import digest_of
from taskflow.lowering.fragments import Found, Fragments
from taskflow.lowering.homes import Homes
from taskflow.lowering.kinds import RegionKinds, alike_of, with_peers
from taskflow.lowering.life import lives, ops_of_jobs, tabulate
from taskflow.lowering.like import RowOrder, all_numbers_as_found, numbers_as_found
from taskflow.lowering.limits import check_bytes, check_host_memory, check_room
from taskflow.lowering.movement import Fragment, Mover
from taskflow.lowering.operators import Launches, kind_of, numbered, rate_or_way
from taskflow.lowering.orders import memory_orders
from taskflow.lowering.own import own_part, regions_near
from taskflow.lowering.pointstore import PointStore
from taskflow.lowering.rows import (
    ChosenPoints,
    DistinctPoints,
    IssueOrder,
    in_order,
    move_columns,
    note_later_parts,
    padded,
    placed,
    point_columns,
)
from taskflow.lowering.sample import sample_of
from taskflow.machine import MachineModel
from taskflow.strategy.orbits import Orbits, orbits_of
from taskflow.strategy.partition import to_rects
from taskflow.strategy.strategy import (
    Strategy,
    check_strategy,
    completed,
    effective_config,
    in_steps,
)
from taskflow.tasks.all_to_all import WITHOUT_RELAYS
from taskflow.tasks.launch import crossing_of
from taskflow.tasks.own import Own
from taskflow.tasks.task_graph import Launch, TaskGraph

NONE = np.zeros(0, np.int64)
Devices = Iterable[int] | Callable[[Sequence[int]], Iterable[int]]  # the latter of those in use
# Lowered and simulated while it is found out which devices do the same with a kind of region, about: CNNs on 4 to 64
# devices and a GPT on 8 (`benchmarks/orbits.py --kinds`). Both ways give the same seconds.
ROWS_OF_A_KIND = 128
NARROW = "point", "region", "arg_instance"  # columns of rows of representatives that are int32
# Bytes of a lowering that is made again, should finer rows be asked for, rather than kept beside its rows.
MUCH = 1 << 28


def lower(
    graph: Graph,
    strategy: Strategy,
    machine: MachineModel,
    collectives: Mapping[str, str] | None = None,
    repeat: int = 1,
    piece_bytes: int | None = None,
    devices: Iterable[int] | Orbits | None = None,
    bucket_bytes: int | None = None,
) -> TaskGraph:
    """The task graph of `graph` under `strategy` on `machine`.

    Deterministic: the same arguments give the same rows on every rank. Any topological order of the rows gives the
    numbers of one device.

    Args:
        graph, strategy, machine: what is computed, and where.
        collectives: by which algorithms, see `MachineModel.with_collectives`.
        repeat: so many steps as one, without a barrier between them: a row waits for what it needs of the step before
            and for nothing else. The numbers are those of single steps, bit for bit. The strategy names each operator
            once. See `Executor` for feeds and outputs. A `Trainer` runs single steps: between them it sets rates, saves
            checkpoints and looks at losses.
        piece_bytes: all-reduces of more are several rows, between which an order may put what is needed sooner (see
            `taskflow.schedule.forward_first`). It is for all-reduces that are rows, see `with_collectives`.
        devices: only the rows that touch these, with what they wait for of each other. `TaskGraph.numbers` says which
            of all rows they are. The rows of all devices together are those of the whole. Of `Orbits`, which are
            refined where these do not do the same, the rows of representatives; `TaskGraph.peers` says for what each
            stands.
        bucket_bytes: collectives of one kind among the same devices that follow each other are one call of a library,
            of so many bytes at most. `taskflow.reorder` puts together what may be: the gathers of a layer's parameters
            leave with the first, sums of gradients with the last. Own steps stay one after the other.

    Raises:
        MemoryError: rows take more than is free, and devices do not do the same.
        ValueError: the strategy does not fit the graph or the machine (the message names the operator), the graph
            cannot be repeated (see `taskflow.graph.repeat`), or there is no such device.
    """
    if piece_bytes is not None and not (is_whole(piece_bytes) and piece_bytes < 1 << 62):
        raise ValueError(f"lower: piece_bytes is at least 1, not {piece_bytes}")
    if bucket_bytes is not None and not (is_whole(bucket_bytes) and bucket_bytes < 1 << 62):
        raise ValueError(f"lower: bucket_bytes is at least 1, not {bucket_bytes}")
    steps, machine = repeated(graph, repeat), machine.with_collectives(collectives or {})
    lowering = Lowering(steps, machine, piece_bytes or 0, bucket_bytes or 0)
    return lowering.lower(in_steps(strategy, repeat), devices)


def lower_to_simulate(
    graph: Graph, strategy: Strategy, machine: MachineModel, costs: CostModel, bucket_bytes: int = 0
) -> TaskGraph:
    """See `Lowering.rows_to_simulate`; what they were made of is let go of where it takes much."""
    lowering = Lowering(graph, machine, bucket_bytes=bucket_bytes)
    lowering.is_for_once = True
    rows = lowering.rows_to_simulate(strategy, costs)
    if rows.peers is None or lowering.size_bytes < MUCH:
        return rows

    def lower_again(orbits: Orbits) -> TaskGraph:
        return Lowering(graph, machine, bucket_bytes=bucket_bytes).lower(strategy, orbits)

    del lowering.kinds  # they know how rows are made: each of both would keep the other
    rows = replace(rows, peers=replace(rows.peers, lower=lower_again))
    del lowering
    give_back_memory()
    return rows


class Ready(NamedTuple):
    """What rows are made of: numbers of points per operator, the points, the fragments, and each job's devices."""

    numbers: Array
    chosen: ChosenPoints
    by_region: Found
    used: Sequence[Array]

    @property
    def devices(self) -> Array:
        """Those in use, in order."""
        return distinct(np.concatenate(self.used))


class Lowering:
    """`lower` with its caches, for one graph and one machine; for once: of kinds that take much only rows are kept."""

    def __init__(
        self, graph: Graph, machine: MachineModel, piece_bytes: int = 0, bucket_bytes: int = 0
    ) -> None:
        self.graph, self.machine, self.bucket_bytes = graph, machine, bucket_bytes
        self.is_for_once = False
        self.operators = tuple(graph.operators)
        self.regions = tuple(graph.regions.values())
        self.number = {r.name: k for k, r in enumerate(self.regions)}
        self.fetched = {self.number[r.name] for r in graph.outputs.values()}
        check_collectives(machine)
        check_bytes(self.regions, len(machine.devices))
        check_host_memory(self.regions, machine)
        self.jobs = ops_of_jobs(self.operators)
        table = tabulate(self.operators, self.regions, self.fetched)
        self.lives = lives(self.regions, table)
        self._prices = CollectiveCosts.of(machine)
        self._streams = self._prices.table
        few_sums, few_gathers, few_exchanges = map(machine.few, BY_COPIES)
        has_relays = int(machine.collectives.get("all-to-all") not in WITHOUT_RELAYS)
        few = few_sums, few_gathers, few_exchanges, has_relays
        doors, streams = machine.ways.most_doors, self._streams.of_device
        self.mover = Mover(machine.equals, few, doors, streams, self.lives, table, piece_bytes)
        self.orders = memory_orders(self.operators)
        self.op_kind = numbered([kind_of(op) for op in self.operators])
        self.life_kind = numbered([life.kind for life in self.lives])
        self._itemsize = np.array([r.itemsize for r in self.regions], np.int64)
        self.compute_dtype = [rate_or_way(op) for op in self.operators]
        self.dtype_kind = numbered([r.dtype for r in self.regions])
        self.ndim = max([r.ndim for r in self.regions] + [1])
        self._args = np.array([len(op.args) for op in self.operators], np.int64)
        self.store = PointStore(self.operators, self.op_kind)
        self.additions = Additions(self.operators, graph.outputs.values(), self.store)
        self.launches = Launches(graph, self.number, self.store, self.ndim)
        self.cost_kind = numbered(self.launches.identities)
        self.fragments = Fragments(self.mover, self.store, self.life_kind)
        self.order = IssueOrder(table, self._args)
        self.kinds = RegionKinds(table, machine, self._moving_narrow)

    def lower(self, strategy: Strategy, devices: Devices | Orbits | None = None) -> TaskGraph:
        """See `taskflow.lower`."""
        ready = self._ready(strategy)
        if isinstance(devices, Orbits):
            return self._orbit_rows(ready)(devices)
        if devices is not None:
            return self._own_rows(ready, self._marked(devices, ready.devices))
        return self._all_rows(ready)

    def lower_in_order(self, strategy: Strategy, devices: Devices, order: RowOrder) -> TaskGraph:
        """The rows of some devices in an order of all rows."""
        ready = self._ready(strategy)
        return self._own_rows(ready, self._marked(devices, ready.devices), order)

    def order_of(self, rows: TaskGraph, order: Array, strategy: Strategy) -> RowOrder:
        """The order of all rows of a strategy, from that of all rows or those of representatives."""
        ready = self._ready(strategy)
        chosen, by_region = ready.chosen.all(), ready.by_region
        if (peers := rows.peers) is None:
            alone = np.arange(len(self.machine.devices))
            numbers = all_numbers_as_found(chosen, by_region, self.order)
            return RowOrder(alone, numbers[order], np.arange(len(order)))
        count = peers.count[order]
        representative = peers.orbits.representative[peers.orbits.of]
        numbers = numbers_as_found(rows, chosen, by_region)
        return RowOrder(representative, numbers[order], np.cumsum(count) - count)

    def rows_to_simulate(self, strategy: Strategy, costs: CostModel) -> TaskGraph:
        """Rows of which `simulate` says what it says of all.

        Those of representatives, where the rows of all others take longer than to find out who does the same, and the
        costs know no rows; else all.
        """
        ready = self._ready(strategy)
        points, fragments = self.store.table.record["points"], ready.by_region.fragments
        moves = np.array([len(fragment.row) for fragment in fragments])
        rows = points[ready.numbers].sum() + moves[ready.by_region.which].sum()
        least = ROWS_OF_A_KIND * len(fragments)

        def is_worth(orbits: Orbits) -> bool:
            others = 1 - len(np.unique(orbits.of[ready.devices])) / len(ready.devices)
            return bool(others * rows > least)

        if costs.knows_no_rows and rows > least:
            orbits = orbits_of(self.graph, strategy, self.machine)
            fewer = self._orbit_rows(ready)(orbits) if is_worth(orbits) else None
            if fewer and fewer.peers and is_worth(fewer.peers.orbits):
                return fewer
        return self._all_rows(ready)

    @property
    def size_bytes(self) -> int:
        """Memory that points, fragments and kinds of regions take."""
        return self.store.size_bytes + self.fragments.size_bytes + self.kinds.size_bytes

    def _ready(self, strategy: Strategy) -> Ready:
        """What the rows of a strategy are made of."""
        if not self.operators:
            raise ValueError("lower: the graph has no operators")
        check_strategy(self.graph, strategy, len(self.machine.devices))
        numbers = self.numbers(strategy)
        chosen = self.launches.choose(numbers)
        used = [chosen.used(ops) for ops in self.jobs]
        return Ready(numbers, chosen, self.fragments.find(numbers, used), used)

    def _all_rows(self, ready: Ready) -> TaskGraph:
        check_room(sum(len(fragment.row) for fragment in ready.by_region.fragments))
        rows, _ = self._assemble(ready, ready.chosen.all(), ready.by_region)
        return with_algorithms(rows, self._prices)

    def _own_rows(self, ready: Ready, is_own: Array, order: RowOrder | None = None) -> TaskGraph:
        """The rows that touch the devices that are marked, in program order, or in that of all rows."""
        chosen, by_region = ready.chosen.all(), ready.by_region
        is_near = regions_near(by_region, chosen, self.mover.table, is_own)
        sample = sample_of(by_region, chosen, self.mover.table, is_near)
        representative = order and order.representative
        part = own_part(sample, chosen, by_region, self.order, is_own, representative)
        rows, row = self._assemble(ready, part.chosen, part.by_region)
        whole, wholes = placed([part.whole], row), self._moving(part.wholes, sample.regions)
        algorithm, streams, together = rows.algorithm, rows.streams, whole >= 0
        algorithm[together] = wholes.algorithm[whole[together]]
        streams[together] = wholes.streams[whole[together]]
        facts = rows.launches, rows.regions, rows.orders, chosen, by_region, self.machine
        devices = tuple(np.flatnonzero(is_own).tolist())
        homes = self._homes(by_region, by_region.shift, lambda f: f.instance_device[f.homes])
        of_all = digest_of(*facts), homes, self._fetching(by_region), wholes, whole
        number = placed([part.number], row)
        rows = replace(
            rows,
            point=placed([part.place], row),
            ways=wholes.ways,
            groups=wholes.groups,
            own=Own(number, devices, *of_all),
        )
        if order is None or part.alike is None:
            return rows
        number = placed([order.place(*part.alike)], row)
        ordered = rows.own and rows.own.in_order_of_all(number, order.digest)
        return replace(rows.reordered(np.argsort(number)), own=ordered)

    def _orbit_rows(self, ready: Ready) -> Callable[[Orbits], TaskGraph]:
        """A function that makes the rows of representatives of orbits, which it refines; see `alike`."""
        return partial(self._rows_of, ready, *self.kinds.of(ready.by_region, ready.chosen), ())

    def _rows_of(
        self,
        ready: Ready,
        kinds: Sequence[PlacedKind],
        which: Array,
        seeds: tuple[Orbits, ...],
        coarse: Orbits,
    ) -> TaskGraph:
        """The rows of representatives of orbits, at least as fine as some; `seeds`: what was asked for before."""
        seeds = *seeds, coarse
        orbits = self.kinds.refined(kinds, seeds)
        parts, part = each_once([kind.part(orbits) for kind in kinds])
        by_region = Found(parts, part[which], ready.by_region.shift)
        alike = alike_of(kinds, orbits)
        if self.size_bytes >= MUCH:
            for kind in kinds if self.is_for_once else ():
                kind.table.let_go()
            give_back_memory()
        rows, row = self._assemble(ready, ready.chosen.on(orbits.is_first), by_region, True)
        finer = partial(self._rows_of, ready, kinds, which, seeds)
        return with_peers(rows, row, kinds, which, alike, orbits, finer)

    def _moving(self, by_region: Found, regions: Array) -> TaskGraph:
        """The rows that move some regions, without dependences, with algorithms."""
        return with_algorithms(self._sample(NONE, NONE, by_region, regions), self._prices)

    def _moving_narrow(self, by_region: Found, regions: Array) -> TaskGraph:
        """The same, narrow and without what nobody asks of their instances."""
        rows = self._sample(NONE, NONE, by_region, regions, is_narrow=True)
        box = np.zeros((0, *rows.instance_box.shape[1:]), rows.instance_box.dtype)
        rows = replace(rows, instance_region=NONE, instance_box=box)
        return with_algorithms(rows, self._prices)

    def _marked(self, devices: Devices, used: Array) -> Array:
        """Of every device, whether it is one of these; ValueError if there is no such device."""
        if callable(devices):
            devices = devices(tuple(used.tolist()))
        is_marked = np.zeros(len(self.machine.devices), np.bool_)
        for device in devices:
            if not (is_whole(device, 0) and device < len(is_marked)):
                raise ValueError(f"lower: devices name device {device!r} of {len(is_marked)}")
            is_marked[device] = True
        return is_marked

    def numbers(self, strategy: Strategy) -> Array:
        """The points of every operator, by their numbers in the store."""
        strategy = completed(self.graph, strategy)
        configs = (effective_config(op, strategy)[0] for op in self.operators)
        numbers = np.array(
            [self.store.number(op, config) for op, config in enumerate(configs)], np.int64
        )
        self.additions.settle(numbers)
        return numbers

    def sample(
        self, points: Sequence[tuple[int, int]], fragments: Sequence[tuple[int, Fragment]]
    ) -> TaskGraph:
        """Rows of some operators, then those of some regions, without dependences: enough to ask what they cost.

        Args:
            points: operators, and the numbers of their points.
            fragments: regions, and their fragments.
        """
        ops, numbers = np.array(points, np.int64).reshape(-1, 2).T
        regions = np.array([region for region, _ in fragments], np.int64)
        by_region = Found(
            [f for _, f in fragments], np.arange(len(fragments)), np.zeros_like(regions)
        )
        return self._sample(ops, numbers, by_region, regions)

    def _sample(
        self, ops: Array, numbers: Array, by_region: Found, regions: Array, is_narrow: bool = False
    ) -> TaskGraph:
        """See `sample`."""
        first, instances = self._instances(by_region, regions, is_narrow)
        parts = [self._points(ops, numbers)] if len(ops) else []
        if len(regions):
            parts.append(move_columns(by_region, regions, self._itemsize, first, self.ndim))
        row = np.arange(sum(len(part["kind"]) for part in parts))
        launches = tuple(
            self.launches.of(*point) for point in zip(ops.tolist(), numbers.tolist(), strict=True)
        )
        return self._task_graph(parts, row, launches, is_narrow, **instances)

    # -- assembling ------------------------------------------------------------------------------------------------

    def _assemble(
        self, ready: Ready, chosen: DistinctPoints, by_region: Found, is_narrow: bool = False
    ) -> tuple[TaskGraph, Array]:
        """The task graph, without algorithms, and which row everything is, in the order in which it is found."""
        regions, (versions, _) = np.arange(len(self.regions)), by_region.version_rows()
        count = np.concatenate([chosen.points[chosen.which], versions])
        check_room(int(count.sum()))
        first, instances = self._instances(by_region, regions, is_narrow)
        points = point_columns(self._args, chosen, self.order.instances(by_region, count, first))
        if points["ordinal"].any():
            note_later_parts(points)
        moves = move_columns(by_region, regions, self._itemsize, first, self.ndim)
        row = self.order.rows(count, np.concatenate([points["ordinal"], moves["ordinal"]]))
        dep_ptr, dep_row = self.order.dependences(by_region, count, row)
        task_graph = self._task_graph(
            [points, moves],
            row,
            tuple(self.launches.of(op, number) for op, number in enumerate(ready.numbers.tolist())),
            dep_ptr=dep_ptr,
            dep_row=dep_row,
            homes=self._homes(by_region, first, lambda f: f.homes),
            fetches=self._fetches(by_region, first),
            devices_used=tuple(ready.devices.tolist()),
            is_narrow=is_narrow,
            **instances,
        )
        task_graph.check()
        return task_graph, row

    def _task_graph(
        self,
        parts: Sequence[dict[str, Any]],
        row: Array,
        launches: tuple[Launch, ...],
        is_narrow: bool = False,
        **rest: Any,
    ) -> TaskGraph:
        """The task graph where part k is row `row[k]`, the rest empty; narrow: with `Selected` boxes, and int32."""
        columns = in_order(parts, row, NARROW if is_narrow else ())
        if not is_narrow:
            columns["arg_box"] = np.asarray(columns["arg_box"], np.int64)
        names = ("kind", "source", "device", "arg_ptr")
        kind, source, device, arg_ptr = (columns[name] for name in names)
        instance, device_of = columns["arg_instance"], rest["instance_device"]
        crossing = crossing_of(launches, columns["launch"])
        arg_device = device_of[instance] if len(device_of) else instance
        dtype = np.int32 if is_narrow else np.int64
        rows = kind, source, device, crossing, arg_ptr, arg_device
        streams, groups = self._streams.of_rows(*rows, dtype)
        no_deps = {"dep_ptr": np.zeros(len(kind) + 1, np.int64), "dep_row": np.zeros(0, np.int64)}
        given: dict[str, Any] = {"homes": {}, "fetches": {}, **no_deps, **rest}
        return TaskGraph(
            machine=self.machine,
            launches=launches,
            regions=self.regions,
            streams=streams,
            groups=groups,
            algorithm=np.full(len(kind), -1, dtype),
            combine=self.launches.combine,
            orders=self.orders,
            uses_tf32=self.graph.precision.dtype == "tf32",
            repeat=self.graph.repeat,
            bucket_bytes=self.bucket_bytes,
            **given,
            **columns,
        )

    def _points(self, ops: Array, numbers: Array) -> dict[str, Any]:
        """The rows of operators with points of these numbers, instances left open."""
        return point_columns(self._args[ops], self.launches.choose(numbers).all())

    def _instances(
        self, by_region: Found, regions: Array, is_narrow: bool = False
    ) -> tuple[Array, dict[str, Any]]:
        """The first instance of each of these regions, and the columns of all their instances."""
        device, count = by_region.gather(lambda f: f.instance_device)
        boxes = by_region.select(lambda f: padded(f.instance_box, self.ndim, self.store.box_dtype))
        return np.cumsum(count) - count, {
            "instance_region": np.repeat(regions, count),
            "instance_device": device + np.repeat(by_region.shift, count),
            "instance_box": boxes if is_narrow else np.asarray(boxes, np.int64),
            "instance_partial": by_region.gather(lambda f: f.instance_partial)[0].astype(np.bool_),
        }

    def _homes(self, by_region: Found, first: Array, read: Callable[[Fragment], Array]) -> Homes:
        """See `TaskGraph`: what is read of a fragment's homes, with what is added to it in every region."""
        parts = [(read(f), cache(partial(to_rects, f.home_box))) for f in by_region.fragments]
        of_regions = zip(self.regions, by_region.which.tolist(), first.tolist(), strict=True)
        return Homes(
            {r.name: (*parts[which], begin) for r, which, begin in of_regions if r.is_persistent}
        )

    def _fetches(
        self, by_region: Found, first: Array
    ) -> dict[str, tuple[tuple[int, int, Rect], ...]]:
        """Output name -> device, instance and box of every fetch; `first`: the first instance of every region."""
        fetches = {}
        for name, region in self.graph.outputs.items():
            number = self.number[region.name]
            fetching = by_region.fragments[by_region.which[number]].fetches.tolist()
            fetches[name] = tuple((d, int(first[number]) + k, region.rect) for d, k in fetching)
        return fetches

    def _fetching(self, by_region: Found) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Output name -> its region and all devices that fetch it."""
        regions = {name: self.number[region.name] for name, region in self.graph.outputs.items()}
        return {
            name: (k, tuple(by_region.fragments[by_region.which[k]].fetches[:, 0].tolist()))
            for name, k in regions.items()
        }
