"""Data parallel: samples are split, and gradients are summed over all devices."""

import taskflow

MODEL: dict[str, int] = {}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Plan:
    return taskflow.Plan(taskflow.data_parallel(graph, machine))
