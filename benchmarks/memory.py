"""Memory of a large MLP, whole on one rank or split `{"o": 2}` over two.

`python benchmarks/memory.py` and `mpirun -n 2 python benchmarks/memory.py`. Printed per rank: bytes of parameters and
optimizer state, the arena (all instances of a step, gradients included), and the peak resident size that the kernel
saw.
"""

import argparse
import resource

import numpy as np
from mpi4py import MPI

import ops
import taskflow


def build(inputs: int, hidden: int, batch: int) -> taskflow.Graph:
    """Two hidden layers, SGD with momentum."""
    graph = taskflow.Graph()
    h, t = graph.input("x", (batch, inputs)), graph.input("t", (batch,), "int32")
    for k in (1, 2):
        h = ops.relu(ops.linear(h, hidden, name=f"fc{k}"), name=f"relu{k}")
    loss = ops.softmax_cross_entropy(ops.linear(h, 10, name="fc3"), t, name="loss")
    ops.sgd(loss, lr=0.01, momentum=0.9)
    return graph


def main() -> None:
    """Print the figures of every rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=16384)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    ranks = MPI.COMM_WORLD.size
    graph = build(options.inputs, options.hidden, options.batch)
    machine = taskflow.MachineModel.local(ranks)
    strategy = taskflow.data_parallel(graph, machine)
    for name in ("fc1", "relu1", "fc2", "relu2", "fc3"):
        strategy[name] = taskflow.ParallelConfig({"o": ranks})
    task_graph = taskflow.lower(graph, strategy, machine)
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.random((options.batch, options.inputs), dtype=np.float32),
        "t": rng.integers(0, 10, options.batch).astype(np.int32),
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with taskflow.Executor(task_graph) as step:
        for _ in range(2):
            step(feeds)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parameters = sum(p.size_bytes for p in graph.parameters)
    rank = MPI.COMM_WORLD.rank
    line = (
        f"rank {rank} of {ranks}: parameters of the model {parameters / 1e9:.3f} GB; "
        f"on this rank: parameters and state {step.plan.persistent_bytes[rank] / 1e9:.3f} GB, "
        f"arena {step.plan.peak_bytes[rank] / 1e9:.3f} GB, "
        f"resident {before / 1e9:.3f} -> {after / 1e9:.3f} GB"
    )
    for text in MPI.COMM_WORLD.gather(line) or []:
        print(text)


if __name__ == "__main__":
    main()
