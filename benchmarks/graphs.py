"""Sums over edges beside scipy's product, bytes of a step in parts, and what a search finds for a graph network.

    python benchmarks/graphs.py

On one thread: the fused sum over edges of digits and of R-MAT (2^14 vertices), 64 features, against scipy's product of
a sparse matrix, and against its three stages (messages, weights, sums). For four devices: bytes of a training
step on digits with neighbours near each other, where a part reads what lies between its first and last neighbour, and
where it reads all vertices. On eight H100: the step of a GCN with equal vertices, with equal work, and of a search.
PyTorch Geometric and DGL, whose kernels are the fastest peers, are left out: they do not install here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import process_time

import numpy as np

import ops
import taskflow
from examples.applications.graphs import digits, in_order
from ops.models import gnn
from ops.relations import edges as relations

FEATURES = 64


def best(call: Callable[[], object], times: int = 15) -> float:
    """The least seconds of the processor of a call."""
    seconds = []
    for _ in range(times):
        start = process_time()
        call()
        seconds.append(process_time() - start)
    return min(seconds)


def one_layer(relation: gnn.Relation, by_stages: bool) -> taskflow.Graph:
    """A sum over edges alone."""
    graph, (indptr, indices, weight) = taskflow.Graph(), relation
    edges = ops.edges(graph, indptr, indices, weight)
    x = graph.input("x", (edges.vertices, FEATURES))
    graph.output("y", gnn.Layer(edges, 1, by_stages).sum(x))
    return graph


def compare_sums(name: str, relation: gnn.Relation) -> None:
    """Fused, by stages, and scipy's product."""
    from scipy.sparse import csr_matrix

    indptr, indices, weight = relation
    x = np.random.default_rng(0).random((len(indptr) - 1, FEATURES), np.float32)
    matrix, seconds = csr_matrix((weight, indices, indptr)), {}
    machine = taskflow.MachineModel.local(devices=1)
    for way in ("fused", "stages"):
        graph = one_layer(relation, way == "stages")
        rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
        with taskflow.Executor(rows, record=True) as step:
            np.testing.assert_allclose(step({"x": x})["y"], matrix @ x, rtol=1e-3, atol=1e-4)
            taken, is_point = [], rows.kind == taskflow.Kind.POINT
            for _ in range(15):
                step({"x": x})
                taken.append(np.nan_to_num(step.timeline.end - step.timeline.start)[is_point].sum())
            seconds[way] = float(min(taken))
    seconds["scipy"] = best(lambda: matrix @ x)
    print(
        f"{name}: {len(indices)} edges: "
        + ", ".join(f"{way} {s * 1e3:.2f} ms" for way, s in seconds.items())
        + f"; fused over scipy {seconds['fused'] / seconds['scipy']:.2f}, "
        f"stages over fused {seconds['stages'] / seconds['fused']:.1f}"
    )


def compare_bytes() -> None:
    """A training step on four devices, with images of sources and reading all."""
    machine = taskflow.MachineModel.uniform(4)
    costs, moved = taskflow.CostModel.analytic(machine), {}
    relation, worth = in_order(digits()[2])[1], relations.WORTH
    for way, share in (("images", worth), ("all", 0.0)):
        relations.WORTH = share
        graph = gnn.build("gcn", relation=relation, dtype="float64")
        rows = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
        moved[way] = taskflow.simulate(rows, costs).bytes_moved
    relations.WORTH = worth
    print(f"bytes of a step, digits: {moved}, {moved['images'] / moved['all']:.3f}")


def compare_plans(proposals: int) -> None:
    """A GCN of 512 features on eight H100."""
    machine = taskflow.MachineModel.preset("h100", nodes=1)
    costs = taskflow.CostModel.analytic(machine)
    graph = gnn.build("gcn", 512, 512, relation=gnn.rmat(13, 24), training=False)
    rules = {"equal vertices": taskflow.data_parallel, "equal work": taskflow.even_work}
    seconds = {
        name: taskflow.simulate(taskflow.lower(graph, rule(graph, machine), machine), costs).seconds
        for name, rule in rules.items()
    }
    seconds["searched"] = taskflow.search(graph, machine, costs, proposals=proposals).seconds
    print("GCN on 8 H100:", ", ".join(f"{name} {s * 1e6:.0f} us" for name, s in seconds.items()))
    assert seconds["searched"] <= seconds["equal work"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--proposals", type=int, default=200, help="of the search")
    options = parser.parse_args()
    compare_sums("digits", digits()[2])
    compare_sums("R-MAT", gnn.rmat(14, 8))
    compare_bytes()
    compare_plans(options.proposals)


if __name__ == "__main__":
    main()
