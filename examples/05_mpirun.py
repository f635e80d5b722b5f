"""5. Many processes: `mpirun -n 2 python examples/05_mpirun.py`, or the same file alone.

Every rank runs this program and drives one device. All of them build the same graph and lower it to the same tasks, so
there is nothing to send around but the data that the tasks need. Alone, one process drives all devices.
"""

import numpy as np

import ops
import taskflow

BATCH, FEATURES, CLASSES, EXAMPLES = 64, 20, 5, 2048


def build() -> taskflow.Graph:
    graph = taskflow.Graph()
    x, t = graph.input("x", (BATCH, FEATURES)), graph.input("t", (BATCH,), "int32")
    h = ops.relu(ops.linear(x, 64, name="fc1"), name="relu")
    loss = ops.softmax_cross_entropy(ops.linear(h, CLASSES, name="fc2"), t, name="loss")
    ops.adam(loss, lr=0.01)
    return graph


def main() -> None:
    # The same seed on every rank: the same examples. A rank copies only the rows that its tiles need.
    random = np.random.default_rng(0)
    x = random.standard_normal((EXAMPLES, FEATURES), np.float32)
    t = (x @ random.standard_normal((FEATURES, CLASSES))).argmax(1).astype(np.int32)
    batches = taskflow.Batches({"x": x, "t": t}, BATCH)

    # By default a trainer takes the machine at hand, a device for each rank, and searches. It prints on rank 0 alone.
    trainer = taskflow.Trainer(build(), strategy=taskflow.data_parallel, seed=0)
    history = trainer.fit(batches, epochs=3)
    trainer.report(history=history)  # predicted and measured time, bytes moved, peak memory

    # Reading a region gathers its tiles: every rank gets all of it.
    weight = trainer.step.read("fc1.weight")
    trainer.console.print(f"fc1.weight is {weight.shape}, its norm {np.linalg.norm(weight):.4f}")
    assert history.outputs["loss"][-1] < history.outputs["loss"][0]


if __name__ == "__main__":
    main()
