"""3. Search: a strategy for a machine that is not at hand, found by simulation.

A machine model is devices with rates and links with bandwidths; these are two hosts of four P100 GPUs each. The search
walks over strategies as FlexFlow's does, and the simulator is its judge. No GPU is needed.
"""

import tempfile
from pathlib import Path

import ops
import taskflow


def build(batch: int = 64) -> taskflow.Graph:
    """Two convolutions and two large dense layers: the former want a split batch, the latter do not."""
    graph = taskflow.Graph()
    x, t = graph.input("x", (batch, 3, 32, 32)), graph.input("t", (batch,), "int32")
    for k, channels in enumerate((64, 128), 1):
        x = ops.relu(ops.conv2d(x, channels, 3, padding=1, name=f"conv{k}"), name=f"relu{k}")
        x = ops.max_pool2d(x, 2, name=f"pool{k}")
    h = ops.relu(ops.linear(ops.flatten(x, name="flat"), 4096, name="fc3"), name="relu3")
    ops.sgd(ops.softmax_cross_entropy(ops.linear(h, 1000, name="fc4"), t, name="loss"), lr=0.1)
    return graph


def main() -> None:
    graph, machine = build(), taskflow.MachineModel.preset("p100", nodes=2)
    costs = taskflow.CostModel.analytic(machine)
    for rule in (taskflow.single_device, taskflow.data_parallel, taskflow.one_weird_trick):
        timeline = taskflow.simulate(taskflow.lower(graph, rule(graph, machine), machine), costs)
        print(
            f"{rule.__name__:16} {timeline.seconds * 1e3:7.3f} ms, {timeline.bytes_moved / 1e6:6.1f} MB moved"
        )

    result = taskflow.search(graph, machine, costs, proposals=300, seed=0)
    print(
        result
    )  # how good it is beside the best start, and beside a bound that no strategy can beat
    for name, config in result.strategy.items():
        print(f"  {name:8} {dict(config.degrees)!s:24} on {config.devices}")

    # A plan is a file that people can read, edit and load again; it is checked when it is applied.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        result.plan.save(path)
        _, rows = taskflow.Plan.load(path).apply(graph, machine, costs)
    timeline = taskflow.simulate(rows, costs)
    assert timeline.seconds == result.seconds <= min(result.baseline_seconds.values())
    print(
        f"{'searched':16} {timeline.seconds * 1e3:7.3f} ms, {timeline.bytes_moved / 1e6:6.1f} MB moved"
    )


if __name__ == "__main__":
    main()
