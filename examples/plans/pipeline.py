"""Pipeline (1F1B, PipeDream, SOSP 2019): a block on each device, samples in micro-batches."""

import taskflow

MODEL: dict[str, int] = {}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel, costs: taskflow.CostModel) -> taskflow.TaskGraph:
    cuts = [f"block{k}.q" for k in range(1, len(machine.devices))]
    rows = taskflow.lower(graph, taskflow.stages(graph, machine, cuts=cuts, parts=8), machine)
    return taskflow.reorder(rows, costs, taskflow.schedule.one_f_one_b)
