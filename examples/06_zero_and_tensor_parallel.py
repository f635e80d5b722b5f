"""6. ZeRO and tensor parallelism are configurations, not features.

Tensor parallelism (Megatron-LM, Shoeybi et al. 2019): the first layer of a pair is split along its outputs, the second
along its inputs. Nothing moves in between; the second makes partial sums, which become one all-reduce.

ZeRO (Rajbhandari et al., SC 2020): the update of a weight is an operator like any other. Under data parallelism every
device would update all of it. Split the update, and the gradient arrives by reduce-scatter, Adam's moments are stored
once over all devices, and the weight leaves by all-gather.
"""

import numpy as np

import ops
import taskflow
from taskflow import ParallelConfig

DEVICES = 4

graph = taskflow.Graph()
x, t = graph.input("x", (16, 256)), graph.input("t", (16, 256))
h = ops.gelu(ops.linear(x, 1024, name="up"), name="gelu")
ops.adam(ops.mse_loss(ops.linear(h, 256, name="down"), t, name="loss"), lr=1e-3)
machine = taskflow.MachineModel.local(devices=DEVICES)

data_parallel = taskflow.data_parallel(graph, machine)

zero = taskflow.data_parallel(graph, machine)
for op in graph.operators:
    if op.name.endswith(".adam"):
        zero[op.name] = ParallelConfig({op.split_axes[0]: DEVICES})

tensor_parallel = taskflow.data_parallel(graph, machine)
tensor_parallel["up"] = ParallelConfig({"o": DEVICES})
tensor_parallel["gelu"] = ParallelConfig({"o": DEVICES})
tensor_parallel["down"] = ParallelConfig({"i": DEVICES})


def main() -> None:
    random = np.random.default_rng(0)
    feeds = {name: random.random((16, 256), np.float32) for name in "xt"}
    plans = {"data parallel": data_parallel, "ZeRO": zero, "tensor parallel": tensor_parallel}
    for name, strategy in plans.items():
        task_graph = taskflow.lower(graph, strategy, machine)
        timeline = taskflow.simulate(task_graph, taskflow.CostModel.analytic(machine))
        with taskflow.Executor(task_graph, seed=0) as step:
            losses = [float(step(feeds)["loss"]) for _ in range(5)]
        print(
            f"{name:16} loss {losses[0]:.5f} -> {losses[-1]:.5f}   {timeline.bytes_moved / 1e6:5.2f} MB moved, "
            f"{max(timeline.peak_bytes) / 1e6:5.2f} MB at most on a device"
        )


if __name__ == "__main__":
    main()
