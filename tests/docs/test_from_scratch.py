"""The essay docs/from_scratch.py and the product: the same rows, seconds and numbers."""

import contextlib
import io
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ops
import taskflow
from docs import from_scratch
from docs.from_scratch import FLOPS, Lowering, perceptron, simulate, step, write
from taskflow import CostModel, Executor, Graph, MachineModel, ParallelConfig, Strategy, Task, lower
from taskflow.machine import Device, Link
from taskflow.tasks.memory import plan_memory, with_reuse

MODELS = (13, 6, 6, 4), (12, 8, 5, 8), (8, 4, 8, 8, 4)  # batch and widths
RATE = 0.1


def model(batch: int, *widths: int) -> Graph:
    """`perceptron`, by the operators of the product."""
    graph = Graph()
    y = graph.input("x", (batch, widths[0]), "float64")
    for k, width in enumerate(widths[1:], 1):
        y = ops.linear(y, width, bias=False, name=f"fc{k}")
        y = ops.relu(y, name=f"relu{k}") if k < len(widths) - 1 else y
    target = graph.input("t", (batch, widths[-1]), "float64")
    ops.sgd(ops.mse_loss(y, target, name="mse_loss"), lr=RATE)
    return graph


def machine(count: int) -> MachineModel:
    rates = {"float64": FLOPS}
    device = Device("cpu", 0, 1 << 30, FLOPS, from_scratch.BANDWIDTH, from_scratch.OVERHEAD, rates)
    pairs = [(a, b) for a, b in product(range(count), repeat=2) if a != b]
    links = [Link(pair, from_scratch.LINK, from_scratch.LATENCY) for pair in pairs]
    return MachineModel((device,) * count, tuple(links))


def told(task: Task) -> tuple[str, int, int, int, float, list[int]]:
    """Of a row of the product: where it is, what it does, and for what it waits."""
    kind, after = task.kind.name.lower(), list(task.dependences)
    return kind, task.source, task.device, task.bytes, task.flops, after


def compare(sizes: tuple[int, ...], chosen: from_scratch.Strategy, count: int) -> bool:
    """Hold the essay to the product; whether the memory of the product makes no row late: the essay has none."""
    essay, graph = Lowering(perceptron(*sizes), chosen), model(*sizes)
    configs = {name: ParallelConfig(dict(degrees), at) for name, (degrees, at) in chosen.items()}
    task_graph = lower(graph, Strategy(configs), machine(count))
    rows = [(r.kind, r.source, r.device, r.bytes, r.flops, r.after) for r in essay.rows]
    assert rows == [told(task_graph[row]) for row in range(len(task_graph))]
    timeline = taskflow.simulate(task_graph, CostModel.analytic(machine(count)))
    waiting = with_reuse(task_graph, plan_memory(task_graph))
    after = [list(waiting[row].dependences) for row in range(len(waiting))]
    waits = [replace(row, after=more) for row, more in zip(essay.rows, after, strict=True)]
    assert simulate(waits) == pytest.approx(timeline.end, rel=1e-12)
    with Executor(task_graph, seed=0) as run:
        names = [region.name for region in essay.instances if region.kind == "parameter"]
        write(essay, {name: np.atleast_1d(run.read(name)) for name in names})
        draw = np.random.default_rng(0)
        batch, *widths = sizes
        feeds = {
            "x": draw.normal(size=(batch, widths[0])),
            "t": draw.normal(size=(batch, widths[-1])),
        }
        losses = [step(essay, feeds) for _ in range(3)]
        assert losses == pytest.approx([float(run(feeds)["loss"]) for _ in range(3)], rel=1e-12)
        assert losses[2] < losses[0]
    return simulate(essay.rows) == pytest.approx(timeline.end, rel=1e-12)


def split(axis: str, count: int) -> from_scratch.Config:
    return {axis: count}, tuple(range(count))


def forward(sizes: tuple[int, ...]) -> list[from_scratch.Operator]:
    return [op for op in perceptron(*sizes).operators if "." not in op.name]


@pytest.mark.parametrize("sizes", MODELS, ids=str)
def test_one_axis_of_all_operators(sizes):
    for count in (2, 3, 4):
        assert compare(sizes, {op.name: split("b", count) for op in forward(sizes)}, count)


def test_tensor_parallel_within_data_parallel():
    """Two devices a replica: outputs of the first product, inputs of the second, and one partial sum."""
    devices = (0, 1, 2, 3)
    halves = {"b": 2, "o": 2}, devices
    chosen = {"fc1": halves, "relu1": halves, "fc2": ({"b": 2, "i": 2}, devices)}
    assert compare((12, 6, 6, 4), {**chosen, "mse_loss": ({}, (0,))}, 4)


@given(st.sampled_from(MODELS), st.integers(2, 4), st.data())
def test_any_axis_of_any_operator(sizes, count, data):
    chosen = {}
    for op in forward(sizes):
        axes = [axis for axis, extent in op.extents.items() if extent >= count]
        chosen[op.name] = split(data.draw(st.sampled_from(axes), label=op.name), count)
    compare(sizes, chosen, count)


@given(st.randoms(use_true_random=False))
def test_any_order_gives_the_same_numbers(random):
    sizes = MODELS[0]
    runs = [
        Lowering(perceptron(*sizes), {op.name: split("b", 3) for op in forward(sizes)})
        for _ in "ab"
    ]
    draw = np.random.default_rng(0)
    names = {
        "fc1.weight": (6, 6),
        "fc2.weight": (4, 6),
        "x": (13, 6),
        "t": (13, 4),
        "learning_rate": 1,
    }
    arrays = {name: draw.normal(size=shape) for name, shape in names.items()}
    left, order = set(range(len(runs[0].rows))), list[int]()
    while left:
        ready = [row for row in sorted(left) if left.isdisjoint(runs[0].rows[row].after)]
        order.append(random.choice(ready))
        left.remove(order[-1])
    for run in runs:
        write(run, arrays)
    assert [step(runs[0], arrays, order) for _ in range(2)] == [
        step(runs[1], arrays) for _ in range(2)
    ]


def test_it_says_what_the_page_shows():
    with contextlib.redirect_stdout(io.StringIO()) as said:
        from_scratch.main()
    essay = Path(from_scratch.__file__)
    page = essay.with_suffix(".md").read_text(encoding="utf-8")
    plan, *losses = said.getvalue().splitlines()
    assert plan.split("'mse_loss'")[0] in page and plan.split("} ")[-1] in page
    assert all(loss[:22] in page for loss in losses) and len(losses) == 2
    assert len(essay.read_text(encoding="utf-8").splitlines()) <= 400
