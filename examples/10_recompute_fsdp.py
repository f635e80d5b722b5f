"""10. Memory plans: what a step keeps is a matter of graph and strategy. A GPT of three layers on four devices.

Data parallel keeps all weights on each device. `recompute` keeps fewer activations. `homes` and `fully_sharded` (FSDP,
ZeRO-3) keep a quarter of the weights and of Adam's state, gather a weight before it is read and drop it behind that.
Losses are the same. Emulated devices wait as long as the cost model says, so times are real.
"""

from dataclasses import replace

import numpy as np

import ops
import taskflow

DEVICES, WORDS, WIDTH, SHAPE = 4, 512, 64, (16, 64)

plain = taskflow.Graph()
h = ops.embedding(plain.input("x", SHAPE, "int32"), WORDS, WIDTH, name="embed")
for k in range(3):
    inner = ops.layer_norm(h, name=f"in{k}.norm1")
    h = ops.add(
        h, ops.multihead_attention(inner, 4, None, True, name=f"in{k}.attention"), name=f"sum{k}.1"
    )
    inner = ops.linear(ops.layer_norm(h, name=f"in{k}.norm2"), 4 * WIDTH, name=f"in{k}.wide")
    h = ops.add(
        h,
        ops.linear(ops.gelu(inner, name=f"in{k}.gelu"), WIDTH, name=f"in{k}.narrow"),
        name=f"sum{k}.2",
    )
loss = ops.softmax_cross_entropy(
    ops.linear(h, WORDS, name="words"), plain.input("t", SHAPE, "int32"), name="loss"
)
ops.adam(loss)
inside = [
    op.name
    for op in plain.operators
    if op.name.startswith("in") and not op.is_backward and not op.writes
]
again = taskflow.recompute(plain, inside)
sharded = taskflow.homes(again)

device = taskflow.Device(
    "emulated", flops_per_second=1e9, memory_bandwidth=1e12, overhead_seconds=0.0
)
machine = taskflow.MachineModel.uniform(DEVICES, device, bandwidth=1e8)
costs = taskflow.CostModel.analytic(machine)
plans = {
    "data parallel": (plain, taskflow.data_parallel(plain, machine)),
    "+ recompute": (again, taskflow.data_parallel(again, machine)),
    "+ FSDP": (sharded, taskflow.fully_sharded(sharded, machine)),
}


def main() -> None:
    random = np.random.default_rng(0)
    feeds = {name: random.integers(0, WORDS, SHAPE, np.int32) for name in "xt"}
    for name, (graph, strategy) in plans.items():
        rows = taskflow.lower(graph, strategy, machine)
        predicted, size = taskflow.simulate(rows, costs), rows.instance_bytes()
        tight = replace(
            rows, machine=machine.with_rates(memory_bytes=1)
        )  # as little memory as will do
        peak = taskflow.simulate(tight, costs).peak_bytes[0]
        kept = (
            sum(size[k] for k in {k for homes in rows.homes.values() for k, _ in homes}) // DEVICES
        )
        with taskflow.Executor(rows, seed=0, costs=costs, record=True) as step:
            value, measured = [(step(feeds)["loss"], step.timeline.seconds) for _ in range(2)][-1]
        print(
            f"{name:13} loss {value:.5f}: {kept / 1e3:4.0f} kB kept, {peak / 1e3:4.0f} kB at most on a device, "
            f"{rows.bytes_moved / 1e6:.2f} MB moved, {predicted.seconds * 1e3:.1f} ms predicted, "
            f"{measured * 1e3:.1f} ms measured"
        )


if __name__ == "__main__":
    main()
