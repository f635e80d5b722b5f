"""Softmax composed of operators, so that the dimension that sums to one may be split too.

Three operators read the scores: their maximum, the sum of exponentials, and the result; each combines the partial
results of its tiles. `softmax` in one operator reads them once.
"""

from __future__ import annotations

from functools import partial

from ops.building import check_dim, check_region, distinct, term, terms
from ops.elementwise.formula import formula
from taskflow import LogicalRegion, Operator

_VALUES = {"softmax": "exp(x - largest) / total", "log_softmax": "x - largest - log(total)"}
_SUMS = {"softmax": "g * z", "log_softmax": "g"}
_GRADIENTS = {"softmax": "(g - row) * z", "log_softmax": "g - row * exp(z)"}


def log_softmax(x: LogicalRegion, dim: int = -1, name: str | None = None) -> LogicalRegion:
    """x - log(sum over `dim` of exp(x)), as torch.nn.functional.log_softmax.

    Args:
        x: any shape with at least one dimension, floating point.
        dim: the dimension whose exponentials sum to one; it may be split.
        name: of the operator; what it reads is made by `<name>.max` and `<name>.total`.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: `dim` is out of range, or `x` is of another dtype.
    """
    return composed_softmax("log_softmax", x, dim, name)


def composed_softmax(kind: str, x: LogicalRegion, dim: int, name: str | None) -> LogicalRegion:
    """`kind` is a key of `_VALUES`."""
    where = f"{kind} '{name or kind}'"
    check_region(where, x)
    dim = check_dim(where, dim, x.ndim)
    axes = distinct(x.axes)
    full, row = term(axes), term((*axes[:dim], *axes[dim + 1 :]))
    name = x.graph.unique_name(name or kind)
    with x.graph.following(name):
        largest = formula(f"{name}.max", "x", {"x": (x, full)}, row, "max")
        inputs = {"x": (x, full), "largest": (largest, row)}
        total = formula(f"{name}.total", "exp(x - largest)", inputs, row, flops=10)
    inputs["total"] = total, row
    return formula(name, _VALUES[kind], inputs, full, backward=partial(_backward, kind=kind), flops=10)


def _backward(op: Operator, g: LogicalRegion, *, kind: str) -> tuple[LogicalRegion, None, None]:
    """That of maximum and sum is in it already."""
    (full, row, _), _ = terms(op)
    flowing = {"g": (g, full), "z": (op.outputs[0], full)}
    sums = formula(f"{op.name}.sums", _SUMS[kind], {k: v for k, v in flowing.items() if k in _SUMS[kind]}, row)
    return formula(f"{op.name}.dx", _GRADIENTS[kind], flowing | {"row": (sums, row)}, full), None, None
