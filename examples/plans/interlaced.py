"""Interlaced (nnScaler, mBART): a block on each device, and the large embedding at both ends split over all of them."""

import taskflow

MODEL = {"words": 512}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel, costs: taskflow.CostModel) -> taskflow.TaskGraph:
    every, count = tuple(range(len(machine.devices))), len(machine.devices)
    cuts = [f"block{k}.q" for k in range(count)] + ["scores"]
    devices = [every, *((k,) for k in range(count)), every]
    within = dict.fromkeys(("embed", "scores"), taskflow.ParallelConfig({"v": count}))
    strategy = taskflow.stages(graph, machine, cuts=cuts, parts=4, devices=devices, within=within)
    rows = taskflow.lower(graph, strategy, machine)
    return taskflow.reorder(rows, costs, taskflow.schedule.interlaced)
