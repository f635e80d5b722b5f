"""7. A mixture of experts: four experts on four devices, tokens travel to them and back.

Each token goes to the two experts that a gate thinks best. Tokens come in groups, each with so many slots at every
expert. Tokens split by groups, experts split by number: what moves between the two is an all-to-all.
"""

from collections import Counter

import numpy as np

import ops
import taskflow
from taskflow import ParallelConfig

TOKENS, FEATURES, EXPERTS, DEVICES = 512, 32, 4, 4

graph = taskflow.Graph()
x, t = graph.input("x", (TOKENS, FEATURES)), graph.input("t", (TOKENS, FEATURES))
h = ops.tanh(ops.linear(x, FEATURES, name="fc"), name="tanh")
y, balance = ops.mixture_of_experts(
    h, EXPERTS, 64, k=2, capacity_factor=1.25, groups=DEVICES, name="experts"
)
error = ops.mse_loss(ops.add(h, y, name="shortcut"), t, name="error")
graph.output("error", error)
loss = ops.add(error, ops.multiply(balance, 0.01), name="loss")  # an even load is a part of the aim
ops.adam(loss, lr=0.01)

machine = taskflow.MachineModel.local(devices=DEVICES)
expert_parallel = taskflow.data_parallel(graph, machine)  # tokens by groups
expert_parallel["experts.up"] = ParallelConfig(
    {"e": EXPERTS}
)  # the second layer of the experts follows the first


def main() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((TOKENS, FEATURES), np.float32)
    feeds = {
        "x": x,
        "t": np.where(x[:, :1] > 0, x, -x),
    }  # what to do with a token depends on the token

    losses = {}
    for name, strategy in (
        ("one", taskflow.single_device(graph, machine)),
        ("experts", expert_parallel),
    ):
        task_graph = taskflow.lower(graph, strategy, machine)
        with taskflow.Executor(task_graph, seed=0) as step:
            steps = [step(feeds) for _ in range(30)]
        losses[name] = [float(values["loss"]) for values in steps]
        for k in (0, 9, 29):  # a choice over capacity is counted, and its token keeps the shortcut
            dropped = int(steps[k]["experts.dropped"])
            print(
                f"{name:8} step {k + 1:2}: error {steps[k]['error']:.4f}, {dropped:3} of {2 * TOKENS} choices dropped"
            )
    np.testing.assert_allclose(losses["experts"], losses["one"], rtol=1e-4)

    travels = Counter(
        task.name
        for task in task_graph
        if task.collective == "all-to-all" and task.source != task.device
    )
    print("all-to-all:", ", ".join(f"{name} in {count} copies" for name, count in travels.items()))


if __name__ == "__main__":
    main()
