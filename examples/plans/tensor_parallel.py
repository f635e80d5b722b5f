"""Tensor parallel (Megatron-LM, Shoeybi et al., 2019): heads, hidden units and words are split.

What has none of these is split along the samples. `out` and `down` make partial sums, and so does the embedding: they
arrive by reduce-scatter, and leave by all-gather.
"""

import taskflow

MODEL: dict[str, int] = {}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Plan:
    strategy, devices = taskflow.single_device(graph, machine), len(machine.devices)
    for name in strategy:
        axis = next((a for a in graph.operator(name).split_axes if a in "hov"), "b")
        strategy[name] = taskflow.ParallelConfig({axis: devices})
    return taskflow.Plan(strategy)
