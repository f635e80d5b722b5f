"""Train a CNN on scikit-learn's digits: `mpirun -n 2 python examples/digits.py` (or alone)."""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

sys.path.insert(0, str(Path(__file__).parent))  # examples run from anywhere

from models import digits

import taskflow


def main() -> None:
    """Parse the command line, train, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("cnn", "mlp"), default="cnn")
    parser.add_argument("--strategy", default="search", help="search, data_parallel, model_parallel, one_weird_trick")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()

    begin = time.perf_counter()
    data = load_digits()
    images, labels = (data.images / 16.0).astype(np.float32), data.target.astype(np.int32)
    x = images.reshape(-1, 64) if options.model == "mlp" else images[:, None]
    train, test = np.split(np.random.default_rng(0).permutation(len(x)), [1437])
    build = getattr(digits, options.model)
    batches = taskflow.Batches({"x": x[train], "t": labels[train]}, options.batch)
    held_out = taskflow.Batches({"x": x[test], "t": labels[test]}, len(test), shuffle=False)

    rule = options.strategy if options.strategy == "search" else getattr(taskflow, options.strategy)
    steps = options.epochs * len(batches)
    trainer = taskflow.Trainer(
        build(options.batch), strategy=rule, learning_rate=taskflow.rates.cosine(0.05, steps, warmup=20)
    )
    validation = (build(len(test), training=False), held_out)
    history = trainer.fit(batches, options.epochs, validation)
    trainer.report(history)
    trainer.console.print(f"test accuracy: {history.validation['accuracy'][-1]:.4f}")
    trainer.console.print(f"total time: {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
