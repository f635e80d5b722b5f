"""Items of unequal cost that nobody knows beforehand: each goes to whoever of an operator's points is free.

Source: work stealing for spatial joins in distributed memory (WSSJ-DM). Here the task graph, its edges and its results
are as without: every point writes what it took into a result of its own, zeros elsewhere, and these are summed. x + 0
is x, so who took what changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ops.building import check_positive, several
from taskflow import Array, Context, Graph, Items, Kernel, LogicalRegion


def claimed(
    function: Callable[..., None],
    inputs: Sequence[LogicalRegion],
    count: int,
    out: Sequence[tuple[Sequence[int], str]],
    ranks: int = 1024,
    seconds: Sequence[float] | None = None,
    name: str | None = None,
    *,
    graph: Graph | None = None,
) -> tuple[LogicalRegion, ...]:
    """The results of `function` for every item, computed by whichever point of axis `r` is free.

    Args:
        function: `function(ctx, item, *inputs, *rows)` writes the item's row of every result, arrays of zeros before.
        inputs: regions that every point reads whole.
        count: of items.
        out: of every result the shape of an item's row, and the dtype.
        ranks: extent of axis `r`: `ParallelConfig({"r": 4})` has four points that claim items.
        seconds: of every item on one device, measured or estimated, for simulations; default: items are alike, of a
            million operations, or as long as a kernel that is timed takes.
        name: of the operator.
        graph: where there are no inputs.

    Returns:
        A region (count, ...) for each of `out`. On CPUs; without gradient.

    Raises:
        ValueError: a number is not positive, there are not so many seconds, or there are no inputs and no graph.
    """
    name = name or "claimed"
    check_positive(f"claimed '{name}'", count=count, ranks=ranks)
    if graph is None and not inputs:
        raise ValueError(f"claimed '{name}': there are no inputs, graph= is needed")
    graph = graph or inputs[0].graph
    name = graph.unique_name(name, "points")
    points = graph.constant(f"{name}.points", [0] * ranks, "int8")
    read = [_whole(k, region.ndim) for k, region in enumerate(inputs)]
    made = [
        " ".join(["^item", *(f"^o{k}_{d}" for d in range(len(shape)))])
        for k, (shape, _) in enumerate(out)
    ]
    sizes = {f"o{k}_{d}": n for k, (shape, _) in enumerate(out) for d, n in enumerate(shape)}
    extents = prod(n for region in inputs for n in region.shape) * prod(sizes.values())
    if seconds is not None and (len(seconds) != count or not min(seconds) > 0):
        raise ValueError(f"claimed '{name}': seconds of {count} items are needed, all above 0")
    items = Items(1e6 * count, 1 / count)
    if seconds is not None:
        items = Items(float(count), max(seconds) / sum(seconds), sum(seconds))
    outputs = graph.launch(
        name,
        f"{', '.join(['r', *read])} -> {', '.join(made)}",
        [points, *inputs],
        kernel=Kernel(_run, claims=items).bind(function=function, count=count, results=len(out)),
        sizes={"item": count, **sizes},
        dtype=[dtype for _, dtype in out],
        flops=items.flops / count / ranks / extents,
    )
    return several(outputs)


def _whole(k: int, ndim: int) -> str:
    return " ".join(f"^i{k}_{d}" for d in range(ndim)) or "."


def _run(
    ctx: Context,
    points: Array,
    *arrays: Array,
    function: Any,
    count: int,
    results: int,
) -> None:
    outputs = arrays[len(arrays) - results :]
    for result in outputs:
        result.fill(0)
    for item in ctx.claim(count):
        try:
            function(
                ctx,
                item,
                *arrays[: len(arrays) - results],
                *(result[item : item + 1] for result in outputs),
            )
        except Exception as error:
            error.add_note(f"in item {item} of {count}")
            raise
    for result in outputs:
        result += 0  # -0.0 is 0.0, as where it is a sum
