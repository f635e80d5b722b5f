"""2. A strategy by hand: the same network split in four ways, with the same numbers each time.

A ParallelConfig says into how many parts each axis of an operator is split, and which device gets which part. The axes
are those of the operator's pattern: a dense layer is "b i, o i -> b o" for batch, inputs and outputs.
"""

import numpy as np

import ops
import taskflow
from taskflow import ParallelConfig

graph = taskflow.Graph()
x, t = graph.input("x", (32, 100)), graph.input("t", (32,), "int32")
h = ops.relu(ops.linear(x, 300, name="fc1"), name="relu")
loss = ops.softmax_cross_entropy(ops.linear(h, 10, name="fc2"), t, name="loss")
ops.sgd(loss, lr=0.1)

machine = taskflow.MachineModel.local(devices=4)
costs = taskflow.CostModel.analytic(machine)

# Every operator whole on one device; and every operator split along the batch over all of them.
alone = taskflow.single_device(graph, machine)
data_parallel = taskflow.data_parallel(graph, machine)

# The first layer split along its outputs: each device holds 75 rows of the weight and makes 75 columns of h.
by_outputs = taskflow.data_parallel(graph, machine)
by_outputs["fc1"] = ParallelConfig({"o": 4}, devices=(0, 1, 2, 3))
by_outputs["relu"] = ParallelConfig(
    {"o": 4}
)  # its axes are called as where its input comes from; devices are 0..3

# Two axes at once, and a layer that runs elsewhere: 2 x 2 tiles on four devices, the second layer on the last two.
mixed = taskflow.data_parallel(graph, machine)
mixed["fc1"] = ParallelConfig({"b": 2, "o": 2}, devices=(0, 1, 2, 3))
mixed["fc2"] = ParallelConfig(
    {"i": 2}, devices=(2, 3)
)  # inputs are summed over: partial sums, then a reduction


def main() -> None:
    random = np.random.default_rng(0)
    feeds = {
        "x": random.random((32, 100), np.float32),
        "t": random.integers(0, 10, 32).astype(np.int32),
    }
    plans = {
        "alone": alone,
        "data parallel": data_parallel,
        "by outputs": by_outputs,
        "mixed": mixed,
    }
    for name, strategy in plans.items():
        task_graph = taskflow.lower(
            graph, strategy, machine
        )  # the copies and reductions appear here
        predicted = taskflow.simulate(task_graph, costs)
        with taskflow.Executor(task_graph, seed=0) as step:
            losses = [float(step(feeds)["loss"]) for _ in range(3)]
        print(
            f"{name:14} {len(task_graph):4} tasks {predicted.bytes_moved / 1e3:7.1f} kB moved "
            f"{predicted.seconds * 1e6:6.0f} µs predicted   losses {losses[0]:.6f} {losses[1]:.6f} {losses[2]:.6f}"
        )
    print(taskflow.explain(graph, mixed, machine, costs))


if __name__ == "__main__":
    main()
