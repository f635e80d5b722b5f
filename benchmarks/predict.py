"""Predicted against measured step time of the demo CNN: `mpirun -n 2 python benchmarks/predict.py`.

For each strategy: costs are measured kernel by kernel on rank 0, the step is simulated, then run; the measured time is
the median step of the slowest rank over several rounds, the strategies taking turns.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from models import digits

import taskflow


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    graph = digits.cnn(options.batch)
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.random((options.batch, 1, 8, 8), dtype=np.float32),
        "t": rng.integers(0, 10, options.batch).astype(np.int32),
    }
    rules = ["single_device", "data_parallel", "model_parallel", "one_weird_trick"]
    trainers = {r: taskflow.Trainer(graph, strategy=getattr(taskflow, r), quiet=True) for r in rules}
    trainers["random"] = taskflow.Trainer(graph, strategy=lambda g, m: taskflow.random_strategy(g, m, 3), quiet=True)
    measured: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(options.rounds):
        for name, trainer in trainers.items():
            times = []
            for _ in range(options.steps):
                trainer.step(feeds)
                times.append(trainer.step.seconds)
            measured[name].append(max(trainer.transport.gather(float(np.median(times)))))
    console = next(iter(trainers.values())).transport.rank
    if console == 0:
        print(f"{'strategy':16s} {'predicted ms':>12s} {'measured ms':>12s} {'ratio':>6s} {'bytes moved':>12s}")
        for name, trainer in trainers.items():
            seconds = float(np.median(measured[name]))
            ratio = seconds / trainer.predicted_seconds
            moved = trainer.task_graph.bytes_moved
            print(f"{name:16s} {trainer.predicted_seconds * 1e3:12.3f} {seconds * 1e3:12.3f} {ratio:6.2f} {moved:12d}")


if __name__ == "__main__":
    main()
