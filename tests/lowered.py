"""Small graphs, lowered, and their rows as text.

A row reads `number kind name place arguments after dependences`; an argument is instance and box.
"""

from collections import Counter

import numpy as np

from taskflow import Graph, MachineModel, ParallelConfig, Strategy, lower
from taskflow.core.columns import spread
from tests import tiny

ITEM = 8  # bytes of a float64


def row_text(task):
    place = f"{task.source}->{task.device}" if task.source != task.device else f"@{task.device}"
    what = task.collective or task.kind.name.lower()
    arguments = " ".join(f"{instance}{rect}" for instance, rect, _ in task.args)
    return f"{task.row} {what} {task.name} {place} {arguments} after {list(task.dependences)}"


def lowered(graph, configs, devices):
    """`configs`: operator -> degrees, or (degrees, devices)."""
    pairs = {name: c if isinstance(c, tuple) else (c, None) for name, c in configs.items()}
    strategy = Strategy.of_graph(
        graph, {name: ParallelConfig(*pair) for name, pair in pairs.items()}
    )
    return lower(graph, strategy, MachineModel.uniform(devices))


def rows(graph, configs, devices):
    return [row_text(task) for task in lowered(graph, configs, devices)]


def matrix(*shape):
    return Graph().input("x", shape or (4, 4), "float64")


def transfers(task_graph):
    """Region and collective -> bytes that cross between devices."""
    found = Counter()
    for row in np.flatnonzero(task_graph.is_communication):
        task = task_graph[row]
        found[task.name, task.collective] += task.bytes
    return dict(found)


def network(batch=24, width=12, layers=2, momentum=0.9, own=()):
    """Linear layers of `width` x `width`, a loss and its update."""
    x = matrix(batch, width)
    for k in range(layers):
        x = tiny.linear(x, width, f"fc{k}")
    tiny.sgd(tiny.mean_square(x), momentum=momentum, own=own)
    return x.graph


def parameter_bytes(graph):
    return sum(p.size_bytes for p in graph.parameters)


def ends_of(judge):
    """When each row of a judge's current strategy ends, in row order."""
    span, group_ptr = judge.current.timed.span, judge.layout.group_ptr
    ordinal = judge.pool.packed.ordinal[spread(span["row"], span["count"])]
    group = np.searchsorted(group_ptr, np.arange(len(span)), side="right")
    return judge.current.timed.end[np.lexsort((ordinal, np.repeat(group, span["count"])))]
