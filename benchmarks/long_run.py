"""Memory over many replayed steps: `python benchmarks/long_run.py`, and the same under `taskflow run -n 2`.

Trains a tiny graph and prints the peak resident memory of every rank after step 1,000 and after the last step. The two
must be within 1 %: exits with 1 if they are not.
"""

import argparse
import resource
import sys
import time

import numpy as np

import ops
import taskflow
from taskflow.comm.transport import connect


def peak_kib() -> int:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    """Run the steps and print one line a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    graph, machine = taskflow.Graph(), taskflow.MachineModel.local()
    x, t = graph.input("x", (8, 16)), graph.input("t", (8,), "int32")
    h = ops.dropout(ops.relu(ops.linear(x, 16, name="fc1")), 0.1)
    loss = ops.softmax_cross_entropy(ops.linear(h, 4, name="fc2"), t, name="loss")
    graph.output("loss", loss)
    ops.adam(loss, 1e-4)
    step = taskflow.Executor(taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine))
    random = np.random.default_rng(0)
    feeds = {"x": random.random((8, 16), np.float32), "t": random.integers(0, 4, 8).astype(np.int32)}
    begin = time.perf_counter()
    for _ in range(options.steps):
        step(feeds)
        if step.steps == 1000:
            early = peak_kib()
    seconds = time.perf_counter() - begin
    growth = peak_kib() / early - 1
    line = (
        f"rank {step.transport.rank} of {step.transport.size}: peak memory {early} KiB after step 1000, "
        f"{peak_kib()} KiB after step {step.steps} ({growth:+.2%}); {seconds / step.steps * 1e6:.1f} us a step"
    )
    found = connect().gather((line, growth))
    if step.transport.rank == 0:
        print("\n".join(line for line, _ in found))
    return int(max(growth for _, growth in found) > 0.01)


if __name__ == "__main__":
    sys.exit(main())
