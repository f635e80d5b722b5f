"""Placements of DTensor: how every parameter lies on a mesh of the devices, as JSON.

`ops.to_dtensor` makes a `parallelize_plan` for a module of torch; this is the same of a graph alone. The mesh has the
digits by which the configurations step through the devices. A parameter of a stage is on its devices alone; where its
configuration is no grid, that is said in the place of placements.
"""

from __future__ import annotations

import json

from taskflow.graph.graph import Graph, Operator
from taskflow.schedule.plan import Plan
from taskflow.strategy.mesh import DeviceGrids
from taskflow.strategy.strategy import ParallelConfig, effective_config


def placements_text(graph: Graph, plan: Plan, devices: int) -> str:
    """The mesh, and of every parameter its devices and what is done along each of their dimensions."""
    grids = DeviceGrids()
    placed = dict[str, object]()
    for op in graph.operators:
        for k, region in enumerate(op.inputs):
            if region.role == "parameter" and region.name not in placed and not op.is_backward:
                config, _ = effective_config(op, plan.strategy)
                placed[region.name] = _placed(op, k, config, grids)
    return json.dumps({"devices": devices, "parameters": placed}, indent=1)


def _placed(op: Operator, k: int, config: ParallelConfig, grids: DeviceGrids) -> dict[str, object]:
    """The dimensions of the mesh of one parameter, slowest first, and its placements."""
    grid = grids.of(config)
    if grid is None:
        return {"unsaid": f"no grid of devices: {config}"}
    runs = sorted((run for run in grid.runs if run.stride), key=lambda run: -run.stride)
    term = op.bound.terms[k]
    return {
        "first": grid.base,
        "mesh": [run.parts for run in runs],
        "strides": [run.stride for run in runs],
        "placements": [_placement(term.dim_of(run.axis)) for run in runs],
    }


def _placement(dim: int | None) -> str:
    return "Replicate()" if dim is None else f"Shard({dim})"
