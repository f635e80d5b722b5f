"""9. Pipelines: a micro-batch is a sample split whose points share a device, and a schedule is an order.

Four layers on four devices, eight micro-batches. `stages` says where, a schedule says when; the graph stays as it is.
Every schedule gives the same bits. Emulated devices wait as long as the cost model says, so times are real.
"""

import numpy as np

import ops
import taskflow
from taskflow.schedule import gpipe, one_f_one_b, program, zb_h1

STAGES, PARTS, WIDTH = 4, 8, 64

graph = taskflow.Graph()
h = graph.input("x", (64, WIDTH))
for k in range(STAGES):
    h = ops.linear(h, WIDTH, name=f"layer{k}")
ops.sgd(ops.mse_loss(h, graph.input("t", (64, WIDTH)), name="loss"), lr=0.1)

device = taskflow.Device(
    "emulated", flops_per_second=2e7, memory_bandwidth=1e12, overhead_seconds=0.0
)
machine = taskflow.MachineModel.uniform(STAGES, device, bandwidth=1e9)
costs = taskflow.CostModel.analytic(machine)
plan = taskflow.stages(graph, machine, cuts=[f"layer{k}" for k in range(1, STAGES)], parts=PARTS)
rows = taskflow.lower(graph, plan, machine)


def main() -> None:
    random = np.random.default_rng(0)
    feeds = {name: random.random((64, WIDTH), np.float32) for name in "xt"}
    orders = {"program": program, "GPipe": gpipe, "1F1B": one_f_one_b, "ZB-H1": zb_h1}
    orders["searched"] = taskflow.search_schedule(rows, costs, seconds=1.0)
    for name, order in orders.items():
        ordered = taskflow.reorder(rows, costs, order)
        predicted = taskflow.simulate(ordered, costs)
        with taskflow.Executor(ordered, seed=0, costs=costs, record=True) as step:
            loss = float([step(feeds)["loss"] for _ in range(2)][-1])
            measured = step.timeline.seconds
        print(
            f"{name:9} loss {loss:.6f}, {predicted.seconds * 1e3:6.1f} ms predicted, "
            f"{measured * 1e3:6.1f} ms measured, {predicted.peak_bytes.max() / 1e3:5.0f} kB at most on a device"
        )


if __name__ == "__main__":
    main()
