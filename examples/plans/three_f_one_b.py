"""3F1B (nnScaler, AlphaFold): three passes forward through all devices, of which the last goes back."""

import taskflow

MODEL = {"passes": 3}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel, costs: taskflow.CostModel) -> taskflow.TaskGraph:
    count, passes = len(machine.devices), (".pass0", ".pass1", "")
    cuts = [f"block{k}.q{each}" for each in passes for k in range(count)][1:]
    devices = [(k % count,) for k in range(len(passes) * count)]
    strategy = taskflow.stages(graph, machine, cuts=cuts, parts=8, devices=devices)
    rows = taskflow.lower(graph, strategy, machine)
    return taskflow.reorder(rows, costs, taskflow.schedule.three_f_one_b)
