"""The idea of taskflow in one file: NumPy alone, from a pattern to a strategy that a walk finds.

`python docs/from_scratch.py` searches, predicts and trains. Each part is the smallest thing that is still right, and
stands for folders of the product (in brackets, with what is left out): where both do the same, rows, seconds and
numbers are equal (tests/docs/test_from_scratch.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Box = tuple[tuple[int, int], ...]  # from, and to before, along every dimension
Place = tuple["Instance", Box]
Held = list[tuple[int, Box]]  # by devices


# -- 1. A model is operators over regions [taskflow/graph; windows, groups of axes, several outputs] --
# A region is a named array without storage. An operator reads regions and writes one, and its pattern says all that is
# ever asked about how it may be split: "b i, o i -> b o" has a term for each input and, behind the arrow, the output.
# Equal names are equal extents; "." is the one point of a scalar.
@dataclass(eq=False)
class Region:
    """A named array, that is fed ("input"), kept between steps ("parameter") or made by an operator."""

    name: str
    shape: tuple[int, ...]
    kind: str = "made"


@dataclass(eq=False)
class Operator:
    """A kernel over named axes, of `flops` a point. One that writes an input updates it in place."""

    name: str
    pattern: str
    inputs: list[Region]
    output: Region
    kernel: Callable[..., np.ndarray]
    flops: float

    def __post_init__(self) -> None:
        read, written = self.pattern.split("->")
        self.read = [term.split() for term in read.split(",")][: len(self.inputs)]
        self.written = self.read[0] if self.output in self.inputs else written.split()
        terms = zip([*self.read, self.written], [*self.inputs, self.output], strict=True)
        self.extents = {a: n for axes, r in terms for a, n in zip(axes, r.shape, strict=True)}


@dataclass
class Graph:
    """Operators in program order; `pulls` append the gradients of each, and are called from the last to the first."""

    operators: list[Operator] = field(default_factory=list)
    pulls: list[Callable[[], None]] = field(default_factory=list)
    gradients: dict[Region, Region] = field(default_factory=dict)

    def launch(self, name: str, pattern: str, inputs: list[Region], *rest: object) -> Region:
        """Append an operator, of which the rest is output, kernel and flops; the output."""
        self.operators.append(Operator(name, pattern, inputs, *rest))
        return self.operators[-1].output

    def linear(self, x: Region, width: int, name: str) -> Region:
        """y = x w^T. Split "b": data parallel. Split "o": tiles of y. Split "i": partial sums of y."""
        w = Region(f"{name}.weight", (width, x.shape[1]), "parameter")
        y, dx = Region(name, (x.shape[0], width)), Region(f"{name}.dx", x.shape)
        dw = Region(f"{name}.dweight", w.shape)
        self.launch(name, "b i, o i -> b o", [x, w], y, lambda x, w: x @ w.T, 2)

        def pull() -> None:
            dy, times_dy = self.gradients[y], lambda dy, x: dy.T @ x
            if x.kind == "made":
                self.launch(dx.name, "b o, o i -> b i", [dy, w], dx, np.matmul, 2)
            self.launch(dw.name, "b o, b i -> o i", [dy, x], dw, times_dy, 2)
            self.gradients |= {x: dx, w: dw}

        self.pulls.append(pull)
        return y

    def relu(self, x: Region, name: str) -> Region:
        """max(x, 0), element by element: any axis may be split, and nothing has to move."""
        y, dx = Region(name, x.shape), Region(f"{name}.dx", x.shape)
        self.launch(name, "b o -> b o", [x], y, lambda x: np.maximum(x, 0), 1)

        def pull() -> None:
            inputs, masked = [self.gradients[y], y], lambda dy, y: dy * (y > 0)
            self.gradients[x] = self.launch(dx.name, "b o, b o -> b o", inputs, dx, masked, 1)

        self.pulls.append(pull)
        return y

    def mse_loss(self, x: Region, t: Region) -> None:
        """The mean of (x - t)². No axis is in its output: however it is split, its results are partial sums."""
        loss, one = Region("mse_loss", (1,)), Region("mse_loss.one", (1,))
        dx, n = Region("mse_loss.dx", x.shape), math.prod(x.shape)
        square = lambda x, t: np.sum((x - t) ** 2) / n
        self.launch(loss.name, "b o, b o -> .", [x, t], loss, square, 3)

        def pull() -> None:
            self.launch(one.name, "-> .", [], one, lambda: np.ones(1), 1)
            slope = lambda one, x, t: one * 2 * (x - t) / n
            self.launch(dx.name, "., b o, b o -> b o", [one, x, t], dx, slope, 3)
            self.gradients[x] = dx

        self.pulls.append(pull)

    def sgd(self) -> None:
        """Append the backward pass and the updates: operators like all the others, and split like them."""
        for pull in reversed(self.pulls):
            pull()
        rate, step = Region("learning_rate", (1,), "parameter"), lambda w, dw, rate: w - rate * dw
        for w, dw in self.gradients.items():
            if w.kind == "parameter":
                self.launch(f"{w.name}.sgd", "o i, o i, . ->", [w, dw, rate], w, step, 2)


# -- 2. A strategy says what is split, and where the parts run [taskflow/strategy; uneven parts, several on a device] --
# A degree for each split axis and a device for every point, row-major. From pattern and configuration follow all boxes.
# An axis of the output makes tiles. An axis that is read and in no output makes partial sums. An axis that the operator
# lacks makes replicas: the update of a weight follows {"b": 4}, and runs on all four devices.

Config = tuple[Mapping[str, int], tuple[int, ...]]  # degrees, devices
Strategy = Mapping[str, Config]  # of the forward operators, by name


@dataclass(frozen=True)
class Point:
    """A part of an operator: the boxes that it reads and writes on its device; `size` in points."""

    device: int
    reads: list[Box]
    writes: Box
    size: int
    is_partial: bool


def points_of(op: Operator, degrees: Mapping[str, int], devices: Sequence[int]) -> Iterator[Point]:
    """The points of an operator: its own axes count in the order of its pattern, then replicas."""
    is_partial = any(n > 1 and a in op.extents and a not in op.written for a, n in degrees.items())
    axes = [a for a in op.extents if a in degrees] + [a for a in degrees if a not in op.extents]
    for numbers in itertools.product(*(range(degrees[axis]) for axis in axes)):
        number, place = dict(zip(axes, numbers, strict=True)), 0
        for axis, degree in degrees.items():
            place = place * degree + number[axis]
        part = {a: part_of(n, number.get(a, 0), degrees.get(a, 1)) for a, n in op.extents.items()}
        reads = [tuple(part[axis] for axis in term) for term in op.read]
        writes, size = tuple(part[axis] for axis in op.written), volume(tuple(part.values()))
        yield Point(devices[place], reads, writes, size, is_partial)


def part_of(extent: int, k: int, count: int) -> tuple[int, int]:
    return extent * k // count, extent * (k + 1) // count


def volume(box: Box) -> int:
    return math.prod(high - low for low, high in box)


def intersect(a: Box, b: Box) -> Box:
    both = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return both if all(low < high for low, high in both) else ()


# -- 3. Lowering: rows, and what each waits for [taskflow/lowering, collective; rings, trees, shards of parameters] --
# `Lowering` plays the life of every region over the points. Memory is instances: a box of a region on a device. Where a
# device lacks what its points read, a copy appears; where there are partial sums, copies and additions. Nobody says
# "all-reduce": where everyone has a part of a sum and needs the whole, each adds a piece and sends that to the others.
# Reduce-scatter, all-gather, broadcast, all-to-all appear in the same way. A row waits for the rows that wrote what it
# reads, and for those that read or wrote what it overwrites: any order that respects this gives the same numbers.
@dataclass(eq=False)
class Instance:
    """Memory on one device. `uses`: box, row and whether it wrote, of all for which another row may wait."""

    device: int
    box: Box
    holds_parts: bool = False
    uses: list[tuple[Box, int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.array = np.zeros([high - low for low, high in self.box])


def view(array: np.ndarray, box: Box, frame: Box = ()) -> np.ndarray:
    """A box of an array that holds another box, or a whole region."""
    pairs = zip(box, frame or [(0, 0)] * len(box), strict=True)
    return array[tuple(slice(low - first, high - first) for (low, high), (first, _) in pairs)]


@dataclass
class Row:
    """A task: a feed, a point, a copy from `source`, or a fold, which adds partial sums."""

    kind: str
    name: str
    reads: list[Place]
    write: Place
    kernel: Callable[..., np.ndarray]
    flops: float = 0.0
    after: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        is_copy, self.device = self.kind == "copy", self.write[0].device
        self.source = self.reads[0][0].device if is_copy else self.device
        updates = self.kind == "point" and self.write in self.reads  # that memory counts once
        places = [self.write] if is_copy else self.reads if updates else [*self.reads, self.write]
        self.bytes = 8 * sum(volume(box) for _, box in places)  # of float64


class Lowering:
    """The task graph of a graph under a strategy: what is simulated, and what runs."""

    def __init__(self, graph: Graph, strategy: Strategy) -> None:
        self.rows, self.instances = list[Row](), dict[Region, list[Instance]]()
        leader = {op: op.name.split(".")[0] for op in graph.operators}  # the forward operator
        self.points = {op: list(points_of(op, *strategy[name])) for op, name in leader.items()}
        self.count = 1 + max(p.device for points in self.points.values() for p in points)
        for op, points in self.points.items():
            for region in (region for region in op.inputs if region not in self.instances):
                for device, box in self.needs(region):
                    place = self.place(region, device, box)  # a parameter is here already
                    if region.kind == "input":
                        self.add(Row("feed", region.name, [], place, np.zeros))
            for p in points:
                inputs = zip(op.inputs, p.reads, strict=True)
                reads = [self.place(region, p.device, box) for region, box in inputs]
                write = self.place(op.output, p.device, p.writes, p.is_partial)
                self.add(Row("point", op.name, reads, write, op.kernel, op.flops * p.size))
            if op.output not in op.inputs:
                self.deliver(op.output, points)

    def needs(self, region: Region) -> Held:
        """Who needs which box of a region, by device; everybody fetches the loss."""
        readers = [(op, k) for op in self.points for k, r in enumerate(op.inputs) if r is region]
        asked = {(point.device, point.reads[k]) for op, k in readers for point in self.points[op]}
        everybody = range(self.count if region.name == "mse_loss" else 0)
        return sorted(asked | {(device, ((0, 1),)) for device in everybody})

    def place(self, region: Region, device: int, box: Box, parts: bool = False) -> Place:
        """Where a box is on a device: in the largest that is needed around it, else in memory of its own."""
        held = self.instances.setdefault(region, [])
        for instance in sorted(held, key=lambda i: i.holds_parts, reverse=parts):
            is_here = instance.device == device and (parts or not instance.holds_parts)
            if is_here and intersect(instance.box, box) == box:
                return instance, box
        needs = [b for d, b in self.needs(region) if d == device and intersect(b, box) == box]
        needs = [b for b in needs if b == box] if parts else needs
        held.append(Instance(device, max(needs, key=volume, default=box), parts and not needs))
        return held[-1], box

    def add(self, row: Row) -> None:
        """Append a row behind those for which it waits."""
        target, written = row.write
        touched = [*((instance, box, False) for instance, box in row.reads), (*row.write, True)]
        for instance, box, writes in touched:
            uses = [use for use in instance.uses if intersect(use[0], box)]
            row.after += [number for _, number, wrote in uses if wrote or writes]
        row.after = sorted(set(row.after))
        target.uses = [use for use in target.uses if intersect(use[0], written) != use[0]]
        for instance, box, writes in touched:
            instance.uses.append((box, len(self.rows), writes))
        self.rows.append(row)

    def deliver(self, region: Region, points: list[Point]) -> None:
        """Bring what points made to whoever needs it, each piece from the nearest that holds it."""
        held, moves = [(point.device, point.writes) for point in points], []
        if any(point.is_partial for point in points):
            held = self.add_up(region, held)
        for device, need in self.needs(region):
            target, _ = self.place(region, device, need)
            for box in dict.fromkeys(box for _, box in held):
                nearest = min((d - device) % self.count for d, b in held if b == box)
                source, _ = self.place(region, (device + nearest) % self.count, box)
                piece = intersect(box, need)
                if piece and source is not target:
                    moves.append(((source, piece), (target, piece)))
        self.copy(region, moves)

    def copy(self, region: Region, moves: list[tuple[Place, Place]]) -> None:
        """In each round every device has another source; what stays on a device comes last."""
        rounds = lambda m: ((m[0][0].device - m[1][0].device - 1) % self.count, m[1][0].device)
        for source, target in sorted(dict.fromkeys(moves), key=rounds):
            self.add(Row("copy", region.name, [source], target, np.positive))

    def add_up(self, region: Region, held: Held) -> Held:
        """Add partial sums, each piece on one device; who holds which piece of the sum then."""
        sums, moves = dict[tuple[int, Box], list[Place]](), list[tuple[Place, Place]]()
        for tile in dict.fromkeys(box for _, box in held):
            members = sorted(device for device, box in held if box == tile)
            readers = [(d, intersect(tile, b)) for d, b in self.needs(region) if intersect(tile, b)]
            for owner, piece in pieces_of(tile, members, readers):
                parts = [self.place(region, member, piece, parts=True) for member in members]
                here = [(i if i.device == owner else Instance(owner, b), b) for i, b in parts]
                moves += [(part, at) for part, at in zip(parts, here, strict=True) if part != at]
                sums[owner, piece] = here
        self.copy(region, moves)
        for (owner, piece), here in sums.items():
            total = self.place(region, owner, piece)
            self.add(Row("fold", region.name, here, total, lambda *parts: sum(parts)))
        return list(sums)


def pieces_of(tile: Box, members: list[int], readers: Held) -> Held:
    """Who adds which piece of a sum: where all that have a part need the whole, each an equal piece."""
    (low, high), count = tile[0], len(members)
    if [(d, tile) for d in members] == readers and high - low >= count:
        cut = lambda k: tuple(low + end for end in part_of(high - low, k, count))
        return [(device, (cut(k), *tile[1:])) for k, device in enumerate(members)]
    return readers if len({box for _, box in readers}) == len(readers) else readers[:1]


# -- 4. Simulation: one pass [taskflow/cost, simulation; streams of GPUs, shared links, memory] --
# Streams are queues in order. A row starts when all that it waits for has ended and its stream is free: one pass over
# the rows is the whole simulation. A device has one thread here, which computes, and fetches what it lacks.

FLOPS, BANDWIDTH, OVERHEAD = 1e10, 1e10, 1e-6  # of a device, a second; seconds of a task
LINK, LATENCY = 1e9, 1e-6  # from each device to each other one


def simulate(rows: Sequence[Row]) -> list[float]:
    """The end of every row: latency and bandwidth of what travels, of the rest a roofline."""
    ends, free = list[float](), dict[int, float]()
    for row in rows:
        works = OVERHEAD + max(row.flops / FLOPS, row.bytes / BANDWIDTH)
        seconds = works if row.source == row.device else LATENCY + row.bytes / LINK
        start = max([free.get(row.device, 0.0), *(ends[k] for k in row.after)])
        free[row.device] = start + seconds
        ends.append(start + seconds)
    return ends


# -- 5. Execution: the same rows on the memory of the instances [taskflow/execute; ranks, MPI, GPUs, arenas] --
def write(task_graph: Lowering, values: Mapping[str, np.ndarray]) -> None:
    """Give parameters their values, by name."""
    for region, instances in task_graph.instances.items():
        for instance in instances if region.kind == "parameter" else ():
            instance.array[...] = view(values[region.name], instance.box)


def step(task_graph: Lowering, feeds: Mapping[str, np.ndarray], order: Sequence[int] = ()) -> float:
    """Run the rows; the loss."""
    for row in (task_graph.rows[k] for k in order or range(len(task_graph.rows))):
        instance, box = row.write
        inputs = [view(i.array, read, i.box) for i, read in row.reads]
        made = view(feeds[row.name], box) if row.kind == "feed" else row.kernel(*inputs)
        view(instance.array, box, instance.box)[...] = made
    return next(i[0].array.item() for r, i in task_graph.instances.items() if r.name == "mse_loss")


# -- 6. Search: a walk [taskflow/searching; plans in time, memory, judging only what a change changes] --
# The simulation says what a strategy takes, so the best is found by trying: change the configuration of one operator,
# keep what is faster, and sometimes what is slower (Metropolis and Hastings, as in FlexFlow).
def search(graph: Graph, devices: int, proposals: int) -> tuple[Strategy, float]:
    """The fastest strategy that a walk meets, and its seconds."""
    draw, forward = np.random.default_rng(0), [op for op in graph.operators if "." not in op.name]
    alone, everywhere = [({}, (device,)) for device in range(devices)], tuple(range(devices))
    best = now = {op.name: alone[0] for op in forward}, math.inf
    for _ in range(proposals):
        op = forward[draw.integers(len(forward))]
        split = [({a: devices}, everywhere) for a, n in op.extents.items() if n >= devices]
        choices = split + alone
        there = {**now[0], op.name: choices[draw.integers(len(choices))]}
        then = there, max(simulate(Lowering(graph, there).rows))
        now = then if draw.random() < math.exp(min(0.0, 20 * (1 - then[1] / now[1]))) else now
        best = min(best, now, key=lambda plan: plan[1])
    return best


def perceptron(batch: int, *widths: int) -> Graph:
    """Linear layers with ReLUs between them, the squared error, gradient descent."""
    g, y = Graph(), Region("x", (batch, widths[0]), "input")
    for k, width in enumerate(widths[1:], 1):
        y = g.linear(y, width, f"fc{k}")
        y = g.relu(y, f"relu{k}") if k < len(widths) - 1 else y
    g.mse_loss(y, Region("t", (batch, widths[-1]), "input"))
    g.sgd()
    return g


def main() -> None:
    """Search for four devices; train as found and on one device: the same numbers."""
    graph, draw = perceptron(512, 64, 256, 8), np.random.default_rng(0)
    best, seconds = search(graph, devices=4, proposals=200)
    runs = Lowering(graph, dict.fromkeys(best, ({}, (0,)))), Lowering(graph, best)
    print(best, f"takes {seconds:.6f} s, one device {simulate(runs[0].rows)[-1]:.6f} s")
    shapes = {"fc1.weight": (256, 64), "fc2.weight": (8, 256), "x": (512, 64), "t": (512, 8)}
    arrays = {name: draw.normal(size=shape) / 8 for name, shape in shapes.items()}
    arrays["learning_rate"] = np.full(1, 0.1)
    for run in runs:
        write(run, arrays)
        print("losses:", *(step(run, arrays) for _ in range(3)))


if __name__ == "__main__":
    main()
