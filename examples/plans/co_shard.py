"""Co-shard (nnScaler, Lin et al., OSDI 2024): data parallel, and on a device heads and hidden units part by part.

They are made again for the backward pass, so a device never holds more than a part of them.
"""

import taskflow

MODEL = {"length": 32}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Plan:
    strategy, devices = taskflow.data_parallel(graph, machine), len(machine.devices)
    inside = []
    for name in strategy:
        op = graph.operator(name)
        axis = next((a for a in op.split_axes if a in "ho"), None)
        if axis is not None:
            places = [device for device in range(devices) for _ in range(4)]
            strategy[name] = taskflow.ParallelConfig({"b": devices, axis: 4}, places)
            inside += [name] * any(axis in region.axes for region in op.outputs)
    return taskflow.Plan(strategy, schedule="by_ordinal", recomputed=inside)
