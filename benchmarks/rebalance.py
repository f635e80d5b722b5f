"""DLion's weighted batching: parts of samples by measured rates, on two devices whose rates the trainer is not told.

    taskflow run -n 2 benchmarks/rebalance.py

Emulated devices, one a rank: three times as fast, then half as fast as the other, then alike. Printed are steps before,
after one change, and what the simulator says of the best plan for the true rates.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import ops
import taskflow
from taskflow import Batches, CostModel, Device, Graph, MachineModel, Plan
from taskflow.comm.transport import connect
from taskflow.train.callbacks import Rebalance

BATCH, EVERY = 256, 8


def machine(*speeds: float) -> MachineModel:
    """Devices of these speeds."""
    device = Device("emulated", flops_per_second=1.5e9, memory_bandwidth=1e12, overhead_seconds=0)
    made = MachineModel.uniform(len(speeds), device, bandwidth=2e10, latency_seconds=1e-5)
    devices = [
        replace(d, flops_per_second=1.5e9 * s) for d, s in zip(made.devices, speeds, strict=True)
    ]
    return MachineModel(tuple(devices), made.links, made.name)


def build() -> Graph:
    """A net of five layers."""
    graph = Graph()
    h = graph.input("x", (BATCH, 256))
    t = graph.input("t", (BATCH,), "int32")
    for k in range(4):
        h = ops.relu(ops.linear(h, 256, name=f"fc{k}"), name=f"relu{k}")
    ops.sgd(ops.cross_entropy(ops.linear(h, 10, name="out"), t, name="ce"), lr=0.05)
    return graph


def train(speeds: tuple[float, ...], plan: Plan) -> tuple[Plan, float, float]:
    """The plan after a change, and the median steps before and after it."""
    believed, generator = machine(1, 1), np.random.default_rng(0)
    trainer = taskflow.Trainer(
        build(),
        machine=believed,
        strategy=plan,
        costs=CostModel.analytic(believed),
        quiet=True,
        executor={"costs": CostModel.analytic(machine(*speeds))},
    )
    examples = BATCH * EVERY * 2
    x = generator.random((examples, 256), np.float32)
    t = generator.integers(0, 10, examples, np.int32)
    seconds: list[float] = []
    gather = trainer.transport.gather
    trainer.fit(
        Batches({"x": x, "t": t}, BATCH),
        1,
        callbacks=[Rebalance(EVERY), lambda m: seconds.append(max(gather(m.executor.seconds)))],
    )
    return trainer.plan, *(float(np.median(seconds[k + 2 : k + EVERY])) for k in (0, EVERY))


def main() -> None:
    graph = build()
    plan = Plan(taskflow.data_parallel(graph, machine(1, 1)))
    for speeds in ((3.0, 1.0), (1.0, 2.0), (1.0, 1.0)):
        true = machine(*speeds)
        best = plan.rebalanced(graph, speeds)
        oracle = best.predict(graph, true, CostModel.analytic(true)).seconds
        plan, before, after = train(speeds, plan)
        shares = dict(plan.strategy["fc0"].degrees)["b"]
        if connect().rank == 0:
            print(
                f"speeds {speeds}: {before * 1e3:.1f} ms, then {after * 1e3:.1f} ms "
                f"({after / before:.2f}; {after / oracle:.3f} of the best by prediction), parts {shares}",
                flush=True,
            )


if __name__ == "__main__":
    main()
