"""What a plan has in it, as its graph and columns say, so that it can be counted what random plans are made of."""

import numpy as np

from taskflow.strategy.rules import axis_kinds
from taskflow.tasks.task_graph import Kind
from tests.checking.plans import updates

KINDS = ("sample", "attribute", "parameter", "reduction")


def features(graph, task_graph, order):
    """Their names."""
    points = task_graph.kind == Kind.POINT
    launch, device, spans = task_graph.launch[points], task_graph.device[points], _spans(task_graph)
    split = {name: _split_axes(axes) for name, axes in spans.items()}
    kinds = axis_kinds(graph)
    found = {
        f"split {kinds[name][a]} axis"
        for name, axes in split.items()
        for a in axes
        if kinds[name][a] in KINDS
    }
    pairs = np.unique(np.stack([launch, device]), axis=1)
    has = {
        "operators on different devices": len(
            {tuple(pairs[1, pairs[0] == k]) for k in np.unique(launch)}
        )
        > 1,
        "repeated devices": pairs.shape[1] < len(launch),
        "replicas": any(_is_repeated(axes) for axes in spans.values()),
        "uneven": any(_is_uneven(axes[a]) for name, axes in spans.items() for a in split[name]),
        "halos": any(_has_halo(op, split[op.name]) for op in graph.operators),
        "ZeRO": _is_zero(graph, task_graph),
        "collectives": bool((task_graph.kind == Kind.COLLECTIVE).any()),
        "copies": bool((task_graph.kind == Kind.COPY).any()),
        "folds": bool((task_graph.kind == Kind.FOLD).any()),
        "half precision": any(r.dtype in ("float16", "bfloat16") for r in task_graph.regions),
        "tf32": task_graph.uses_tf32,
        "fused operators": any(n.members for n in task_graph.launches),
        "training": bool(updates(graph)),
        f"order {order}": True,
    }
    return found | {name for name, is_there in has.items() if is_there}


def _spans(task_graph):
    """Operator -> axis -> its interval in every point."""
    return {n.name: {a: n.spans[:, k] for k, a in enumerate(n.axes)} for n in task_graph.launches}


def _split_axes(axes):
    return [a for a, spans in axes.items() if (spans != spans[0]).any()]


def _is_repeated(axes):
    """Whether two points compute the same."""
    flat = np.stack(list(axes.values()), axis=1) if axes else np.zeros((0, 1))
    return len(np.unique(flat, axis=0)) < len(flat)


def _is_uneven(spans):
    """Whether parts of an axis differ by more than a point."""
    sizes = spans[:, 1] - spans[:, 0]
    return int(sizes.max() - sizes.min()) > 1


def _has_halo(op, split):
    return any(window.axis in split and window.size > 1 for window in op.bound.windows.values())


def _is_zero(graph, task_graph):
    """Whether a parameter that several devices read whole is updated in tiles."""
    named = {op.name: op for op in updates(graph)}
    whole, tiles = {}, set()
    for row in np.flatnonzero(task_graph.kind == Kind.POINT).tolist():
        launch = task_graph.launches[task_graph.launch[row]]
        for k, number in enumerate(launch.args):
            at, region = int(task_graph.arg_ptr[row]) + k, task_graph.regions[number]
            if region.role == "parameter" and task_graph.arg_instance[at] >= 0:
                is_whole = tuple(task_graph.arg_box[at, 1, : region.ndim]) == region.shape
                is_whole &= not task_graph.arg_box[at, 0, : region.ndim].any()
                if launch.name not in named and is_whole:
                    whole.setdefault(number, set()).add(int(task_graph.device[row]))
                elif launch.name in named and not is_whole:
                    tiles.add(number)
    return any(len(whole.get(number, ())) > 1 for number in tiles)
