"""Data x tensor x pipeline parallel: two stages, and in each samples x heads, hidden units or positions.

On eight devices two of each; on four no more than one part of the samples.
"""

import taskflow

MODEL: dict[str, int] = {}
DEVICES = 8


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Plan:
    data, tensor = len(machine.devices) // 4, 2
    within = {}
    for name in taskflow.single_device(graph, machine):
        axis = next((a for a in graph.operator(name).split_axes if a in "ho"), "s")
        within[name] = taskflow.ParallelConfig({"b": data, axis: tensor})
    strategy = taskflow.stages(graph, machine, cuts=["block2.q"], within=within)
    return taskflow.Plan(strategy, parts=4, schedule="one_f_one_b")
