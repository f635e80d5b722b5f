"""Steps in a row: a graph whose operators come k times. A graph -> graph transformation.

Persistent regions are one in all steps, so what a step updates in place the next one reads, and a row of the next step
waits for that update alone, not for all of the step. Inputs and values are regions of each step. What belongs to step
0 keeps its name, what belongs to step j is called `name@j`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from taskflow.graph.binding import whole_numbers
from taskflow.graph.graph import Graph, LogicalRegion
from taskflow.graph.rebuild import copy_into


def in_step(name: str, step: int) -> str:
    """What is called so in step 0, in another one."""
    return f"{name}@{step}" if step else name


def repeated(graph: Graph, repeat: int, name_in: Callable[[str, int], str] = in_step) -> Graph:
    """The graph of `repeat` steps in a row; it is complete: nothing can be differentiated any more.

    `graph` stays as it is. An operator of step j sees `ctx.step` j steps on, so random numbers are those of that step.
    `name_in(name, j)` is what is called so in step j.

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
    other.repeat = repeat
    other.precision = graph.precision
    other.differentiations = graph.differentiations
    for step in range(repeat):
        named = partial(_named, name_in, step)
        copy_into(
            other,
            graph,
            partial(_region_in_step, named),
            named,
            named,
            partial(_clash, step),
            backward=None,
            step=step,
        )
    return other


def _named(name_in: Callable[[str, int], str], step: int, name: str) -> str:
    return name_in(name, step)


def _region_in_step(named: Callable[[str], str], region: LogicalRegion) -> LogicalRegion:
    return region if region.is_persistent else replace(region, name=named(region.name))


def _clash(step: int, what: str, name: str) -> str:
    return f"repeat: '{name}' is the name of {what}, and of one in step {step}"
