"""Search against the grids of experts: `python benchmarks/grids.py [--rows NAME ...] [--seconds 60] [--seeds 1]`.

One line per model, machine and memory: the best grid, judged with no limit of time, the same in the order of rows that
is best for it, and what `taskflow.search` finds in `--seconds` on one core, all as `simulate` predicts them; the ratio
is that to the best grid. Grids are tensor x data parallelism, what tensor parallelism leaves over replicated, split by
samples or by the sequence, with and without sharded state, sharded parameters and recomputation of layers
(`taskflow.searching.moves.shape`); with `--pipelines` equal stages of 1F1B and interleaved, too.
Models compute in bfloat16, updated by AdamW; a device has one sequence of 1,024 (T5: 512 and 512; BERT: 512), of ViT 8
images. Each line has a process of its own.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import product
from multiprocessing.connection import Connection

import ops
import taskflow
from taskflow.searching.grids import RESTS
from taskflow.searching.moves.order import ORDERS
from taskflow.searching.moves.shape import plan_of
from taskflow.searching.placement import divisors
from taskflow.searching.problem import SearchProblem
from taskflow.searching.shapes import HOMES, SHARDED, WHOLE, PlanShape

WIDEST = 64  # devices of tensor parallelism: eight hosts of eight
ORDERED = 2  # grids, the fastest, in all orders of rows
MACHINES = {
    "8 H100": ("h100", 8),
    "64 H100": ("h100", 64),
    "16 V100": ("v100", 16),
    "64 V100": ("v100", 64),
}
LARGE = {"1024 H100": ("h100", 1024), "4096 H100": ("h100", 4096)}
OF_LARGE = "GPT 96 x 768", "GPT 32 x 4096"  # models of these, at full memory, for `--large`
NAMED = (  # rows of which the spread over seeds is measured
    "GPT 4 x 2048, 8 H100",
    "GPT 4 x 2048, 64 H100",
    "GPT 12 x 768, 16 V100",
    "GPT 24 x 2048, 8 H100",
    "BERT-large, 64 H100",
    "ViT, 16 V100",
)


def trained(graph: taskflow.Graph) -> taskflow.Graph:
    """The model in half precision, with its updates."""
    graph = taskflow.precision(graph, "bfloat16")
    ops.adamw(graph.outputs["loss"], lr=1e-4)
    return graph


def of_examples(name: str, **sizes: int) -> Callable[[int], taskflow.Graph]:
    def build(devices: int) -> taskflow.Graph:
        graph: taskflow.Graph = import_module(f"ops.models.{name}").build(
            batch=devices, training=False, **sizes
        )
        return trained(graph)

    return build


def gpt(layers: int, hidden: int) -> Callable[[int], taskflow.Graph]:
    return of_examples(
        "gpt", layers=layers, hidden=hidden, heads=hidden // (64 if hidden < 2048 else 128)
    )


def t5_forward(
    batch: int, layers: int = 12, hidden: int = 1024, heads: int = 16, words: int = 512
) -> taskflow.Graph:
    """An encoder and a decoder that attends to it (Raffel et al., JMLR 2020), without relative positions."""
    graph = taskflow.Graph()
    x, y, t = (graph.input(name, (batch, words), "int32") for name in "xyt")
    h = ops.embedding(x, 32128, hidden, name="embed")
    for k in range(layers):
        h = _block(h, None, heads, f"encoder{k}")
    memory = ops.layer_norm(h, name="encoded")
    h = ops.embedding(y, 32128, hidden, name="embed_decoder")
    for k in range(layers):
        h = _block(h, memory, heads, f"decoder{k}")
    scores = ops.linear(ops.layer_norm(h, name="decoded"), 32128, name="words")
    graph.output("loss", ops.softmax_cross_entropy(scores, t, name="loss"))
    return graph


def t5(devices: int) -> taskflow.Graph:
    return trained(t5_forward(devices))


def vit(
    devices: int, layers: int = 24, hidden: int = 1024, heads: int = 16, images: int = 8
) -> taskflow.Graph:
    """ViT-L/16 (Dosovitskiy et al., ICLR 2021), its scores from the mean of all patches."""
    graph = taskflow.Graph()
    x, t = (
        graph.input("x", (devices * images, 3, 224, 224)),
        graph.input("t", (devices * images,), "int32"),
    )
    h = ops.conv2d(x, hidden, 16, stride=16, name="patches")
    h = ops.transpose(ops.flatten(h, 2), (0, 2, 1))
    h = ops.position_embedding(h, name="position")
    for k in range(layers):
        h = _block(h, None, heads, f"layer{k}")
    scores = ops.linear(ops.mean(ops.layer_norm(h, name="norm"), 1), 1000, name="head")
    graph.output("loss", ops.softmax_cross_entropy(scores, t, name="loss"))
    return trained(graph)


def _block(
    x: taskflow.LogicalRegion, memory: taskflow.LogicalRegion | None, heads: int, name: str
) -> taskflow.LogicalRegion:
    """Attention, to a memory as well if there is one, and two linear layers, each behind a norm, with shortcuts."""
    h = ops.layer_norm(x, name=f"{name}.norm1")
    x = ops.add(
        x, ops.multihead_attention(h, heads, None, memory is not None, name=f"{name}.attention")
    )
    if memory is not None:
        h = ops.layer_norm(x, name=f"{name}.norm_cross")
        x = ops.add(x, ops.multihead_attention(h, heads, memory, name=f"{name}.cross"))
    h = ops.layer_norm(x, name=f"{name}.norm2")
    h = ops.gelu(ops.linear(h, 4 * x.shape[-1], name=f"{name}.fc1"), "tanh", name=f"{name}.gelu")
    return ops.add(x, ops.linear(h, x.shape[-1], name=f"{name}.fc2"))


MODELS: dict[str, Callable[[int], taskflow.Graph]] = {
    "GPT 4 x 2048": gpt(4, 2048),
    "GPT 12 x 768": gpt(12, 768),
    "GPT 24 x 2048": gpt(24, 2048),
    "GPT 96 x 768": gpt(96, 768),
    "GPT 32 x 4096": gpt(32, 4096),
    "BERT-large": of_examples("bert"),
    "T5": t5,
    "MoE": of_examples("moe"),
    "ViT": vit,
}


def machine_of(name: str, part: float) -> taskflow.MachineModel:
    preset, devices = (MACHINES | LARGE)[name]
    one = taskflow.MachineModel.preset(preset)
    machine = taskflow.MachineModel.preset(preset, nodes=devices // len(one.devices))
    return replace(
        machine,
        devices=tuple(replace(d, memory_bytes=int(d.memory_bytes * part)) for d in machine.devices),
    )


def best_plan(problem: SearchProblem, shapes: Iterable[PlanShape]) -> tuple[str, float, float]:
    """Name, seconds as laid out, and in the best order of rows of any of these; infinite: none fits."""
    plans = [(shape.name, plan) for shape in shapes if (plan := plan_of(shape, problem))]
    outcomes = [replace(problem.judge.judge(plan), name=name) for name, plan in plans]
    best = sorted((each for each in outcomes if each.fits), key=lambda each: each.seconds)[:ORDERED]
    if not best:
        return "none", math.inf, math.inf
    orders = ORDERS if best[0].plan.parts == 1 else ()
    again = (replace(each.plan, schedule=order) for each in best for order in orders)
    seconds = [problem.judge.judge(plan).seconds for plan in again]
    return best[0].name, best[0].seconds, min([best[0].seconds, *seconds])


def grids(devices: int) -> Iterator[PlanShape]:
    """Tensor parallelism of every degree, what is split otherwise, state, and layers computed again."""
    states = WHOLE, SHARDED, HOMES
    for tensor, rest, state in product(divisors(min(devices, WIDEST)), RESTS, states):
        if tensor > 1 or rest == RESTS[0]:
            yield from (PlanShape(tensor, rest, state, is_again) for is_again in (False, True))


def pipelines(devices: int) -> Iterator[PlanShape]:
    """Equal stages of 1F1B and interleaved, also with layers computed again."""
    tensors, groups = divisors(min(devices, 8)), (n for n in (2, 4, 8) if devices % n == 0)
    for tensor, count, parts in product(tensors, groups, (1, 2, 4)):
        for schedule, is_again in product((("one_f_one_b", 1), ("interleaved", 2)), (False, True)):
            rest = RESTS[2] if tensor > 1 else RESTS[0]
            yield PlanShape(tensor, rest, WHOLE, is_again, count, parts, schedule, False)


def compare(
    row: tuple[str, str, float],
    seconds: float,
    proposals: int,
    seeds: int,
    with_pipelines: bool,
    pipe: Connection,
) -> None:
    """Send the line of one row."""
    model, machine, part = row
    here = machine_of(machine, part)
    devices = len(here.devices)
    graph = MODELS[model](devices)
    problem = SearchProblem(graph, here, taskflow.CostModel.analytic(here))
    name, grid, ordered = best_plan(problem, grids(devices))
    if with_pipelines:
        piped = best_plan(problem, pipelines(devices))
        name, grid = min((name, grid), piped[:2], key=lambda each: each[1])
    found, took = [], []
    for seed in range(seeds):
        begin = time.perf_counter()
        try:
            costs = taskflow.CostModel.analytic(here)
            budget = {"proposals": proposals} if proposals else {"seconds": seconds}
            found.append(taskflow.search(graph, here, costs, seed=seed, **budget).seconds)
        except ValueError:
            found.append(math.inf)
        took.append(time.perf_counter() - begin)
    middle = statistics.median(found)
    spread = (max(found) - min(found)) / middle if math.isfinite(middle) else 0.0
    ratio = middle / grid if math.isfinite(grid) and grid else math.nan
    figures = f"{grid * 1e3:9.2f} {ordered * 1e3:9.2f} {middle * 1e3:9.2f}  {ratio:6.3f}"
    figures += f"  {spread:6.1%} {max(took):6.1f}"
    pipe.send(f"{model:14s} {machine:8s} {part:4.2f}  {figures}  {name}")


def rows(wanted: list[str]) -> Iterator[tuple[str, str, float]]:
    """All of them, or those whose names begin so; large machines only by name."""
    for part in (1.0, 0.5):
        for machine, model in product(MACHINES | LARGE, MODELS):
            is_usual = machine in MACHINES and model != OF_LARGE[0]
            name = f"{model}, {machine}, {part}"
            if any(map(name.startswith, wanted)) if wanted else is_usual:
                yield model, machine, part


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", nargs="*", default=[], metavar="NAME", help="such as 'T5, 8 H100'; default: all"
    )
    parser.add_argument(
        "--named", action="store_true", help="the six rows whose spread over seeds is asked for"
    )
    parser.add_argument(
        "--large", action="store_true", help="GPTs on 1,024 and 4,096 devices: give --seconds 300"
    )
    parser.add_argument(
        "--pipelines",
        action="store_true",
        help="judge grids of 1F1B and interleaved, too (minutes)",
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--proposals", type=int, default=0, help="instead of seconds")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{'model':14s} {'machine':8s} memory  grid, ms   ordered found, ms   ratio  spread  took, s  best grid",
        flush=True,
    )
    large = [", ".join(names) for names in product(OF_LARGE, LARGE)]
    names = [*NAMED * options.named, *large * options.large]
    for model, machine, part in rows(options.rows or [f"{name}, 1.0" for name in names]):
        receiving, sending = multiprocessing.Pipe(duplex=False)
        arguments = (
            (model, machine, part),
            options.seconds,
            options.proposals,
            options.seeds,
            options.pipelines,
            sending,
        )
        process = multiprocessing.Process(target=compare, args=arguments)
        process.start()
        sending.close()
        try:
            print(receiving.recv(), flush=True)
        except EOFError:
            print(f"{model:14s} {machine:8s} {part:4.2f}  failed", flush=True)
        process.join()


if __name__ == "__main__":
    main()
