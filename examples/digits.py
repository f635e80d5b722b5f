"""Train a CNN on scikit-learn's digits: `mpirun -n 2 python examples/digits.py` (or alone).

A step of the default CNN has enough to do for two cores to be faster than one. With `--width 16` it has not, on most
machines: the search then says so. What one device takes is measured, too.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

sys.path.insert(0, str(Path(__file__).parent))  # examples run from anywhere

import taskflow
from ops.models import digits


def main() -> None:
    """Parse the command line, train, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("cnn", "mlp"), default="cnn")
    parser.add_argument(
        "--strategy",
        default="search",
        help="search, data_parallel, model_parallel, one_weird_trick",
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument(
        "--width", type=int, default=64, help="channels of the CNN's first convolution"
    )
    options = parser.parse_args()

    begin = time.perf_counter()
    data = load_digits()
    images, labels = (data.images / 16.0).astype(np.float32), data.target.astype(np.int32)
    x = images.reshape(-1, 64) if options.model == "mlp" else images[:, None]
    train, test = np.split(np.random.default_rng(0).permutation(len(x)), [1437])
    build = digits.mlp if options.model == "mlp" else partial(digits.cnn, width=options.width)
    batches = taskflow.Batches({"x": x[train], "t": labels[train]}, options.batch)
    held_out = taskflow.Batches({"x": x[test], "t": labels[test]}, len(test), shuffle=False)

    rule = options.strategy if options.strategy == "search" else getattr(taskflow, options.strategy)
    steps = options.epochs * len(batches)
    trainer = taskflow.Trainer(
        build(options.batch),
        strategy=rule,
        learning_rate=taskflow.rates.cosine(0.05, steps, warmup=min(20, steps)),
    )
    validation = (build(len(test), training=False), held_out)
    history = trainer.fit(batches, options.epochs, validation)
    trainer.report(history=history)
    alone = seconds_alone(trainer, next(batches.epoch(0)))
    trainer.console.print(
        f"one device alone:    {alone * 1e3:.3f} ms, measured ({alone / history.step_seconds:.2f}x)"
    )
    trainer.console.print(f"test accuracy: {history.validation['accuracy'][-1]:.4f}")
    trainer.console.print(f"total time: {time.perf_counter() - begin:.1f} s")


def seconds_alone(trainer: taskflow.Trainer, feeds: dict[str, np.ndarray]) -> float:
    """The median of 20 steps of the first device, while the others have nothing to do; of rank 0."""
    strategy = taskflow.single_device(trainer.graph, trainer.machine)
    with taskflow.Executor(taskflow.lower(trainer.graph, strategy, trainer.machine)) as step:
        return float(np.median([step.seconds for _ in range(20) if step(feeds)]))


if __name__ == "__main__":
    main()
