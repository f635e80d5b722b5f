"""Random plans: graphs of the laws and tiny models of every kind, lowered by any strategy, in any order."""

from functools import cache

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

import ops
import taskflow
from taskflow import CostModel, MachineModel, ParallelConfig, lower, schedule
from taskflow.collective.algorithms import serving
from taskflow.machine.topology import mesh
from tests import laws
from tests.models.tiny import TINY, build
from tests.ops.strategies import operator_graphs
from tests.strategies import graphs, random_strategy


class Plan(tuple):
    """A graph and a task graph of it, in few words; `order` is that of the rows."""

    order = "lowered"

    def __repr__(self):
        graph, task_graph = self
        return f"Plan({task_graph}, {len(graph.operators)} operators)"


RULES = (
    taskflow.data_parallel,
    taskflow.model_parallel,
    taskflow.one_weird_trick,
    taskflow.operator_placement,
    taskflow.placed_tables,
    taskflow.single_device,
)
MACHINES = {
    "cpu": lambda devices: MachineModel.uniform(devices),
    "p100": lambda devices: MachineModel.preset("p100", nodes=1 + devices % 2),
    "mesh": lambda devices: mesh((2, (devices + 1) // 2)),
    "h100": lambda devices: MachineModel.preset("h100", nodes=1 + devices % 2),
}
COLLECTIVES = ("all-reduce", "reduce-scatter", "reduce", "all-gather", "broadcast")
ORDERS = ("lowered", "random", "by_ordinal", "first_ready", "critical_path", "crossover")
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
MODELS = sorted(set(TINY) - {"inception_v3"})  # 1,000 operators


@cache
def model_graph(name, precision, is_fused, batch):
    """A tiny model in a precision, trained by Adam."""
    graph = build(name, batch=batch, training=False, **TINY[name])
    graph = taskflow.precision(graph, precision)
    ops.adam(graph.outputs["loss"], lr=0.01)
    return taskflow.fuse(graph) if is_fused else graph


@st.composite
def checked_graphs(draw):
    """A graph of the laws, two of them beside each other, or a tiny model."""
    kind = draw(st.sampled_from(["tiny", "operators", "model", "jobs"]))
    if kind == "jobs":
        return taskflow.beside({job: draw(graphs(steps=2)).graph for job in "ab"})
    if kind == "tiny":
        return draw(graphs()).graph
    if kind == "operators":
        graph = draw(operator_graphs()).graph
        return taskflow.fuse(graph) if draw(st.booleans()) else graph
    drawn = (
        draw(st.sampled_from(values)) for values in (MODELS, PRECISIONS, (False, True), (3, 4, 8))
    )
    return model_graph(*drawn)


@st.composite
def plans(draw):
    """A graph and a task graph of it."""
    graph = draw(checked_graphs())
    machine = MACHINES[draw(st.sampled_from(sorted(MACHINES)))](draw(st.integers(1, 8)))
    if draw(st.booleans()):
        machine = machine.with_collectives(
            {name: draw(st.sampled_from(serving(name))) for name in COLLECTIVES}
        )
    if draw(st.integers(0, 3)) == 0:
        strategy = draw(st.sampled_from(RULES))(graph, machine)
        if draw(st.booleans()):
            strategy = with_split_updates(graph, machine, strategy)
    else:
        strategy = random_strategy(graph, machine, draw(st.integers(0, 2**32 - 1)))
    order, seed = draw(st.sampled_from(ORDERS)), draw(st.integers(0, 99))
    try:
        task_graph = lower(graph, strategy, machine)
    except ValueError:  # an operator that follows cannot be split so
        reject()
    plan = Plan((graph, in_order(task_graph, order, seed)))
    plan.order = order
    return plan


def updates(graph):
    """The operators that update parameters in place, beside the same axes of an optimizer's state."""
    return [
        op for op in graph.operators if any(op.inputs[k].role == "parameter" for k in op.writes)
    ]


def with_split_updates(graph, machine, strategy):
    """ZeRO: each update of a parameter is split over all devices, whatever its operator is."""
    strategy, count = strategy.copy(), len(machine.devices)
    for op in updates(graph):
        axis = next((a for a in op.split_axes if op.extents[a] >= count), None)
        if axis is not None and op.follows is not None:
            strategy[op.name] = ParallelConfig({axis: count}, tuple(range(count)))
    return strategy


def in_order(task_graph, order, seed):
    """The rows in another order, which their dependences allow."""
    if order == "lowered":
        return task_graph
    if order == "random":
        return task_graph.reordered(laws.random_order(task_graph, np.random.default_rng(seed)))
    costs = CostModel.analytic(task_graph.machine)
    return taskflow.reorder(task_graph, costs, getattr(schedule, order))
