"""Base-calling: the letters of a strand from the current through a pore, in few bits, and a vote of several reads.

    python -m examples.applications.basecaller
    python -m examples.applications.basecaller --bits 4 --reads 9 --steps 2500

docs/applications/basecaller.md says what the paper claims, what is shown here and what is not.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from time import perf_counter

import numpy as np

import ops
import taskflow
from taskflow import Graph, LogicalRegion, MachineModel, njit

FRAMES, BASES, BATCH = 96, 12, 32
CONTEXT = 2  # bases that decide a level
NOISE = 0.15
Array = np.ndarray
Weights = Mapping[str, Array]


# -- signals -----------------------------------------------------------------------------------------------------------


def signals(strands: Array, generator: np.random.Generator) -> Array:
    """The current of strands (n, bases) of letters 1 to 4: a level for each pair, held for 4 to 8 frames, and noise."""
    levels = np.random.default_rng(42).permutation(np.linspace(-1.7, 1.7, 4**CONTEXT))
    padded = np.pad(strands, ((0, 0), (1, 1)), constant_values=1) - 1
    level = levels[padded[:, :BASES] + 4 * padded[:, 1 : BASES + 1]]
    ends = generator.integers(4, 9, strands.shape).cumsum(1)
    at = (np.arange(FRAMES)[None, :, None] >= ends[:, None, :]).sum(-1)
    clean = np.pad(level, ((0, 0), (0, 1)))[np.arange(len(strands))[:, None], at]
    return (clean + NOISE * generator.standard_normal(clean.shape)).astype(np.float32)


def batch(size: int, generator: np.random.Generator) -> dict[str, Array]:
    strands = generator.integers(1, 5, (size, BASES))
    return {
        "x": signals(strands, generator)[:, None],
        "t": strands.astype(np.int32),
        "frames": np.full(size, FRAMES // 2, np.int32),
        "bases": np.full(size, BASES, np.int32),
    }


# -- the network -------------------------------------------------------------------------------------------------------


def network(
    size: int, bits: int | None = None, calibrate: bool = True, coarse: bool = False
) -> Graph:
    """Three convolutions and, for each second frame, scores of four letters and of none.

    In few bits: a scale for each channel of a weight, and values of 8 bits by the largest so far. Coarse: one scale for
    a weight, and values of as few bits by the largest of the batch.
    """
    graph = Graph()

    def read(h: LogicalRegion) -> LogicalRegion:
        return ops.fake_quantize(h, bits) if bits and coarse else h

    h = graph.input("x", (size, 1, FRAMES))
    for k, stride in enumerate((2, 1, 1)):
        h = ops.conv1d(read(h), 32, 9, stride=stride, padding=4, name=f"conv{k}")
        h = ops.relu(h, name=f"relu{k}")
    h = read(ops.transpose(h, (0, 2, 1)))
    graph.output("scores", ops.linear(h, 5, name="letters"))
    if not bits:
        return graph
    if coarse:
        return taskflow.quantize(graph, bits, activations=None, axis=None)
    return taskflow.quantize(graph, bits, calibrate=calibrate)


def with_loss(graph: Graph, rate: float) -> Graph:
    scores = graph.outputs["scores"]
    given = [
        graph.input(name, (scores.shape[0], *more), "int32")
        for name, more in (("t", (BASES,)), ("frames", ()), ("bases", ()))
    ]
    loss = ops.mean(ops.ctc_loss(scores, *given), name="loss")
    ops.adam(loss, lr=rate)
    return graph


def train(
    graph: Graph, steps: int, seed: int, weights: Weights | None = None, devices: int = 1
) -> dict[str, Array]:
    """Parameters and scales after so many steps; from `weights` on."""
    machine = MachineModel.local(devices=devices)
    rows = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
    names = [
        r.name for r in graph.regions.values() if r.name.endswith((".weight", ".bias", ".scale"))
    ]
    with taskflow.Executor(rows, seed=0) as step:
        for name, value in (weights or {}).items():
            step.write(name, value)
        for k in range(steps):
            step(batch(BATCH, np.random.default_rng([seed, k])))
        return {name: step.read(name) for name in names}


def reader(
    weights: Weights, bits: int | None, reads: int, coarse: bool = False
) -> Callable[[Array], list[list[int]]]:
    """A function that calls the bases of so many signals; scales of values that it lacks are those of 20 batches."""
    machine = MachineModel.local(devices=1)

    def enter(calibrate: bool) -> taskflow.Executor:
        graph = network(reads, bits, calibrate, coarse)
        return taskflow.Executor(
            taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
        )

    is_calibrated = not bits or coarse or any(name.endswith(".scale") for name in weights)
    with enter(True) as step:
        for name, value in weights.items():
            step.write(name, value)
        if not is_calibrated:
            for k in range(20):
                step({"x": batch(reads, np.random.default_rng([3, k]))["x"]})
        known = {
            r.name: step.read(r.name)
            for r in step.task_graph.regions
            if r.name.endswith((".weight", ".bias", ".scale"))
        }
    call = enter(False)
    for name, value in known.items():
        call.write(name, value)
    return lambda x: ops.ctc_decode(call({"x": x})["scores"])


# -- the vote ----------------------------------------------------------------------------------------------------------


@njit(nogil=True)
def distances(a: Array, b: Array) -> Array:
    """Edits between all beginnings of both: (len(a) + 1, len(b) + 1)."""
    table = np.empty((len(a) + 1, len(b) + 1), np.int64)
    table[:, 0], table[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            least = min(table[i - 1, j], table[i, j - 1]) + 1
            table[i, j] = min(least, table[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return table


@njit(nogil=True)
def votes(centre: Array, reads: Array, lengths: Array) -> tuple[Array, Array]:
    """How many reads have each letter (0: none) at a place of the centre, and how many insert a letter before it."""
    places, before = np.zeros((len(centre), 5), np.int64), np.zeros((len(centre) + 1, 5), np.int64)
    for k in range(len(reads)):
        read = reads[k, : lengths[k]]
        table, i, j = distances(centre, read), len(centre), lengths[k]
        while i or j:
            if i and j and table[i, j] == table[i - 1, j - 1] + (centre[i - 1] != read[j - 1]):
                i, j = i - 1, j - 1
                places[i, read[j]] += 1
            elif i and table[i, j] == table[i - 1, j] + 1:
                i -= 1
                places[i, 0] += 1
            else:
                j -= 1
                before[i, read[j]] += 1
    return places, before


def vote(reads: Sequence[Sequence[int]]) -> list[int]:
    """What most reads have at each place of the one that is nearest to all others."""
    lengths = np.array([len(read) for read in reads])
    padded = np.zeros((len(reads), max(lengths.max(), 1)), np.int64)
    for row, read in zip(padded, reads, strict=True):
        row[: len(read)] = read
    return _vote(padded, lengths).tolist()


@njit(nogil=True)
def _vote(reads: Array, lengths: Array) -> Array:
    nearest, least = 0, 1 << 60
    for k in range(len(reads)):
        total = 0
        for other in range(len(reads)):
            total += distances(reads[k, : lengths[k]], reads[other, : lengths[other]])[-1, -1]
        if total < least:
            nearest, least = k, total
    centre = reads[nearest, : lengths[nearest]]
    places, before = votes(centre, reads, lengths)
    made, count = np.empty(2 * len(centre) + 1, np.int64), 0
    for i in range(len(centre) + 1):
        if 2 * before[i].max() > len(reads):
            made[count] = before[i].argmax()
            count += 1
        if i < len(centre) and places[i].argmax():
            made[count] = places[i].argmax()
            count += 1
    return made[:count]


def accuracy(
    weights: Weights, bits: int | None, reads: int, coarse: bool = False, groups: int = 40
) -> tuple[float, float]:
    """The share of right bases in a read, and in a vote of so many reads of a strand."""
    generator, call = np.random.default_rng(99), reader(weights, bits, reads, coarse)
    right, agreed, seconds = [], [], []
    for _ in range(groups):
        strand = generator.integers(1, 5, BASES)
        called = call(signals(np.tile(strand, (reads, 1)), generator)[:, None])
        start = perf_counter()
        consensus = vote(called)
        seconds.append(perf_counter() - start)
        right += [share_right(read, strand) for read in called]
        agreed.append(share_right(consensus, strand))
    return float(np.mean(right)), float(np.mean(agreed))


def share_right(read: Sequence[int], strand: Array) -> float:
    return 1 - float(distances(np.array(read, np.int64), strand)[-1, -1]) / len(strand)


def compare(
    bits: Sequence[int],
    reads: int,
    steps: int,
    more: int,
    devices: int = 1,
    ways: Sequence[bool] = (False,),
) -> dict[str, tuple[float, float]]:
    """Reads and votes of a network in floats, in few bits after training, and trained on in few bits; each way."""
    found: dict[str, tuple[float, float]] = {}

    def show(what: str, weights: Weights, width: int | None, coarse: bool = False) -> None:
        what += ", coarse" * coarse
        found[what] = accuracy(weights, width, reads, coarse)
        print(
            f"{what:30} read {found[what][0]:.3f}, vote of {reads} {found[what][1]:.3f}", flush=True
        )

    weights = train(with_loss(network(BATCH), 3e-3), steps, 1, devices=devices)
    show("float", weights, None)
    for width, coarse in product(bits, ways):
        show(f"{width} bits after training", weights, width, coarse)
        if width < 8:
            graph = network(BATCH, width, coarse=coarse)
            trained = train(with_loss(graph, 1e-3), more, 2, weights, devices)
            show(f"{width} bits straight through", trained, width, coarse)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bits", type=int, nargs="*", default=[8, 4, 3])
    parser.add_argument("--reads", type=int, default=9, help="of a strand, which vote")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--more", type=int, default=500, help="steps in few bits")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument(
        "--coarse", action="store_true", help="also one scale a weight, and values of as few bits"
    )
    options = parser.parse_args()
    ways = (False, True) if options.coarse else (False,)
    compare(options.bits, options.reads, options.steps, options.more, options.devices, ways)


if __name__ == "__main__":
    main()
