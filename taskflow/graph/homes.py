"""Homes: how a parameter lives between steps, apart from how its readers want it. A graph -> graph function.

A persistent region lives where its first reader reads it. So an identity operator `<parameter>.home` comes before the
readers. A strategy names it: split over four devices, a quarter of the parameter lives on each, lowering gathers it for
the readers, and the gradient arrives by reduce-scatter, since the update stands beside the parameter as the home does.
The backward pass has a clone of the home, so what was gathered is dropped after its last forward reader and gathered
again: fully sharded data parallelism. Each of p devices gets 3 (p - 1) / p of the bytes of the parameter. Of several
micro-batches each gathers for itself, in instances of its own, if that is said: the part that a device has stays.

Under a precision policy the cast of a parameter is its home: it lives in float32, and half of that is gathered.

Sources: Rajbhandari et al., "ZeRO", SC 2020, stage 3; Zhao et al., "PyTorch FSDP", VLDB 2023.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from taskflow.core.numbers import flag, whole
from taskflow.graph.graph import Graph, Operator
from taskflow.graph.precision import cast, is_cast
from taskflow.graph.rebuild import emptied
from taskflow.graph.recompute import recompute

HOME = "home"  # that of `w` is `w.home`


def homes(
    graph: Graph,
    names: Iterable[str] | str = "all",
    least_bytes: int = 0,
    again: bool = True,
    parts: int = 1,
) -> Graph:
    """The graph with an operator `<parameter>.home` before the readers of parameters, and clones for the backward ones.

    A home follows the first reader, and nothing moves, until a strategy names it (see `taskflow.fully_sharded`). Its
    clone and what stands beside the parameter, such as its update, are split as the home is.

    Args:
        graph: stays as it is. After `precision`, the optimizer and `recompute`; a graph without an optimizer will do.
        names: of parameters; "all".
        least_bytes: smaller parameters get no home.
        again: whether the backward pass gathers again, instead of keeping what was gathered.
        parts: micro-batches, of which each gathers, if `again`; else, and with one, what was gathered stays from the
            first to the last. It saves memory in an order by micro-batches; as lowered all parts of an operator follow
            each other, and gather at once.

    Raises:
        ValueError: there is no such parameter.
    """
    least_bytes = whole("homes", "least_bytes", least_bytes, 0)
    again = flag("homes", "again", again)
    gathers = whole("homes", "parts", parts, 1) if again else 1
    wanted = _wanted(graph, names, least_bytes)
    other, operators = emptied(graph)
    reads = _reads(operators, wanted)
    is_read = {op.inputs[k].name for op in operators for k in reads.get(op.name, ())}
    home: dict[str, Operator] = {}
    for op in operators:
        inputs = list(op.inputs)
        for k in reads.get(op.name, ()):
            name = inputs[k].name
            if name not in home:
                cast(inputs[k], inputs[k].dtype, op, k, f"{name}.{HOME}")
                home[name] = replace(other.operators[-1], gathers=gathers)
                other.operators[-1] = home[name]
            inputs[k] = home[name].outputs[0]
        if (
            is_home(op)
            and op.beside in wanted
            and op.beside not in is_read
            and op.beside not in home
        ):
            op = replace(_called_home(other, op), gathers=gathers)
            home[op.inputs[0].name] = op
        other.operators.append(replace(op, inputs=tuple(inputs)))
    return (
        recompute(other, [op.name for op in home.values()])
        if again and graph.differentiations
        else other
    )


def is_home(op: Operator) -> bool:
    """Whether it is a home, or the cast that may become one: it makes of a parameter what others read."""
    region = op.inputs[0] if op.inputs else None
    return (
        region is not None
        and region.role == "parameter"
        and is_cast(op, region.dtype)
        and not op.is_backward
    )


def _wanted(graph: Graph, names: Iterable[str] | str, least_bytes: int) -> set[str]:
    parameters = {r.name: r for r in graph.parameters}
    names = parameters if names == "all" else [names] if isinstance(names, str) else list(names)
    for name in names:
        if name not in parameters:
            raise ValueError(f"homes: the graph has no parameter '{name}'")
    return {name for name in names if parameters[name].size_bytes >= least_bytes}


def _reads(operators: Sequence[Operator], wanted: set[str]) -> dict[str, list[int]]:
    """Operator -> the inputs that are a parameter of these before its update, unless the operator stands beside it."""
    reads: dict[str, list[int]] = {}
    updated: set[str] = set()
    for op in operators:
        updated |= {op.inputs[k].name for k in op.writes}
        names = [r.name for r in op.inputs]
        reads[op.name] = [
            k for k, n in enumerate(names) if n in wanted and n not in updated and n != op.beside
        ]
    return reads


def _called_home(graph: Graph, op: Operator) -> Operator:
    name = f"{op.beside}.{HOME}"
    return op if op.name == name else replace(op, name=graph.unique_name(name))
