"""1. A first model: a small network learns handwritten digits on one device.

A model is a graph of operators over logical regions. Building it computes nothing. An executor makes it run.
"""

import numpy as np
from sklearn.datasets import load_digits

import ops
import taskflow

BATCH, EPOCHS = 64, 10


def build(batch: int, training: bool) -> taskflow.Graph:
    graph = taskflow.Graph()
    x, t = graph.input("x", (batch, 64)), graph.input("t", (batch,), "int32")
    h = ops.relu(ops.linear(x, 128, name="fc1"), name="relu")
    y = ops.linear(h, 10, name="fc2")
    loss = ops.softmax_cross_entropy(y, t, name="loss")
    graph.output("accuracy", ops.accuracy(y, t, name="accuracy"))
    if training:
        ops.sgd(
            loss, lr=0.1, momentum=0.9
        )  # appends the backward and the update operators; the loss is fetched
    return graph


def main() -> None:
    data = load_digits()  # 1797 images of 8 x 8 points, bundled with scikit-learn
    x, t = (data.data / 16).astype(np.float32), data.target.astype(np.int32)
    train, test = np.split(np.random.default_rng(0).permutation(len(x)), [1437])
    batches = taskflow.Batches({"x": x[train], "t": t[train]}, BATCH)

    # A strategy says where each operator runs: here all of them whole on device 0. `lower` gives the tasks.
    machine, graph = taskflow.MachineModel.local(devices=1), build(BATCH, training=True)
    task_graph = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
    print(f"{len(graph.operators)} operators, {len(task_graph)} tasks")

    with taskflow.Executor(task_graph, seed=0) as step:
        for epoch in range(EPOCHS):
            losses = [step(feeds)["loss"] for feeds in batches.epoch(epoch)]
            print(f"epoch {epoch + 1:2}: loss {np.mean(losses):.4f}")

        # Evaluation is another graph over the same parameters, so it may have another batch and other operators.
        graph = build(len(test), training=False)
        held_out = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
        with taskflow.Executor(held_out, share=step) as evaluate:
            print(
                f"accuracy on held-out images: {evaluate({'x': x[test], 't': t[test]})['accuracy']:.3f}"
            )


if __name__ == "__main__":
    main()
