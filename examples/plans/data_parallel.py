"""Data parallel: samples are split, and gradients are summed over all devices."""

import taskflow

MODEL: dict[str, int] = {}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel, costs: taskflow.CostModel) -> taskflow.TaskGraph:
    return taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
