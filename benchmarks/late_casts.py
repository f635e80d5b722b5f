"""Gradients of casts at the end of the backward pass, and where they were made: `python benchmarks/late_casts.py`.

Predicted seconds of a step in bfloat16 under grids of tensor x data parallelism, as models are differentiated, and with
the cast of every gradient to the precision of its parameter right behind the operator that makes it. Needs no GPU.
"""

from __future__ import annotations

import argparse

import grids

import taskflow
from taskflow.searching.grids import Grids
from taskflow.strategy.sharded import ShardedState

ROWS = ("GPT 12 x 768", "8 H100", 2), ("BERT-large", "8 H100", 4), ("GPT 4 x 2048", "64 H100", 4)


def cast_at_once(graph: taskflow.Graph) -> None:
    """Move what makes `*.gradient` behind the operator that makes what it reads."""
    casts = {
        op.inputs[0].name: op
        for op in graph.operators
        if op.is_backward and op.name.endswith(".gradient")
    }
    moved = {op.name for op in casts.values()}
    operators: list[taskflow.Operator] = []
    for op in graph.operators:
        if op.name not in moved:
            operators.append(op)
            operators += [casts[region.name] for region in op.outputs if region.name in casts]
    assert len(operators) == len(graph.operators)
    graph.operators[:] = operators


def seconds(graph: taskflow.Graph, machine: taskflow.MachineModel, tensor: int) -> float:
    """Of a step under a grid with sharded state."""
    grid = Grids(graph).strategy(range(len(machine.devices)), tensor, "sequence")
    assert grid is not None
    rows = taskflow.lower(graph, ShardedState(graph).of(grid), machine)
    return taskflow.simulate(rows, taskflow.CostModel.analytic(machine)).seconds


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print("model          machine  tensor  at once, ms  last, ms  ratio")
    for model, name, tensor in ROWS:
        machine, graph = grids.machine_of(name, 1.0), grids.MODELS[model](grids.MACHINES[name][1])
        last = seconds(graph, machine, tensor)
        cast_at_once(graph)
        once = seconds(graph, machine, tensor)
        print(
            f"{model:14s} {name:8s} {tensor:6d}  {once * 1e3:11.2f}  {last * 1e3:8.2f}  {once / last:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
