"""Micro-clouds: copies of a model that learn from data of their own, and send each other what their links can carry.

    python -m examples.applications.micro_clouds
    python -m examples.applications.micro_clouds --apart

docs/applications/micro_clouds.md says what the paper claims, what is shown here and what is not.
"""

import argparse
from math import prod

import numpy as np

import ops
import taskflow
from taskflow import Batches, Graph, LogicalRegion, MachineModel, ParallelConfig, Plan, Strategy

CLOUDS, BATCH, RATE = 4, 30, 0.1
Array = np.ndarray
Sent = tuple[LogicalRegion, LogicalRegion]  # numbers, and their places in the flattened gradient


def wan() -> MachineModel:
    """A device in each cloud, and a link of 1 MB/s between any two of them."""
    device = taskflow.Device(flops_per_second=5e10)
    return MachineModel.uniform(CLOUDS, device, bandwidth=1e6, latency_seconds=1e-4)


def cloud() -> Graph:
    """A net for digits; its gradients are one array, `gradient`, in the order of its parameters."""
    graph = Graph()
    x, t = graph.input("x", (BATCH, 64)), graph.input("t", (BATCH,), "int32")
    h = ops.relu(ops.linear(x, 64, name="fc1"), name="relu")
    loss = graph.output("loss", ops.cross_entropy(ops.linear(h, 10, name="fc2"), t, name="ce"))
    gradients = ops.gradients(loss, graph.parameters)
    flat = [ops.reshape(gradients[p], (prod(p.shape),), f"{p.name}.flat") for p in graph.parameters]
    ops.concat(flat, 0, name="gradient")
    return graph


def largest(g: LogicalRegion, count: int, name: str) -> Sent:
    """The elements of the largest size."""
    places = ops.topk(ops.abs(g, name=f"{name}.size"), count, name=f"{name}.top")[1]
    numbers = ops.gather(g, 0, places, name=f"{name}.numbers")
    return numbers, ops.cast(places, "int32", name=f"{name}.places")


def descend(ctx: taskflow.Context, w: Array, g: Array) -> None:
    """A step of gradient descent, with the mean over clouds."""
    ctx.xp.subtract(w, g.reshape(w.shape) * (RATE / CLOUDS), out=w)


def build(machine: MachineModel, seconds: float) -> tuple[Graph, Strategy, dict[int, float]]:
    """All clouds as one graph, where each is, and the bytes that every link may carry: those of `seconds`."""
    graph = taskflow.beside({f"c{k}": cloud() for k in range(CLOUDS)})
    places = {op.name: int(op.job[1:]) for op in graph.operators}
    budgets = {k: link.bandwidth * seconds for k, link in enumerate(machine.links)}
    of_pair = {link.ends: k for k, link in enumerate(machine.links)}
    made = [graph.regions[f"c{k}/gradient"] for k in range(CLOUDS)]
    sent: dict[tuple[int, int], Sent] = {}

    def note(cloud: int) -> None:
        places.update({op.name: cloud for op in graph.operators if op.name not in places})

    for j, total in enumerate(made):
        for i in (i for i in range(CLOUDS) if i != j):
            left, size = budgets[of_pair[i, j]], total.shape[0]
            count = int(left / 8)  # 4 bytes for each number, 4 for its place
            if left >= 4 * size:
                total = ops.add(total, made[i], name=f"c{j}/with{i}")
            elif count:
                if (i, count) not in sent:
                    sent[i, count] = largest(made[i], count, f"c{i}/largest{count}")
                    note(i)
                numbers, where = sent[i, count]
                total = ops.index_add(total, 0, where, numbers, name=f"c{j}/from{i}")
            note(j)
        at = 0
        for w in (r for r in graph.parameters if r.name.startswith(f"c{j}/")):
            g = ops.slice(total, 0, at, at := at + prod(w.shape), name=f"{w.name}.total")
            axes = " ".join(f"^{axis}" for axis in "ab"[: w.ndim])
            pattern, inputs = f"{axes}, ^n ->", [w, g]
            graph.launch(f"{w.name}.update", pattern, inputs, kernel=descend, writes=[w])
        note(j)
    strategy = {op.name: ParallelConfig({}, (places[op.name],)) for op in graph.operators}
    return graph, Strategy.of_graph(graph, strategy), budgets


def digits(is_apart: bool) -> tuple[list[tuple[Array, Array]], tuple[Array, Array]]:
    """Sixty samples of each cloud, of all classes or of four, and those that none has seen."""
    from sklearn.datasets import load_digits

    x, t = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, t = (x[order] / 16).astype(np.float32), t[order].astype(np.int32)
    rows = [np.arange(1400)[k::CLOUDS] for k in range(CLOUDS)]
    if is_apart:
        classes = [[c % 10 for c in range(2 * k, 2 * k + 4)] for k in range(CLOUDS)]
        rows = [np.flatnonzero(np.isin(t[:1400], some)) for some in classes]
    return [(x[r[:60]], t[r[:60]]) for r in rows], (x[1400:], t[1400:])


def accuracy(step: taskflow.Executor, k: int, x: Array, t: Array) -> float:
    """What cloud k makes of samples that nobody has seen."""
    w1, b1, w2, b2 = (
        step.read(f"c{k}/fc{n}.{what}") for n in (1, 2) for what in ("weight", "bias")
    )
    y = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
    return float((y.argmax(1) == t).mean())


def learn(
    name: str, seconds: float, merges: bool, is_apart: bool, steps: int
) -> tuple[float, int, float]:
    """Mean accuracy of all clouds, bytes of a step, and its predicted seconds."""
    machine = wan()
    costs = taskflow.CostModel.analytic(machine)
    graph, strategy, budgets = build(machine, seconds)
    plan = Plan(strategy, schedule="critical_path")
    timeline = plan.predict(graph, machine, costs)
    for link, size in timeline.link_bytes().items():
        assert size <= budgets[link], (machine.links[link].ends, size)
    samples, test = digits(is_apart)
    arrays = {f"c{k}/{n}": a for k, xt in enumerate(samples) for n, a in zip("xt", xt, strict=True)}
    trainer = taskflow.Trainer(graph, machine=machine, strategy=plan, costs=costs, quiet=True)
    copies = [f"c{k}" for k in range(CLOUDS)]
    callbacks = [taskflow.callbacks.MergeBest(copies)] if merges else []
    batches = Batches(arrays, BATCH, seed=1)
    trainer.fit(batches, max(1, steps // len(batches)), callbacks=callbacks)
    reached = [accuracy(trainer.step, k, *test) for k in range(CLOUDS)]
    most = max(timeline.link_bytes().values(), default=0)
    print(
        f"{name:30} {timeline.bytes_moved:7d} bytes a step, at most {most:6d} of a link, "
        f"{timeline.seconds * 1e3:5.1f} ms predicted; accuracy {np.mean(reached):.3f}, "
        f"of clouds {min(reached):.3f} to {max(reached):.3f}",
        flush=True,
    )
    return float(np.mean(reached)), timeline.bytes_moved, timeline.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--apart", action="store_true", help="four classes of ten in each cloud")
    options = parser.parse_args()
    size = 4 * sum(prod(r.shape) for r in cloud().parameters)
    for name, share, merges in (
        ("whole gradients", 1.0, False),
        ("nothing", 0.0, False),
        ("largest 10 %", 0.2, False),
        ("largest 10 %, best weights", 0.2, True),
        ("largest 2 %, best weights", 0.04, True),
    ):
        seconds_of_a_link = share * size / 1e6
        learn(name, seconds_of_a_link, merges, options.apart, options.steps)


if __name__ == "__main__":
    main()
