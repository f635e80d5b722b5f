"""ZeRO-1 (Rajbhandari et al., SC 2020): data parallel, but a device updates a part of every weight and keeps its state.

The gradient arrives by reduce-scatter and the weight leaves by all-gather.
"""

import taskflow

MODEL: dict[str, int] = {}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Plan:
    strategy, devices = taskflow.data_parallel(graph, machine), len(machine.devices)
    for op in graph.operators:
        if op.writes and op.split_axes:
            axis = max(op.split_axes, key=lambda name: op.extents[name])
            strategy[op.name] = taskflow.ParallelConfig({axis: devices})
    return taskflow.Plan(strategy)
