"""Graph networks: digits by their neighbours, the stages of six kinds, and a relation that is streamed in parts.

    python -m examples.applications.graphs --kind gat
    python -m examples.applications.graphs --profile
    python -m examples.applications.graphs --parts 16

docs/applications/graphs.md says what the papers claim, what is shown here and what is not.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from time import process_time

import numpy as np

import ops
import taskflow
from ops.models import gnn
from taskflow import Graph, ParallelConfig, Strategy

LABELS = 10  # of each class that are known
Array = np.ndarray


def digits() -> tuple[Array, Array, gnn.Relation]:
    """Images as rows, their classes, and edges between each and its eight nearest ones."""
    from sklearn.datasets import load_digits
    from sklearn.neighbors import kneighbors_graph

    x, t = load_digits(return_X_y=True)
    near = kneighbors_graph(x / 16, 8, mode="connectivity").tocoo()
    return (x / 16).astype(np.float32), t, gnn.normalised(near.col, near.row, len(x))


def known(t: Array, seed: int = 0) -> Array:
    """The classes, -1 for all but `LABELS` of each."""
    generator, labels = np.random.default_rng(seed), np.full(len(t), -1)
    for c in range(t.max() + 1):
        some = generator.choice(np.flatnonzero(t == c), LABELS, replace=False)
        labels[some] = c
    return labels


def in_order(relation: gnn.Relation) -> tuple[Array, gnn.Relation]:
    """An order in which neighbours are near each other, so that parts read less of each other; edges in this order."""
    indptr, indices, _ = relation
    order = ops.graph_order(indptr, indices)
    number = np.argsort(order)
    targets = np.repeat(np.arange(len(order)), np.diff(indptr))
    return order, gnn.normalised(number[indices], number[targets], len(order))


def learn(kind: str, devices: int, epochs: int) -> float:
    """The share of images without a label that are told right, after training on all devices."""
    x, t, relation = digits()
    order, relation = in_order(relation)
    x, t, labels = x[order], t[order], known(t)[order].astype(np.int32)
    graph = gnn.build(kind, x.shape[1], relation=relation)
    machine = taskflow.MachineModel.local(devices=devices)
    rows = taskflow.lower(graph, taskflow.even_work(graph, machine), machine)
    timeline = taskflow.simulate(rows, taskflow.CostModel.analytic(machine))
    with taskflow.Executor(rows, seed=0) as step:
        for _ in range(epochs):
            values = step({"x": x, "t": labels})
    right = (values["y"].argmax(1) == t)[labels < 0].mean()
    print(f"{kind} on {devices} devices: {right:.3f} right, {timeline.bytes_moved} bytes a step")
    return float(right)


def regression() -> float:
    """What logistic regression makes of the same labels, without edges."""
    from sklearn.linear_model import LogisticRegression

    x, t, _ = digits()
    labels = known(t)
    model = LogisticRegression(max_iter=2000).fit(x[labels >= 0], t[labels >= 0])
    right = (model.predict(x[labels < 0]) == t[labels < 0]).mean()
    print(f"logistic regression on the same {sum(labels >= 0)} labels: {right:.3f} right")
    return float(right)


# -- stages ------------------------------------------------------------------------------------------------------------


def profile(kind: str, scale: int, steps: int = 5) -> Mapping[str, float]:
    """Shares of the seconds of stages in a forward pass; their bytes are printed, too."""
    graph = gnn.build(kind, relation=gnn.rmat(scale), by_stages=True, training=False)
    machine = taskflow.MachineModel.local(devices=1)
    rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
    vertices = graph.regions["x"].shape[0]
    feeds = {
        "x": np.random.default_rng(0).random((vertices, 64), np.float32),
        "t": np.zeros(vertices, np.int32),
    }
    stage = np.array([rows.launches[k].name[0] if k >= 0 else "" for k in rows.launch])
    seconds, size = defaultdict[str, list[float]](list), dict[str, int]()
    with taskflow.Executor(rows, record=True) as step:
        for _ in range(steps):
            step(feeds)
            taken = np.nan_to_num(step.timeline.end - step.timeline.start)
            for name in "SEGV":
                seconds[name].append(float(taken[stage == name].sum()))
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    shares = {name: value / sum(medians.values()) for name, value in medians.items()}
    for name in "SEGV":
        size[name] = int(rows.bytes[stage == name].sum())
    print(
        f"{kind:8}",
        "  ".join(f"{name} {shares[name]:4.0%} {size[name] / 1e6:6.1f} MB" for name in "SEGV"),
    )
    return shares


# -- a relation in parts ----------------------------------------------------------------------------------------------


def streamed(graph: Graph, indptr: Array, parts: int) -> tuple[Graph, Strategy]:
    """Edges in parts that follow each other on a device: what each makes is gone before the next one comes.

    Messages are made again for the gradient. Parts are of equal numbers of edges, by vertices that these lead to.
    """
    stages = [op.name for op in graph.operators if op.name[:2] in ("S.", "E.")]
    of_edges = [name for name in stages if not graph.operator(name).is_backward]
    graph = taskflow.recompute(graph, of_edges)
    edges = int(indptr[-1])
    cuts = np.searchsorted(indptr, np.linspace(0, edges, parts + 1)[1:-1])
    cuts = np.array([0, *cuts, len(indptr) - 1])
    fractions = {
        len(indptr) - 1: tuple((np.diff(cuts) / (len(indptr) - 1)).tolist()),
        edges: tuple((np.diff(indptr[cuts]) / edges).tolist()),
    }
    strategy = taskflow.single_device(graph, taskflow.MachineModel.local(devices=1))
    for op in graph.operators if parts > 1 else ():
        is_stage = op.follows is None and op.name[:2] in ("S.", "E.", "G.")
        if is_stage or op.name[:2] == "G.":  # a gradient at edges is of all that leads to vertices
            axis = op.bound.pattern.outputs[0].dims[0][0]
            strategy[op.name] = ParallelConfig({axis: fractions[op.extents[axis]]}, (0,) * parts)
    return graph, strategy


def stream(parts: int, scale: int, steps: int = 3) -> tuple[float, float, float]:
    """Peak bytes, seconds of the processor and the loss of training steps of a GCN with messages in parts."""
    relation = gnn.rmat(scale, 16)
    graph = gnn.build(hidden=64, classes=64, relation=relation, by_stages=True)
    machine = taskflow.MachineModel.local(devices=1)
    costs = taskflow.CostModel.analytic(machine)
    graph, strategy = streamed(graph, relation[0], parts)
    rows = taskflow.lower(graph, strategy, machine)
    rows = taskflow.reorder(rows, costs, taskflow.schedule.by_ordinal)
    peak = float(max(taskflow.simulate(rows, costs).peak_bytes))
    generator, vertices = np.random.default_rng(0), graph.regions["x"].shape[0]
    feeds = {
        "x": generator.random((vertices, 64), np.float32),
        "t": generator.integers(0, 64, vertices).astype(np.int32),
    }
    with taskflow.Executor(rows, seed=0) as step:
        step(feeds)
        start = process_time()
        for _ in range(steps):
            loss = float(step(feeds)["loss"])
        seconds = (process_time() - start) / steps
    print(f"{parts:3} parts: peak {peak / 1e6:.1f} MB, {seconds * 1e3:.1f} ms, loss {loss:.6f}")
    return peak, seconds, loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", default="gcn", choices=list(gnn.KINDS))
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--profile", action="store_true", help="stages of all kinds")
    parser.add_argument("--parts", type=int, help="stream the edges in so many parts")
    parser.add_argument("--scale", type=int, default=13, help="2^scale vertices of R-MAT")
    options = parser.parse_args()
    if options.profile:
        for kind in gnn.KINDS:
            profile(kind, options.scale)
    elif options.parts:
        for parts in (1, options.parts):
            stream(parts, options.scale)
    else:
        learn(options.kind, options.devices, options.epochs)
        regression()


if __name__ == "__main__":
    main()
