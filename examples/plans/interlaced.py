"""Interlaced (nnScaler, mBART): a block on each device, and the large embedding at both ends split over all of them."""

import taskflow

MODEL = {"words": 512}


def plan(graph: taskflow.Graph, machine: taskflow.MachineModel) -> taskflow.Plan:
    every, count = tuple(range(len(machine.devices))), len(machine.devices)
    cuts = [f"block{k}.q" for k in range(count)] + ["scores"]
    devices = [every, *((k,) for k in range(count)), every]
    within = dict.fromkeys(("embed", "scores"), taskflow.ParallelConfig({"v": count}))
    strategy = taskflow.stages(graph, machine, cuts=cuts, devices=devices, within=within)
    return taskflow.Plan(strategy, parts=4, schedule="interlaced")
