"""A chain of cells, each with a weight, a unit of time forward and one or two backward; and what rows of it cost."""

import numpy as np

import ops
from taskflow import CostModel, Graph, Kind, Uniform
from taskflow.graph.phases import Phase


def _forward(ctx, x, w, y):
    np.multiply(x, w, out=y)


def _input_gradient(ctx, g, w, gx):
    np.multiply(g, w, out=gx)


def _weight_gradient(ctx, g, x, gw):
    np.sum(g * x, axis=0, out=gw)


def _both(ctx, g, x, w, gx, gw):
    np.multiply(g, w, out=gx)
    np.sum(g * x, axis=0, out=gw)


def _add(ctx, x, b, y):
    np.add(x, b, out=y)


def _copy(ctx, x, y):
    np.copyto(y, x)


def cell(x, name, is_joint=False, is_trained=True):
    """y = x * w, with the gradients of x and w in one operator or in two."""
    graph = x.graph
    weight = graph.parameter(f"{name}.weight", x.shape[1:], Uniform(0.5, 1.5), x.dtype, is_trained)

    def backward(op, g):
        if is_joint:
            return graph.launch(
                f"{name}.dboth",
                "b f, b f, f -> b f, f",
                [g, op.inputs[0], op.inputs[1]],
                kernel=_both,
                flops=2.0,
            )
        gx = graph.launch(f"{name}.dx", "b f, f -> b f", [g, op.inputs[1]], kernel=_input_gradient)
        return gx, graph.launch(
            f"{name}.dw", "b f, b f -> f", [g, op.inputs[0]], kernel=_weight_gradient
        )

    return graph.launch(name, "b f, f -> b f", [x, weight], kernel=_forward, backward=backward)


def shift(x, name):
    """x + b, so that the gradient of the first cell's input is needed."""
    bias = x.graph.parameter(f"{name}.bias", x.shape[1:], Uniform(-0.5, 0.5), x.dtype)

    def backward(op, g):
        return None, x.graph.launch(f"{name}.dbias", "b f -> f", [g], kernel=_sum)

    return x.graph.launch(name, "b f, f -> b f", [x, bias], kernel=_add, backward=backward)


def _sum(ctx, g, gb):
    np.sum(g, axis=0, out=gb)


def chain(cells, samples, features=4, is_joint=False, forward_only=0):
    """Cells `cell0`, `cell1`, ..., a loss and plain gradient descent, in float64.

    No gradient goes back through the first `forward_only` cells.
    """
    graph = Graph()
    h = graph.input("x", (samples, features), "float64")
    if not forward_only:
        h = shift(h, "shift")
    for k in range(cells):
        h = cell(h, f"cell{k}", is_joint, is_trained=k >= forward_only)
        if k == forward_only - 1:
            h = graph.launch("stop", "b f -> b f", [h], kernel=_copy, backward=lambda op, g: None)
    target = graph.input("t", (samples,), "int32")
    ops.sgd(ops.softmax_cross_entropy(h, target, name="loss"), lr=0.1)
    return graph


def feeds_of(graph, seed=0):
    generator = np.random.default_rng(seed)
    (samples, features) = graph.regions["x"].shape
    return {
        "x": generator.standard_normal((samples, features)),
        "t": generator.integers(0, features, samples).astype(np.int32),
    }


class CellCosts(CostModel):
    """A unit for every point of a cell (two for a joint backward), nothing for all else."""

    def __init__(self, forward=1.0, backward=1.0, weight=1.0, joint=2.0):
        self.of = {Phase.FORWARD: forward, Phase.BACKWARD: backward, Phase.WEIGHT: weight}
        self.joint = joint

    def seconds(self, task_graph):
        by_launch = [self._seconds(launch) for launch in task_graph.launches] + [0.0]
        return np.where(task_graph.kind == Kind.POINT, np.array(by_launch)[task_graph.launch], 0.0)

    def _seconds(self, launch):
        if not launch.name.startswith("cell") or launch.phase == Phase.UPDATE:
            return 0.0
        return self.joint if launch.name.endswith(".dboth") else self.of[launch.phase]

    def source(self, task_graph, row):
        return "by hand"

    def _points(self, task_graph, rows):
        return self.seconds(task_graph)[rows]
