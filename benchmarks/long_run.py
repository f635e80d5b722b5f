"""Many replayed steps: `python benchmarks/long_run.py`, and the same under `taskflow run -n 2`.

Trains a tiny graph, and prints the peak resident memory of every rank after step 1,000 and after the last one. Then it
does the same once more, and compares the sums of all losses and of all persistent regions. Exits with 1 if memory grew
by more than 1 %, or the sums differ by a bit.
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


def run(steps: int) -> tuple[list[float], int, float]:
    """The sums after so many steps, the memory after 1,000 of them, and seconds a step."""
    graph, machine = taskflow.Graph(), taskflow.MachineModel.local()
    x, t = graph.input("x", (8, 16)), graph.input("t", (8,), "int32")
    h = ops.dropout(ops.relu(ops.linear(x, 16, name="fc1")), 0.1)
    loss = ops.softmax_cross_entropy(ops.linear(h, 4, name="fc2"), t, name="loss")
    graph.output("loss", loss)
    ops.adam(loss, 1e-4)
    random = np.random.default_rng(0)
    feeds = {
        "x": random.random((8, 16), np.float32),
        "t": random.integers(0, 4, 8).astype(np.int32),
    }
    early, total = peak_kib(), 0.0
    with taskflow.Executor(
        taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
    ) as step:
        begin = time.perf_counter()
        for _ in range(steps):
            total += float(step(feeds)["loss"])
            if step.steps == 1000:
                early = peak_kib()
        seconds = (time.perf_counter() - begin) / steps
        return (
            [total, *(float(step.read(name).sum(dtype=np.float64)) for name in step.persistent)],
            early,
            seconds,
        )


def main() -> int:
    """Run the steps twice and print two lines a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    sums, early, seconds = run(options.steps)
    last = peak_kib()
    again, _, _ = run(options.steps)
    found = connect().gather((early, last, seconds, sums, again))
    for rank, (early, last, seconds, *_) in enumerate(found if connect().rank == 0 else []):
        growth = f"peak memory {early} KiB after step 1000, {last} KiB after step {options.steps}"
        growth += f" ({last / early - 1:+.2%})"
        print(f"rank {rank} of {len(found)}: {growth}; {seconds * 1e6:.1f} us a step")
    is_same = all(one == found[0][3] for *_, sums, again in found for one in (sums, again))
    if connect().rank == 0:
        verdict = "equal" if is_same else "DIFFER"
        print(f"sums of the losses and of {len(sums) - 1} regions, both runs, all ranks: {verdict}")
    return int(not is_same or any(last > 1.01 * early for early, last, *_ in found))


if __name__ == "__main__":
    sys.exit(main())
