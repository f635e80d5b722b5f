"""Steps in a row: a graph whose operators come k times. A graph -> graph transformation.

Persistent regions are one in all steps, so what a step updates in place the next one reads, and a row of the next step
waits for that update alone, not for all of the step. Inputs and values are regions of each step. What belongs to step
0 keeps its name, what belongs to step j is called `name@j`.
"""

from __future__ import annotations

from dataclasses import replace

from taskflow.graph.binding import whole_numbers
from taskflow.graph.graph import Graph, LogicalRegion, Operator


def in_step(name: str, step: int) -> str:
    """What is called so in step 0, in another one."""
    return f"{name}@{step}" if step else name


def repeated(graph: Graph, repeat: int) -> Graph:
    """The graph of `repeat` steps in a row; it is complete: nothing can be differentiated any more.

    `graph` stays as it is. An operator of step j sees `ctx.step` j steps on, so random numbers are those of that step.

    Raises:
        ValueError: `repeat` is not positive, the graph was repeated, an output is a region that outlives its step, or a
            name is that of another one in a later step.
    """
    (repeat,) = whole_numbers("repeat", (repeat,))
    if repeat < 1:
        raise ValueError(f"repeat: is at least 1, not {repeat}")
    if graph.repeat > 1 and repeat > 1:
        raise ValueError(f"repeat: the graph is one of {graph.repeat} steps already")
    if repeat == 1:
        return graph
    for name, region in graph.outputs.items():
        if region.is_persistent:
            raise ValueError(
                f"repeat: output '{name}' is '{region.name}', which has one value for {repeat} steps"
            )
    other = Graph()
    other.repeat, other.precision, other.differentiations = (
        repeat,
        graph.precision,
        graph.differentiations,
    )
    for step in range(repeat):
        _append(other, graph, step)
    return other


def _append(other: Graph, graph: Graph, step: int) -> None:
    mine: dict[str, LogicalRegion] = {}
    for name, region in graph.regions.items():
        new = replace(
            region, graph=other, name=name if region.is_persistent else in_step(name, step)
        )
        if (
            mine_ := other.regions.setdefault(new.name, new)
        ) is not new and not region.is_persistent:
            raise ValueError(
                f"repeat: '{mine_.name}' is the name of a region, and of one in step {step}"
            )
        mine[name] = mine_
    for op in graph.operators:
        if other.operators.called(in_step(op.name, step)):
            raise ValueError(
                f"repeat: '{in_step(op.name, step)}' is the name of an operator, and of one in step {step}"
            )
        other.operators.append(_in_step(op, step, mine))
    for name, region in graph.outputs.items():
        if in_step(name, step) in other.outputs:
            raise ValueError(
                f"repeat: '{in_step(name, step)}' is the name of an output, and of one in step {step}"
            )
        other.outputs[in_step(name, step)] = mine[region.name]
    other.names |= {in_step(name, step) for name in graph.names}


def _in_step(op: Operator, step: int, mine: dict[str, LogicalRegion]) -> Operator:
    return replace(
        op,
        name=in_step(op.name, step),
        inputs=tuple(mine[r.name] for r in op.inputs),
        outputs=tuple(mine[r.name] for r in op.outputs),
        backward=None,
        follows=None if op.follows is None else in_step(op.follows, step),
        members=tuple(in_step(member, step) for member in op.members),
        step=step,
    )
