"""Quantisation of a graph: weights and what they are multiplied with are rounded to few values, graph -> graph.

Numbers are those of so many bits, computed in floating point (Jacob et al., CVPR 2018); gradients go straight through
the rounding (Bengio et al., arXiv 1308.3432), so a quantised graph can be trained. A scale is the largest magnitude
over all parts of a region, so it does not depend on a strategy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from taskflow.backend import Array, Context
from taskflow.core.numbers import whole
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.kernel import Kernel
from taskflow.graph.rebuild import emptied
from taskflow.graph.update import launch_beside

Leader = tuple[Operator, int]  # an operator, and number of an argument of it
_LEAST = 1e-30  # a scale of zero would divide zeros by it


def quantize(
    graph: Graph,
    bits: int = 8,
    which: str | Sequence[str] = "*.weight",
    activations: int | None = 8,
    calibrate: bool = True,
    axis: int | None = 0,
) -> Graph:
    """The same graph with weights of `bits` bits, a scale for each point of a dimension, and inputs of their operators.

    Args:
        graph: stays as it is; called before an optimizer is. Names of regions and outputs stay.
        bits: of weights: 2 ** bits - 1 values around zero.
        which: parameters by name or pattern.
        activations: bits of the values that are computed with these; None: they stay as they are. Their scales are
            states `<region>.scale`, the largest magnitude so far.
        calibrate: whether a step widens these scales; without it they are those of a checkpoint, or `Executor.write`.
        axis: of a weight: the dimension whose points have scales of their own; None: a weight has one.

    Raises:
        ValueError: there are fewer than 2 bits or more than 16, no parameter has such a name, or the graph was
            differentiated.
    """
    if graph.differentiations:
        raise ValueError("quantize: the graph has gradients already; call it before the optimizer")
    patterns = [which] if isinstance(which, str) else list(which)
    chosen = {r.name for r in graph.parameters if any(fnmatchcase(r.name, p) for p in patterns)}
    if not chosen:
        raise ValueError(f"quantize: no parameter is called {' or '.join(patterns)}")
    other, operators = emptied(graph)
    made: dict[str, LogicalRegion] = {}
    made_by: dict[str, Leader] = {}

    def rounded(region: LogicalRegion, reader: Leader) -> LogicalRegion:
        """Split as where a value is made, or where a weight is read."""
        leader = made_by.get(region.name, reader)
        if region.name not in made and region.name in chosen:
            made[region.name] = _fake_quantize(
                region, bits, axis if region.ndim > 1 else None, None, None, False, leader
            )
        elif region.name not in made:
            scale = other.parameter(f"{region.name}.scale", (), 0.0, region.dtype, trainable=False)
            made[region.name] = _fake_quantize(
                region, activations or 0, None, scale, None, calibrate, leader
            )
        return made[region.name]

    for op in operators:
        is_chosen = bool({r.name for r in op.inputs} & chosen)
        inputs = tuple(
            rounded(r, (op, k))
            if r.name in chosen or (is_chosen and activations and _is_activation(r))
            else r
            for k, r in enumerate(op.inputs)
        )
        new = replace(op, inputs=inputs)
        other.operators.append(new)
        made_by |= {r.name: (new, len(inputs) + k) for k, r in enumerate(op.outputs)}
    return other


def _is_activation(region: LogicalRegion) -> bool:
    return region.role in ("value", "input") and region.dtype.startswith(("float", "bfloat"))


def fake_quantize(
    x: LogicalRegion,
    bits: int,
    axis: int | None = None,
    scale: LogicalRegion | None = None,
    name: str | None = None,
    *,
    calibrate: bool = False,
) -> LogicalRegion:
    """x rounded to 2 ** bits - 1 equally distant values from -scale to scale; the gradient goes straight through.

    Args:
        x: any shape, floating point.
        bits: 2 to 16.
        axis: dimension with a scale for each of its points; None: one for all.
        scale: a region of shape (), or with `axis` of its extent; numbers beyond are cut off there, and have no
            gradient. None: the largest magnitude of `x`.
        name: of the operator.
        calibrate: whether `scale`, a state, is the largest magnitude so far, this step's included.

    Raises:
        ValueError: a number is out of range, or the shapes do not agree.
    """
    return _fake_quantize(x, bits, axis, scale, name, calibrate)


def _fake_quantize(
    x: LogicalRegion,
    bits: int,
    axis: int | None,
    scale: LogicalRegion | None,
    name: str | None,
    calibrate: bool,
    leader: Leader | None = None,
) -> LogicalRegion:
    """See `fake_quantize`; split as an argument of the `leader` is."""
    where = f"fake_quantize '{name or x.name}'"
    whole(where, "bits", bits, 2)
    if bits > 16 or (axis is not None and not -x.ndim <= axis < x.ndim):
        raise ValueError(f"{where}: {bits} bits along axis {axis} of '{x.name}', {x.shape}")
    shape = () if axis is None else (x.shape[axis],)
    if scale is not None and scale.shape != shape:
        raise ValueError(f"{where}: scale '{scale.name}' is {scale.shape}, {shape} is needed")
    graph = x.graph
    name = graph.unique_name(name or f"{x.name}.rounded", "most")
    full = (
        leader[0].bound.term_text(leader[1]) if leader else _term([f"a{d}" for d in range(x.ndim)])
    )
    few = "." if axis is None else re.findall(r"\([^)]*\)|[^ ]+", full)[axis]

    def launch(
        what: str, pattern: str, inputs: list[LogicalRegion], **options: Any
    ) -> LogicalRegion:
        if leader:
            return launch_beside(*leader, what, pattern, inputs, **options)[0]
        outputs = graph.launch(what, pattern.replace("*", full), inputs, **options)
        return outputs if isinstance(outputs, LogicalRegion) else outputs[0]

    layout = tuple(axis is not None and d == axis % x.ndim for d in range(x.ndim))
    is_clipped = scale is not None and not calibrate
    if scale is None or calibrate:
        kernel = _most.bind(axes=tuple(d for d, is_kept in enumerate(layout) if not is_kept))
        most = launch(
            f"{name}.most", f"* -> max[{few}]", [x], kernel=kernel, backward=_none, flops=2
        )
        if scale is None:
            scale = most
        else:
            graph.launch(
                f"{name}.widen",
                f"{few}, {few} ->",
                [scale, most],
                kernel=_widen,
                writes=[scale],
                flops=1,
            )
    return launch(
        name,
        f"*, {few} -> *",
        [x, scale],
        kernel=_round.bind(levels=2 ** (bits - 1) - 1, layout=layout),
        backward=partial(_straight_through, is_clipped=is_clipped),
        flops=4,
    )


def _term(axes: Sequence[str]) -> str:
    return " ".join(axes) or "."


def _none(op: Operator, *gradients: LogicalRegion | None) -> tuple[None, ...]:
    return (None,) * len(op.inputs)


def _straight_through(
    op: Operator, g: LogicalRegion, *, is_clipped: bool
) -> tuple[LogicalRegion, None]:
    if not is_clipped:
        return g, None
    (x, scale) = op.inputs
    (full, few) = map(op.bound.term_text, range(2))
    kernel = _cut.bind(layout=op.kernel.options["layout"])
    made = g.graph.launch(
        f"{op.name}.dx",
        f"{full}, {full}, {few} -> {full}",
        [g, x, scale],
        kernel=kernel,
        sizes=op.extents,
        flops=2,
    )
    assert isinstance(made, LogicalRegion)
    return made, None


# -- kernels, of NumPy and CuPy ---------------------------------------------------------------------------------------


@Kernel
def _most(ctx: Context, x: Array, most: Array, *, axes: tuple[int, ...]) -> None:
    ctx.xp.max(x, axis=axes, out=most)
    ctx.xp.maximum(most, -ctx.xp.min(x, axis=axes), out=most)


def _widen(ctx: Context, scale: Array, most: Array) -> None:
    ctx.xp.maximum(scale, most, out=scale)


def _aligned(scale: Array, layout: Sequence[bool]) -> Array:
    """The scale of every point of the dimension that has some, as an array of all dimensions."""
    return scale.reshape([-1 if has_scales else 1 for has_scales in layout])


@Kernel
def _round(
    ctx: Context, x: Array, scale: Array, y: Array, *, levels: int, layout: Sequence[bool]
) -> None:
    unit = ctx.xp.maximum(_aligned(scale, layout), _LEAST) / levels
    ctx.xp.divide(x, unit, out=y)
    ctx.xp.rint(y, out=y)
    ctx.xp.clip(y, -levels, levels, out=y)
    ctx.xp.multiply(y, unit, out=y)


@Kernel
def _cut(
    ctx: Context, g: Array, x: Array, scale: Array, gx: Array, *, layout: Sequence[bool]
) -> None:
    ctx.xp.multiply(g, ctx.xp.abs(x) <= _aligned(scale, layout), out=gx)
