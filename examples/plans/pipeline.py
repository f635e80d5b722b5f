"""Pipeline (1F1B, PipeDream, SOSP 2019): a block on each device, samples in micro-batches."""

import taskflow

MODEL: dict[str, int] = {}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Plan:
    cuts = [f"block{k}.q" for k in range(1, len(machine.devices))]
    return taskflow.Plan(
        taskflow.stages(graph, machine, cuts=cuts), parts=8, schedule="one_f_one_b"
    )
