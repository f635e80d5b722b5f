"""Search of an architecture: what a degree of its skips promises, what a plan of it takes, both within budgets.

    python -m examples.applications.architecture_search
    python -m examples.applications.architecture_search --machine p100 --seed 1

docs/applications/architecture_search.md says what the paper claims, what is shown here and what is not.
"""

import argparse
from functools import partial
from itertools import product
from time import process_time
from typing import NamedTuple

import numpy as np

import ops
import taskflow
from taskflow import CostModel, Executor, Graph, LogicalRegion, MachineModel

Array = np.ndarray
CELLS = 2
WIDTH, DEPTH, SKIPS = (2, 14), (2, 5), (0, 14)  # of the space: least and most
PIXELS = (64, 16)  # of a cell's images: digits, and halved once
LABELS, BATCH, HELD_OUT = (
    300,
    64,
    512,
)  # images that nets learn from, of a step, and that they are judged by
RATE = 1e-2
FINALISTS = 16


class Cell(NamedTuple):
    """Convolutions of one width behind each other; each gets `skips` channels of those before its predecessor, too."""

    width: float
    depth: float
    skips: float

    @property
    def links(self) -> float:
        """Channels that all layers get from earlier ones; without a jump where a depth is no whole number."""
        of_layers = [min(self.skips, self.width * k) for k in range(1, DEPTH[1])]
        return sum(min(1, max(0, self.depth - k)) * n for k, n in enumerate(of_layers, 1))


Net = tuple[Cell, ...]


def net_of(numbers: Array) -> Net:
    """All widths, then all depths, then all skips."""
    return tuple(Cell(*cell) for cell in np.reshape(numbers, (3, CELLS)).T.tolist())


def degree(net: Net) -> float:
    """NN-Degree (Li et al., 2021): a cell's width, and its links over its width and depth."""
    return sum(cell.width + cell.links / (cell.width * cell.depth) for cell in net)


def sizes(net: Net) -> Array:
    """What time, memory and energy are nearly linear in: layers, joints, weights, products, activations."""
    found = np.array([1.0, 0, 0, 0, 0, 0])
    entering = 1.0
    for cell, pixels in zip(net, PIXELS):
        weights = 9 * cell.width * (entering + cell.width * cell.depth + cell.links)
        joints = min(1.0, cell.skips) * (cell.depth - 1)
        activations = pixels * (cell.width * (cell.depth + 1) + cell.links)
        found[1:] += cell.depth, joints, weights, pixels * weights, activations
        entering = cell.width
    return found


# -- nets --------------------------------------------------------------------------------------------------------------


def layer(h: LogicalRegion, width: int, name: str, training: bool) -> LogicalRegion:
    """A convolution, normalised and rectified."""
    h = ops.conv2d(h, width, 3, padding=1, bias=False, name=name)
    return ops.relu(ops.batch_norm(h, training, name=f"{name}.norm"), name=f"{name}.relu")


def layers(h: LogicalRegion, cell: Cell, name: str, training: bool) -> LogicalRegion:
    """A cell: the layer that enters it, and the others."""
    width, earlier = int(cell.width), list[LogicalRegion]()
    h = layer(h, width, f"{name}.enter", training)
    for k in range(int(cell.depth)):
        took, count = h, min(int(cell.skips), width * len(earlier))
        if count:
            every = ops.concat(earlier, 1, name=f"{name}.earlier{k}")
            some = ops.slice(every, 1, 0, count, name=f"{name}.some{k}")
            took = ops.concat([h, some], 1, name=f"{name}.joint{k}")
        earlier.append(h)
        h = layer(took, width, f"{name}.layer{k}", training)
    return h


def build(net: Net, batch: int = 1, training: bool = False) -> Graph:
    """Images `x` (batch, 1, 8, 8), classes `t`; fetched: scores `y`."""
    graph = Graph()
    h = graph.input("x", (batch, 1, 8, 8))
    for number, cell in enumerate(net):
        h = ops.max_pool2d(h, 2, name=f"pool{number}") if number else h
        h = layers(h, cell, f"cell{number}", training)
    y = graph.output("y", ops.linear(ops.global_avg_pool2d(h), 10, name="classes"))
    if training:
        loss = ops.softmax_cross_entropy(y, graph.input("t", (batch,), "int32"))
        ops.adam(loss, lr=RATE)
    return graph


def accuracy(net: Net, steps: int) -> float:
    """The share of held-out digits that a net tells right after some steps on few of them."""
    from sklearn.datasets import load_digits

    x, t = load_digits(return_X_y=True)
    order, generator = np.random.default_rng(0).permutation(len(x)), np.random.default_rng(1)
    x, t = (x[order].reshape(-1, 1, 8, 8) / 16).astype(np.float32), t[order].astype(np.int32)
    machine = MachineModel.local(devices=1)

    def rows(graph: Graph) -> taskflow.TaskGraph:
        return taskflow.lower(graph, taskflow.single_device(graph, machine), machine)

    with Executor(rows(build(net, BATCH, training=True)), seed=0) as learn:
        for _ in range(steps):
            some = generator.integers(0, LABELS, BATCH)
            learn({"x": x[some], "t": t[some]})
        with Executor(rows(build(net, HELD_OUT)), share=learn) as judge:
            scores = judge({"x": x[-HELD_OUT:]})["y"]
    return float((scores.argmax(1) == t[-HELD_OUT:]).mean())


# -- what a net takes --------------------------------------------------------------------------------------------------


class Takes(NamedTuple):
    """Of one image: seconds, bytes of the fullest device, joules (0: the machine does not say)."""

    seconds: float
    peak_bytes: float
    joules: float

    @classmethod
    def of(cls, timeline: taskflow.Timeline) -> "Takes":
        """As predicted."""
        return cls(timeline.seconds, float(timeline.peak_bytes.max()), timeline.joules or 0.0)

    def fits(self, budget: "Takes") -> bool:
        """Within all budgets."""
        return all(mine <= most for mine, most in zip(self, budget))


def on_one(net: Net, machine: MachineModel) -> Takes:
    """On one device."""
    graph, costs = build(net), CostModel.analytic(machine)
    rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
    return Takes.of(taskflow.simulate(rows, costs))


def planned(net: Net, machine: MachineModel, proposals: int) -> Takes:
    """By the best plan that a search over strategies finds: never slower than one device."""
    graph, costs = build(net), CostModel.analytic(machine)
    plan = taskflow.search(graph, machine, costs, proposals=proposals, seed=0).plan
    return Takes.of(plan.predict(graph, machine, costs))


# -- the search --------------------------------------------------------------------------------------------------------


def drawn(count: int, seed: int) -> list[Net]:
    """Nets of the space."""
    generator, bounds = np.random.default_rng(seed), (WIDTH, DEPTH, SKIPS)
    columns = [generator.integers(low, high + 1, (count, CELLS)) for low, high in bounds]
    return [net_of(numbers) for numbers in np.concatenate(columns, axis=1)]


def best_nets(models: Array, budget: Takes) -> tuple[list[Net], float]:
    """Whole nets near the optimum of SHGO that `models` (sizes, budgets) let within all budgets, and its seconds.

    SHGO (Endres et al., 2018) maximises the degree over real numbers; those of the highest degree come first.
    """
    from scipy.optimize import shgo

    start = process_time()

    def room(numbers: Array) -> Array:
        return 1 - sizes(net_of(numbers)) @ models / np.array(budget)

    bounds = [bound for bound in (WIDTH, DEPTH, SKIPS) for _ in range(CELLS)]
    optimum = shgo(
        lambda numbers: -degree(net_of(numbers)),
        bounds,
        constraints=[{"type": "ineq", "fun": room}],
        n=64,
    )
    near = [
        [x for x in range(low, high + 1) if abs(x - best) < 2]
        for (low, high), best in zip(bounds, optimum.x)
    ]
    whole = [np.array(numbers) for numbers in product(*near)]
    nets = [net_of(numbers) for numbers in whole if room(numbers).min() >= 0]
    return sorted(nets, key=degree, reverse=True), process_time() - start


def predictor(degrees: Array, accuracies: Array) -> None:
    """Print how well 1 / accuracy = a + b / degree, fitted to one half, predicts the other half."""
    from scipy.stats import kendalltau

    half = len(degrees) // 2
    powers = np.stack([np.ones(len(degrees)), 1 / degrees], 1)
    predicted = 1 / (powers @ np.linalg.lstsq(powers[:half], 1 / accuracies[:half])[0])
    error = np.abs(predicted - accuracies)[half:].mean()
    of_mean = np.abs(accuracies[:half].mean() - accuracies[half:]).mean()
    order = kendalltau(predicted[half:], accuracies[half:])[0]
    print(f"predictor: off by {error:.3f}, the mean by {of_mean:.3f}; Kendall's tau {order:.2f}")


class Found(NamedTuple):
    """What a search came to: the net and those it was weighed against."""

    net: Net
    takes: Takes
    accuracy: float
    budget: Takes
    best_sample: float
    correlation: float
    model_error: float
    seconds: float


def find(machine: MachineModel, seed: int, count: int, steps: int, proposals: int) -> Found:
    """Train a few nets, fit what they take, and look for a better one within the budgets: the medians of these.

    Raises:
        ValueError: no net near the optimum keeps to the budgets.
    """
    from scipy.stats import spearmanr

    nets = drawn(count, seed)
    accuracies = np.array([accuracy(net, steps) for net in nets])
    takes = np.array([on_one(net, machine) for net in nets])
    degrees = np.array([degree(net) for net in nets])
    of_nets = np.array([sizes(net) for net in nets])
    models = np.linalg.lstsq(of_nets, takes)[0]
    error = np.abs(of_nets @ models - takes)[:, 0] / takes[:, 0]
    predictor(degrees, accuracies)
    median = np.median(takes, axis=0)
    budget = Takes(*np.where(median > 0, median, np.inf).tolist())
    near, seconds = best_nets(models, budget)
    ways = partial(planned, proposals=proposals), on_one  # the fastest plan, or what moves nothing
    judged = ((net, way(net, machine)) for net in near[:FINALISTS] for way in ways)
    net, its = next(((net, its) for net, its in judged if its.fits(budget)), (None, budget))
    if net is None:
        raise ValueError(f"architecture search: none of {FINALISTS} finalists is within {budget}")
    within = [row for row, mine in zip(accuracies, takes) if Takes(*mine).fits(budget)]
    correlation = float(spearmanr(degrees, accuracies)[0])
    best_sample = float(max(within, default=0))
    return Found(
        net,
        its,
        accuracy(net, steps),
        budget,
        best_sample,
        correlation,
        float(error.mean()),
        seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--machine", default="laptop", help="a preset, for which nets are planned")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nets", type=int, default=24, help="that are trained to begin with")
    parser.add_argument("--steps", type=int, default=150, help="that each learns")
    parser.add_argument("--proposals", type=int, default=50, help="of the search for plans")
    options = parser.parse_args()
    machine = MachineModel.preset(options.machine)
    found = find(machine, options.seed, options.nets, options.steps, options.proposals)
    print(
        f"rank correlation of NN-Degree and accuracy over {options.nets} nets: {found.correlation:.2f}"
    )
    print(f"latency model: off by {found.model_error:.1%}; SHGO: {found.seconds:.2f} s")
    print(
        "found:",
        ", ".join(
            f"{c.width:.0f} wide, {c.depth:.0f} deep, {c.skips:.0f} skips" for c in found.net
        ),
    )
    for name, mine, most in zip(Takes._fields, found.takes, found.budget):
        print(f"{name}: {mine:.4g} of {most:.4g}")
    print(
        f"accuracy: {found.accuracy:.3f}; best sample within the budgets: {found.best_sample:.3f}"
    )


if __name__ == "__main__":
    main()
