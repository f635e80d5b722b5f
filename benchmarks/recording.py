"""What recording a Timeline costs: `python benchmarks/recording.py`, and under `mpirun -n 2`.

The same step of the digits CNN with `record=True` and `record=False`, taking turns; medians and their ratio.
"""

import numpy as np

import taskflow
from ops.models import digits


def main(batch: int = 64, rounds: int = 21, steps: int = 50) -> None:
    """Print both medians."""
    graph = digits.cnn(batch)
    machine = taskflow.MachineModel.local()
    task_graph = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.random((batch, 1, 8, 8), dtype=np.float32),
        "t": rng.integers(0, 10, batch).astype(np.int32),
    }
    executors = {flag: taskflow.Executor(task_graph, record=flag) for flag in (True, False)}
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for flag, step in executors.items():
            for _ in range(steps):
                step(feeds)
                times[flag].append(step.seconds)
    on, off = (float(np.median(times[flag])) for flag in (True, False))
    if executors[True].transport.rank == 0:
        print(
            f"{len(task_graph)} rows; recorded {on * 1e6:.0f} us, not recorded {off * 1e6:.0f} us: {on / off - 1:+.1%}"
        )


if __name__ == "__main__":
    main()
