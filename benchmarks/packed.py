"""Attention over packed documents: seconds against the sum of squares, and plans of a batch on eight H100.

    python benchmarks/packed.py

Batches of 8 documents of 100 to 2,000 tokens. Prints, for one device, predicted and measured seconds of a forward pass
over those of the first batch, over the same ratio of the sums of squares; then for layers of attention and for GPT (12
layers of 768) on eight H100 the step of parts with equal tokens, of parts with equal work, of what a search finds, and
of GPT on a batch that is padded to 2,000 tokens. Beside it stands how much work the busiest part with equal tokens has,
over the mean: balancing alone gains no more. Layers of attention also have a batch of real documents, as long as they
are: 16 topics of Python's documentation, 88 to 8,362 words and signs. At last all batches that were drawn in a row.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pydoc_data.topics import topics
from time import process_time

import numpy as np

import ops
import taskflow
from ops.models import gpt

HEADS, FEATURES = 4, 64


def batches(count: int, seed: int = 0) -> list[list[int]]:
    """Lengths of the documents of some batches."""
    generator = np.random.default_rng(seed)
    return [generator.integers(100, 2001, 8).tolist() for _ in range(count)]


def documents(count: int, seed: int = 0) -> list[int]:
    """Words and signs of some topics of Python's documentation."""
    every = [len(re.findall(r"\w+|[^\w\s]", text)) for text in topics.values()]
    return np.random.default_rng(seed).choice(every, count, replace=False).tolist()


def attention(lengths: Sequence[int]) -> taskflow.Graph:
    """A forward pass over documents."""
    graph = taskflow.Graph()
    q, k, v = (graph.input(name, (sum(lengths), HEADS, FEATURES)) for name in "qkv")
    graph.output("y", ops.packed_attention(q, k, v, lengths, name="attention"))
    return graph


def seconds_of(lengths: Sequence[int]) -> tuple[float, float]:
    """Predicted of a device that computes alone, and the least of three measured ones, of the processor."""
    graph, machine = attention(lengths), taskflow.MachineModel.uniform(1)
    rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
    predicted = taskflow.CostModel.analytic(machine).seconds(rows)[rows.kind == taskflow.Kind.POINT]
    generator, found = np.random.default_rng(0), []
    feeds = {r.name: generator.standard_normal(r.shape, np.float32) for r in graph.inputs}
    with taskflow.Executor(rows) as step:
        for _ in range(4):
            start = process_time()
            step(feeds)
            found.append(process_time() - start)
    return float(predicted.sum()), min(found[1:])


def layers(lengths: Sequence[int], count: int) -> taskflow.Graph:
    """Layers of attention with their projections and gradients, 12 heads of 64."""
    graph = taskflow.Graph()
    x = h = graph.input("x", (sum(lengths), 768))
    for k in range(count):
        h = ops.multihead_attention(h, 12, lengths=lengths, name=f"layer{k}")
    ops.sgd(graph.output("loss", ops.mean_squared_error(h, x)), lr=0.1)
    return graph


def by_document(
    graph: taskflow.Graph, lengths: Sequence[int], machine: taskflow.MachineModel
) -> taskflow.Strategy:
    """A document a device."""
    total, strategy = sum(lengths), taskflow.data_parallel(graph, machine)
    shares = tuple(n / total for n in lengths)
    for op, config in strategy.items():
        if graph.operator(op).extents.get(axis := next(iter(dict(config.degrees)), "")) == total:
            strategy[op] = taskflow.ParallelConfig({axis: shares}, config.devices)
    return strategy


def compare(
    name: str,
    graph: taskflow.Graph,
    lengths: Sequence[int],
    padded: taskflow.Graph | None,
    proposals: int,
) -> None:
    """Print the step of plans on eight H100."""
    machine = taskflow.MachineModel.preset("h100", nodes=1)
    costs = taskflow.CostModel.analytic(machine)

    def seconds(graph: taskflow.Graph, plan: taskflow.Strategy) -> float:
        return taskflow.simulate(taskflow.lower(graph, plan, machine), costs).seconds

    steps = {
        "equal tokens": seconds(graph, taskflow.data_parallel(graph, machine)),
        "equal work": seconds(graph, taskflow.even_work(graph, machine)),
        "searched": taskflow.search(graph, machine, costs, proposals=proposals, seed=0).seconds,
    }
    if len(lengths) == len(machine.devices):
        steps["a document a device"] = seconds(graph, by_document(graph, lengths, machine))
    if padded is not None:
        steps["padded to 2,000 tokens"] = seconds(padded, taskflow.data_parallel(padded, machine))
    rows = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
    work = np.bincount(rows.device, rows.flops)
    print(f"{name}: equal tokens have {work.max() / work.mean():.2f} of the mean work")
    for plan, step in steps.items():
        over = step / steps["searched"]
        print(f"{name} on 8 H100: {plan}: {step * 1e3:.2f} ms, {over:.2f} of the searched")


def gain(graph: taskflow.Graph, proposals: int) -> float:
    """Seconds of equal tokens over those of a searched plan, on eight H100."""
    machine = taskflow.MachineModel.preset("h100", nodes=1)
    costs = taskflow.CostModel.analytic(machine)
    found = taskflow.search(graph, machine, costs, proposals=proposals, seed=0)
    return found.baseline_seconds["data parallel"] / found.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--proposals", type=int, default=10_000, help="of a search")
    options = parser.parse_args()
    first: tuple[float, float, int] | None = None
    for lengths in batches(4):
        squares = int(np.square(lengths).sum())
        predicted, measured = seconds_of(lengths)
        first = first or (predicted, measured, squares)
        ratios = (predicted / first[0], measured / first[1])
        of_squares = [ratio / (squares / first[2]) for ratio in ratios]
        print(
            f"{sum(lengths):6} tokens, {squares:9} squares: predicted {predicted * 1e3:7.1f} ms, measured "
            f"{measured * 1e3:7.1f} ms; over the squares {of_squares[0]:.3f} and {of_squares[1]:.3f}"
        )
    drawn = batches(8, seed=1)
    lengths = drawn[0]
    options_of_gpt = {"sequence": 2000, "dropout": 0.0}
    models = {
        "attention, 8 layers": layers(lengths, 8),
        "GPT": gpt.packed(lengths, **options_of_gpt),
    }
    padded = gpt.build(batch=8, fused=True, **options_of_gpt)
    real = documents(16)
    compare("attention, 8 layers, real documents", layers(real, 8), real, None, options.proposals)
    for name, graph in models.items():
        compare(name, graph, lengths, padded if name == "GPT" else None, options.proposals)
    gains = [gain(layers(lengths, 8), options.proposals) for lengths in drawn]
    of_each = ", ".join(f"{each:.3f}" for each in gains)
    print(f"attention, 8 layers on 8 H100, equal tokens over searched, a batch each: {of_each}")
    print(f"geometric mean {np.exp(np.log(gains).mean()):.3f}")


if __name__ == "__main__":
    main()
