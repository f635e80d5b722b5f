"""Hypothesis strategies: random models, and random strategies for them.

A `Model` is a graph with what it is fed; `graphs()` draws one from the operators of `tests/tiny.py`. Another package
of operators is put to the same laws by another function that draws Models (see GRAPHS in tests/mpi/test_laws.py).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import taskflow
from taskflow import Graph, MachineModel, ParallelConfig, Strategy
from taskflow.graph.family import Family, families
from taskflow.schedule import gpipe
from taskflow.schedule.orders import NAMED
from taskflow.schedule.pipeline import pipeline_of
from taskflow.strategy.micro_batches import micro_batches, most_micro_batches
from taskflow.strategy.rules import random_config
from tests import tiny

DEVICES = 8


def examples(percent):
    """That share of the profile's examples."""
    return settings(max_examples=max(1, settings().max_examples * percent // 100))


class Model:
    """A graph and the values of its inputs."""

    def __init__(self, graph: Graph, feeds: Mapping[str, np.ndarray]) -> None:
        self.graph, self.feeds = graph, feeds

    def __repr__(self) -> str:
        lines = [f"  {op}  {dict(op.extents)}, follows {op.follows}" for op in self.graph.operators]
        return "Model(\n" + "\n".join(lines) + "\n)"


def beside_each_other(models):
    """Several models as the jobs a, b and c of one."""
    jobs = dict(zip("abc", models, strict=False))
    feeds = {f"{job}/{name}": v for job, model in jobs.items() for name, v in model.feeds.items()}
    return Model(taskflow.beside({job: model.graph for job, model in jobs.items()}), feeds)


def feeds_of(graph, seed=0, classes=3):
    """Fixed random values for every input; integers are below `classes`."""
    generator = np.random.default_rng(seed)
    return {
        r.name: generator.integers(0, classes, r.shape).astype(r.dtype)
        if r.dtype.startswith("int")
        else generator.normal(size=r.shape).astype(r.dtype)
        for r in graph.inputs
    }


# -- models ------------------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw, steps=5):
    """Models of the tiny operators: fan-out, halos, odd extents, updates in place, regions that nobody reads."""
    graph = Graph()
    batch = draw(st.integers(1, 7))
    pool = [_source(draw, graph, batch)]
    for _ in range(draw(st.integers(1, steps))):
        pool += _grow(draw, graph, pool)
    leaves = [r for r in pool if not any(r is x for op in graph.operators for x in op.inputs)]
    unread = leaves[1:] if draw(st.integers(0, 4)) == 0 else []
    losses = [tiny.mean_square(r) for r in leaves if not any(r is u for u in unread)]
    loss = losses[0]
    for other in losses[1:]:
        loss = tiny.add(loss, other)
    _aside(draw, graph, pool)
    _train(draw, graph, loss)
    return Model(graph, feeds_of(graph))


def _source(draw, graph, batch):
    kind = draw(st.sampled_from(["matrix", "image", "index"]))
    if kind == "index":
        return tiny.embedding(
            graph.input("t", (batch,), "int32"), draw(st.integers(2, 9)), draw(st.integers(1, 7))
        )
    if kind == "image":
        extents = [draw(st.integers(1, high)) for high in (3, 7, 6)]
        x = tiny.conv(
            graph.input("x", (batch, *extents), "float64"),
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
            draw(st.integers(1, 2)),
            padding=1,
        )
        if draw(st.booleans()):
            x = tiny.conv(tiny.tanh(x), draw(st.integers(1, 3)))
        return tiny.flatten(x)
    return tiny.linear(
        graph.input("x", (batch, draw(st.integers(1, 7))), "float64"),
        draw(st.integers(1, 9)),
        bias=True,
    )


def _grow(draw, graph, pool):
    """A new region made from one or two of `pool`, all of them (b, c)."""
    x = draw(st.sampled_from(pool))
    kinds = [
        "tanh",
        "linear",
        "add",
        "concat",
        "stencil",
        "relate",
        "max",
        "centre",
        "dropout",
        "heads",
        "part",
        "bias",
        "moments",
    ]
    kind = draw(st.sampled_from(kinds))
    if kind == "linear":
        return [tiny.linear(x, draw(st.integers(1, 9)), bias=draw(st.booleans()))]
    if kind == "add":
        return [tiny.add(x, draw(st.sampled_from([r for r in pool if r.shape == x.shape])))]
    if kind == "concat":
        return [
            tiny.concat([x, draw(st.sampled_from(pool)), *([x] if draw(st.booleans()) else [])])
        ]
    if kind == "stencil":
        return [_stencil(draw, x, draw(st.integers(0, 1)))]
    if kind == "relate":
        return [_relate(draw, x, draw(st.integers(0, 1)))]
    if kind == "max":
        return [tiny.scale_rows(tiny.tanh(x), tiny.row_max(x))]
    if kind == "heads":
        heads = draw(st.sampled_from([n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0]))
        cut = tiny.stencil(tiny.split_heads(x, heads), draw(st.integers(0, 2)))
        return [_merge(cut)]
    if kind == "part":
        start = draw(st.integers(0, x.shape[1] - 1))
        return [tiny.part(x, 1, start, draw(st.integers(start + 1, x.shape[1])))]
    if kind == "bias":
        name = graph.unique_name("bias")
        row = tiny.parameter(graph, f"{name}.row", (x.shape[1],))
        if draw(st.booleans()):
            row = tiny.stencil(row)  # a parameter that is read with a halo
        return [tiny.add_row(x, row, name)]
    if kind == "moments":
        return [tiny.scale_rows(tiny.tanh(x), tiny.moments(tiny.tanh(x))[draw(st.integers(0, 1))])]
    return [{"tanh": tiny.tanh, "centre": tiny.centre, "dropout": tiny.dropout}[kind](x)]


def _merge(x):
    """(b, h, d) -> (b, h d)."""
    sizes = dict(zip(x.axes, x.shape, strict=True))
    b, h, d = x.axes

    def back(op, gy):
        return x.graph.launch(
            f"{op.name}.dx",
            f"{b} ({h} {d}) -> {b} {h} {d}",
            [gy],
            kernel=tiny._reshape,
            sizes=sizes,
        )

    return x.graph.launch(
        "merge", f"{b} {h} {d} -> {b} ({h} {d})", [x], kernel=tiny._reshape, backward=back
    )


def _stencil(draw, x, dim):
    size, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    padding = draw(st.integers(0, 2))
    reach = (size - 1) * dilation + 1
    padding = max(padding, -(-(reach - x.shape[dim]) // 2))
    if dim == 0 and padding * 2 != reach - 1:
        return tiny.stencil(x, 0)  # the batch keeps its extent
    stride = draw(st.integers(1, 2)) if dim else 1
    return tiny.stencil(x, dim, size, stride, padding, dilation)


def _relate(draw, x, dim):
    """A random relation with points that read nothing; a narrow band ascends at both ends, others do not."""
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    extent = x.shape[dim] if dim == 0 else draw(st.integers(1, 9))
    matrix = generator.normal(size=(extent, x.shape[dim]))
    keep = generator.random(matrix.shape) < draw(st.sampled_from([0.2, 0.6]))
    if draw(st.booleans()):
        keep &= np.abs(np.subtract.outer(np.arange(extent), np.arange(x.shape[dim]))) < 2
    return tiny.relate(x, matrix * keep, dim)


def _aside(draw, graph, pool):
    """What a loss does not need: a state read with a halo and updated in place, and a value that is."""
    x = draw(st.sampled_from(pool))
    if draw(st.booleans()):
        state = graph.parameter("state", (x.shape[1],), 1.0, dtype="float64", trainable=False)
        seen = tiny.add_row(x, tiny.stencil(state, name="halo"), "seen")
        tiny.decay(state, tiny.column_sum(x))
        graph.output("seen", seen)
        if draw(st.booleans()):
            graph.output("smooth", tiny.stencil(state, name="halo", size=5, padding=2))
    if draw(st.booleans()):
        sums = [
            graph.parameter(n, (x.shape[1],), 1.0, "float64", trainable=False)
            for n in ("total", "squares")
        ]
        tiny.count(x, *sums)
        tiny.decay(sums[0], sums[1])
        tiny.count(tiny.tanh(x), *sums, "count again")
        graph.output("total", tiny.copy(sums[0], "total now"))
    if draw(st.booleans()):
        value = tiny.copy(x, "value")
        graph.output("before", tiny.stencil(value, 1, name="before"))
        tiny.double(value)
        graph.output("after", tiny.stencil(value, 0, name="after"))
        if draw(st.booleans()):
            graph.output("value", value)


def _train(draw, graph, loss):
    own = [p.name for p in graph.parameters if draw(st.integers(0, 2)) == 0]
    for name, gradient in tiny.sgd(loss, lr=0.02, own=own).items():
        graph.output(f"gradient of {name}", gradient)


# -- strategies --------------------------------------------------------------------------------------------------------


@st.composite
def strategies(draw, graph, devices=DEVICES):
    """A machine of up to `devices` devices and a random strategy for it; followers are named now and then."""
    machine = MachineModel.uniform(draw(st.integers(1, devices)))
    return machine, random_strategy(graph, machine, draw(st.integers(0, 2**32 - 1)))


def random_strategy(graph, machine, seed) -> Strategy:
    """`taskflow.random_strategy`, with some operators named that would follow."""
    strategy = taskflow.random_strategy(graph, machine, seed)
    generator = np.random.default_rng(seed)
    followers = [op for op in graph.operators if op.follows is not None]
    for op in followers:
        if generator.random() < 0.15:
            strategy[op.name] = random_config(Family.of(op), machine, generator)
    return strategy


def with_homes(draw, graph, generator, machine):
    """Perhaps with homes, with something offloaded where a machine has memory for that, or both."""
    names = offloadable(graph, generator)
    if draw(st.booleans()):
        graph = taskflow.homes(graph, again=draw(st.booleans()), parts=draw(st.integers(1, 4)))
    if machine.memories and draw(st.booleans()):
        with suppress(ValueError):  # it is updated in place
            graph = taskflow.offload(graph, names)
    return graph


def offloadable(graph, generator):
    """Some forward operators, parameters and states."""
    forward = [op.name for op in graph.operators if not op.is_backward and not op.writes]
    kept = [region.name for region in graph.regions.values() if region.is_persistent]
    return [name for name in (*forward, *kept) if generator.random() < 0.5]


def hosted(machine):
    """The machine, whose hosts have memory for what is offloaded."""
    return machine.with_host_memory(1 << 40, 1e9)


@st.composite
def plans_in_time(draw, model, machine=None):
    """The model, perhaps with clones, homes and what is offloaded, a machine, and a strategy with micro-batches.

    A pipeline, or any strategy, in which devices repeat: parts of any axis that follow each other on a device.
    """
    graph, seed = model.graph, draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    forward = [op.name for op in graph.operators if not op.is_backward and not op.writes]
    if draw(st.booleans()):
        chosen = [name for name in forward if generator.random() < 0.5]
        with suppress(ValueError):  # it reads what is updated since
            graph = taskflow.recompute(graph, draw(st.sampled_from(["auto", chosen])))
    machine = machine or hosted(MachineModel.uniform(draw(st.integers(1, DEVICES // 2))))
    graph = with_homes(draw, graph, generator, machine)
    count, parts = draw(st.integers(1, len(machine.devices))), draw(st.integers(1, 6))
    groups = None
    if draw(st.booleans()):  # stages that meet devices again
        count = 1 + int(generator.integers(4))
        groups = [(int(generator.integers(len(machine.devices))),) for _ in range(count)]
    strategy = random_strategy(graph, machine, seed)
    if draw(st.integers(0, 3)):
        with suppress(ValueError):  # there are not samples enough
            strategy = taskflow.stages(graph, machine, count, parts, devices=groups)
    elif draw(st.booleans()):
        with suppress(ValueError):  # too few samples for as many micro-batches
            strategy = micro_batches(graph, strategy, parts)
    for op in (op for op in graph.operators if op.beside):  # homes, updates (ZeRO), what is away
        if generator.random() < 0.4:
            strategy[op.name] = random_config(Family.of(op), machine, generator)
    return Model(graph, model.feeds), machine, strategy


@st.composite
def whole_plans(draw, graph, machine=None):
    """A machine and a `Plan`: what is computed again, homes, a random strategy or stages, micro-batches, an order."""
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    machine = machine or hosted(MachineModel.uniform(draw(st.integers(1, DEVICES // 2))))
    plan = taskflow.Plan(
        Strategy(),
        homes=[region.name for region in graph.parameters if generator.random() < 0.5],
        gathers_again=draw(st.booleans()),
        collectives=draw(st.sampled_from([{}, {"all-reduce": "ring"}, {"all-gather": "fastest"}])),
        bucket_bytes=draw(st.sampled_from([None, 64])),
    )
    forward = [op.name for op in graph.operators if not op.is_backward and not op.writes]
    if draw(st.booleans()):
        again = replace(plan, recomputed=[name for name in forward if generator.random() < 0.5])
        with suppress(ValueError):  # it reads what is updated since
            again.transform(graph)
            plan = again
    if machine.memories and draw(st.booleans()):
        away = replace(plan, offloaded=offloadable(graph, generator))
        with suppress(ValueError):  # it is updated in place
            away.transform(graph)
            plan = away
    changed = plan.transform(graph)
    if draw(st.booleans()):
        strategy = taskflow.stages(
            changed, machine, min(len(machine.devices), len(families(changed)))
        )
    else:
        strategy = random_strategy(changed, machine, seed)
    for op in (op for op in changed.operators if op.beside):
        if generator.random() < 0.4:
            strategy[op.name] = random_config(Family.of(op), machine, generator)
    parts = most_micro_batches(changed, strategy, draw(st.integers(1, 6)))
    plan = replace(plan, strategy=strategy, parts=parts)
    order = draw(st.sampled_from([None, *NAMED, "one_f_one_b:2", "list"]))
    if order == "list":
        order = gpipe.schedule(pipeline_of(plan.lower(graph, machine)[1]))
    return machine, replace(plan, schedule=order)


def whole(graph, device=0):
    """Every leader whole on one device."""
    return Strategy.of_graph(
        graph, {op.name: ParallelConfig({}, (device,)) for op in graph.operators if not op.follows}
    )
