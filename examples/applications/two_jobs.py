"""Two trainings on one machine: digits, and whether two digits are the same; each learns as if it were alone.

    python -m examples.applications.two_jobs
    taskflow run -n 2 -m examples.applications.two_jobs

docs/applications/two_jobs.md says what the paper claims, what is shown here and what is not.
"""

import argparse
from collections.abc import Mapping

import numpy as np

import ops
import taskflow
from taskflow import Batches, Graph, Job, Jobs, MachineModel

BATCH = 64
Array = np.ndarray


def perceptron(inputs: int, classes: int, hidden: int) -> Graph:
    """Three dense layers, trained by Adam."""
    graph = Graph()
    x, t = graph.input("x", (BATCH, inputs)), graph.input("t", (BATCH,), "int32")
    h = ops.relu(ops.linear(x, hidden, name="fc1"), name="relu1")
    h = ops.relu(ops.linear(h, hidden, name="fc2"), name="relu2")
    y = graph.output("y", ops.linear(h, classes, name="fc3"))
    ops.adam(ops.cross_entropy(y, t, name="ce"), lr=0.002)
    return graph


def digits() -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Images with what they show, and pairs of images with whether they show the same."""
    from sklearn.datasets import load_digits

    x, t = load_digits(return_X_y=True)
    x, generator = (x / 16).astype(np.float32), np.random.default_rng(0)
    left, right = generator.integers(0, 1400, (2, 4000))
    same = generator.random(4000) < 0.5
    right[same] = [generator.choice(np.flatnonzero(t[:1400] == t[k])) for k in left[same]]
    pairs = np.concatenate([x[left], x[right]], axis=1)
    return (
        {"x": x[:1400], "t": t[:1400].astype(np.int32)},
        {"x": pairs, "t": (t[left] == t[right]).astype(np.int32)},
    )


def train(machine: MachineModel, epochs: int) -> dict[str, float]:
    """Train both, the digits for twice as many epochs; their last losses."""
    images, pairs = digits()
    jobs = Jobs(
        {
            "digits": Job(perceptron(64, 10, 128), Batches(images, BATCH), epochs=2 * epochs),
            "pairs": Job(perceptron(128, 2, 128), Batches(pairs, BATCH), epochs=epochs),
        },
        machine=machine,
        costs=taskflow.CostModel.analytic(machine),
        quiet=True,
    )
    found = {job: history.outputs["loss"] for job, history in jobs.fit().items()}
    if jobs.trainer.transport.rank == 0:
        for job, losses in found.items():
            print(f"{job}: loss {losses[0]:.3f} after the first epoch, {losses[-1]:.3f} at the end")
    return {job: losses[-1] for job, losses in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    train(MachineModel.local(devices=2), parser.parse_args().epochs)


if __name__ == "__main__":
    main()
