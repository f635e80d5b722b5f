"""The diagram of a pipeline as text: what every device does for which micro-batch, over time.

A line a device, a column an equal part of the step. Digits are forward, small letters gradients of activations, capital
letters gradients of weights: 0, a and A belong to the first micro-batch. A dot is a device that waits.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np

from taskflow.graph.phases import Phase
from taskflow.report.describe import describe_seconds
from taskflow.schedule.pipeline import Pipeline, pipeline_of
from taskflow.tasks.task_graph import Array, Kind
from taskflow.tasks.timeline import Timeline

COLUMNS = 100
SIGNS = {Phase.FORWARD: digits, Phase.BACKWARD: ascii_lowercase, Phase.WEIGHT: ascii_uppercase}
IDLE = "."
OTHER = "-"
LEGEND = "digits: forward, a: gradients of activations, A: of weights, by micro-batch"


def pipeline_diagram(timeline: Timeline, columns: int = COLUMNS) -> str:
    """The lines of all devices; a column shows what takes most of its time.

    Args:
        timeline: of rows in the order of a schedule.
        columns: of time.
    """
    rows = timeline.task_graph
    pipeline = pipeline_of(rows)
    points = np.flatnonzero(rows.kind == Kind.POINT)
    width = len(str(max(rows.devices_used, default=0)))
    lines = []
    for device in rows.devices_used:
        here = points[rows.device[points] == device]
        lines.append(f"{device:{width}} {_marks(timeline, pipeline, here, columns)}")
    lines.append(f"{'':{width}} {describe_seconds(timeline.seconds)}; {LEGEND}")
    return "\n".join(lines)


def _marks(timeline: Timeline, pipeline: Pipeline, points: Array, columns: int) -> str:
    """What the points of a device take most of each column for."""
    part = np.where(pipeline.stage[points] >= 0, timeline.task_graph.ordinal[points], -1)
    step = np.stack([pipeline.phase[points], part], axis=1)
    kinds, which = np.unique(step, axis=0, return_inverse=True)
    busy = np.zeros((len(kinds) + 1, columns))
    edges = np.linspace(0.0, timeline.seconds, columns + 1)
    start = timeline.start[points][:, None]
    end = timeline.end[points][:, None]
    within = np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1])
    np.add.at(busy, which.reshape(-1), np.maximum(within, 0.0))
    busy[-1] = np.diff(edges) - busy.sum(axis=0)
    signs = [*(_sign(Phase(phase), part) for phase, part in kinds.tolist()), IDLE]
    return "".join(signs[k] for k in busy.argmax(axis=0))


def _sign(phase: Phase, part: int) -> str:
    if part < 0 or phase not in SIGNS:
        return OTHER
    return SIGNS[phase][part % len(SIGNS[phase])]
