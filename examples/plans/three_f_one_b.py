"""3F1B (nnScaler, AlphaFold): three passes forward through all devices, of which the last goes back."""

import taskflow

MODEL = {"passes": 3}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Plan:
    count, passes = len(machine.devices), (".pass0", ".pass1", "")
    cuts = [f"block{k}.q{each}" for each in passes for k in range(count)][1:]
    devices = [(k % count,) for k in range(len(passes) * count)]
    strategy = taskflow.stages(graph, machine, cuts=cuts, devices=devices)
    return taskflow.Plan(strategy, parts=8, schedule="three_f_one_b")
