"""What the operators share when they build a graph: launches, parameters, axis names, terms, checks and messages.

Nothing here runs in a step; what kernels share is in `tiles`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from ops.initializers import Init, fan_in_uniform
from taskflow import Graph, Kernel, LogicalRegion, Operator, Window

_Options = ParamSpec("_Options")
_Result = TypeVar("_Result")
Regions = LogicalRegion | tuple[LogicalRegion, ...]
_DIMENSIONS = ("", "one dimension is", "two dimensions are", "three dimensions are")


def first(outputs: Regions) -> LogicalRegion:
    """The output of a launch, or the first of several (the others serve the backward operators)."""
    return outputs if isinstance(outputs, LogicalRegion) else outputs[0]


def several(outputs: Regions) -> tuple[LogicalRegion, ...]:
    """The outputs of a launch as a tuple, a single one too."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _plain(value: Any) -> Any:
    """The value itself, or where there are numbers of NumPy in it, the same with Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        plain = {key: _plain(number) for key, number in value.items()}
        return value if all(plain[key] is number for key, number in value.items()) else plain
    if isinstance(value, Kernel):
        plain = _plain(value.options)
        return value if plain is value.options else replace(value, options=plain)
    if isinstance(value, Window):
        return replace(
            value,
            **{
                key: _plain(getattr(value, key))
                for key in ("size", "stride", "padding", "dilation")
            },
        )
    if type(value) in (tuple, list):
        made = type(value)(map(_plain, value))
        return value if all(new is old for new, old in zip(made, value, strict=True)) else made
    return value


def _on_graph_of_inputs(
    launch: Callable[Concatenate[Graph, str, str, Sequence[LogicalRegion], _Options], Regions],
    give: Callable[[Regions], _Result],
) -> Callable[Concatenate[str, str, Sequence[LogicalRegion], _Options], _Result]:
    def launched(
        name: str,
        pattern: str,
        inputs: Sequence[LogicalRegion],
        /,
        *args: _Options.args,
        **options: _Options.kwargs,
    ) -> _Result:
        for key in options.keys() & {"kernel", "sizes", "windows"}:
            options[key] = _plain(options[key])
        return give(
            launch(
                inputs[0].graph,
                name,
                pattern,
                inputs,
                *args,
                **options,
            )
        )

    return launched


# `Graph.launch` on the graph of the first input: its first output (others serve the backward operators), or all.
launch_first = _on_graph_of_inputs(Graph.launch, first)
launch_all = _on_graph_of_inputs(Graph.launch, several)


def gradient_of_first(
    op: Operator, gy: LogicalRegion, *, kernel: Kernel
) -> tuple[LogicalRegion | None, ...]:
    """The backward function of an operator whose first input alone has a gradient: `kernel` of gy and the others."""
    (x_term, *others), (y_term,) = terms(op)
    pattern, inputs = f"{', '.join((y_term, *others))} -> {x_term}", [gy, *op.inputs[1:]]
    gx = launch_first(
        f"{op.name}.dx",
        pattern,
        inputs,
        kernel=kernel,
        sizes=op.extents,
        flops=op.flops,
    )
    return gx, *[None] * len(others)


def no_gradient(op: Operator, *gradients: LogicalRegion | None) -> tuple[None, ...]:
    """The backward function of what is piecewise constant."""
    return (None,) * len(op.inputs)


def takes_old(
    keyword: str, advice: str, translate: Callable[[Any], dict[str, Any]]
) -> Callable[[Callable[_Options, _Result]], Callable[_Options, _Result]]:
    """A function that takes a keyword of older releases, too, with a warning that says what to write: `advice`.

    `translate` makes today's keywords of its value.
    """

    def decorate(function: Callable[_Options, _Result]) -> Callable[_Options, _Result]:
        @wraps(function)
        def call(*args: _Options.args, **options: _Options.kwargs) -> _Result:
            if keyword in options:
                what = f"{function.__name__}({keyword}=...) is of an older release: {advice}"
                warnings.warn(what, FutureWarning, stacklevel=2)
                options.update(translate(options.pop(keyword)))
            return function(*args, **options)

        return call

    return decorate


def parameters(
    x: LogicalRegion,
    name: str,
    shape: tuple[int, ...],
    bias: bool = True,
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> list[LogicalRegion]:
    """`<name>.weight` of `shape`, and perhaps `<name>.bias` of its first dimension, in the dtype of `x`.

    First values are by default torch's for affine maps: uniform in ±1/sqrt(fan_in), for both. ValueError for those of a
    bias that is not there.
    """
    if not bias and bias_init is not None:
        raise ValueError(f"'{name}': bias_init is {bias_init!r}, but there is no bias")
    init = fan_in_uniform if weight_init is None else weight_init
    made = [x.graph.parameter(f"{name}.weight", shape, init, x.dtype)]
    if bias:
        init = fan_in_uniform(shape) if bias_init is None else bias_init
        made.append(x.graph.parameter(f"{name}.bias", shape[:1], init, x.dtype))
    return made


def fresh(name: str, taken: Iterable[str]) -> str:
    """`name`, or `name_2`, `name_3`, ... if it is taken."""
    taken = set(taken)
    if name not in taken:
        return name
    return next(n for k in range(2, len(taken) + 3) if (n := f"{name}_{k}") not in taken)


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """`names` with a number added to those that are taken or repeat an earlier one."""
    used = list(taken)
    start = len(used)
    for name in names:
        used.append(fresh(name, used))
    return tuple(used[start:])


def term(axes: Sequence[str]) -> str:
    """The term of one region: axis names, or `.` for a scalar."""
    return " ".join(axes) or "."


def terms(op: Operator) -> tuple[list[str], list[str]]:
    """The terms of an operator's pattern as text: inputs, outputs.

    A backward operator is written in the axis names of its forward operator, because it follows its configuration;
    the names of the gradient that flows in are those of whoever made it.
    """
    left, _, right = op.pattern.partition("->")
    return [t.strip() for t in left.split(",")], [t.strip() for t in right.split(",")]


def layout_channels_last(pattern: str) -> str:
    """The pattern with the second dimension of every term of four put last: the `layout` of operators on images."""

    def turn(text: str) -> str:
        dims = re.findall(r"\([^)]*\)|\S+", text)
        return " ".join([dims[0], *dims[2:], dims[1]] if len(dims) == 4 else dims)

    return " -> ".join(", ".join(turn(t) for t in side.split(",")) for side in pattern.split("->"))


def checked(
    kind: str,
    name: str | None,
    x: LogicalRegion,
    role: str = "x",
    *,
    ndim: Sequence[int] = (),
    least: int = 0,
    floating: bool = True,
    eps: float = 1.0,
) -> str:
    """What messages call an operator, `<kind> '<name>'`; errors are for an operand that it does not take.

    TypeError for what is no region, ValueError for another number of dimensions than one of `ndim` or `least` at least,
    if it has to be `floating`, for another dtype, and for an `eps` that is no positive finite number.
    """
    where = f"{kind} '{name or kind}'"
    check_region(where, x, role, floating)
    if ndim and x.ndim not in ndim:
        raise ValueError(
            f"{where}: '{x.name}' has shape {x.shape}, {' or '.join(map(str, ndim))} dimensions are needed"
        )
    if x.ndim < least:
        raise ValueError(
            f"{where}: '{x.name}' has shape {x.shape}, at least {_DIMENSIONS[least]} needed"
        )
    if isinstance(eps, bool):
        raise ValueError(f"{where}: eps is {eps!r}, a positive finite number is needed")
    check_number(where, "eps", eps, "a positive finite number")
    return where


def check_region(where: str, region: object, role: str = "x", floating: bool = True) -> None:
    """TypeError for what is no region, ValueError for a region that is not of floating point."""
    if not isinstance(region, LogicalRegion):
        raise TypeError(f"{where}: {role} is a {type(region).__name__}, not a region")
    if floating and not region.is_floating:
        raise ValueError(
            f"{where}: '{region.name}' is {region.dtype}, a floating point dtype is needed"
        )


def check_integers(where: str, region: LogicalRegion, role: str) -> None:
    """TypeError for what is no region, ValueError for a region that is not of integers."""
    check_region(where, region, role, floating=False)
    if not region.dtype.startswith(("int", "uint")):
        raise ValueError(
            f"{where}: {role} '{region.name}' is {region.dtype}, an integer dtype is needed"
        )


def check_positive(where: str, **values: int) -> None:
    """ValueError for an extent that is not a positive integer."""
    for key, value in values.items():
        if not is_integer(value) or value < 1:
            raise ValueError(f"{where}: {key} is {value!r}, a positive integer is needed")


# What is needed of a number -> whether one is so.
_NUMBERS: dict[str, Callable[[float], bool]] = {
    "a number": lambda v: v == v,
    "a finite number": isfinite,
    "a finite number other than 0": lambda v: isfinite(v) and v != 0,
    "a finite number from 0 on": lambda v: 0 <= v < inf,
    "a positive number": lambda v: v > 0,
    "a positive finite number": lambda v: 0 < v < inf,
    "a number in [0, 1]": lambda v: 0 <= v <= 1,
}


def is_number(value: object) -> bool:
    """Whether it is a number of Python or of NumPy: a truth value is one, 0 or 1."""
    return isinstance(value, Real) or (isinstance(value, np.generic) and value.dtype == bool)


def is_integer(value: object) -> bool:
    """Whether it is an integer of Python or of NumPy; a truth value is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def as_float(number: object) -> float:
    """A number as Python's float."""
    return float(cast(float, number))


def check_number(where: str, key: str, value: object, needed: str = "a number") -> float:
    """The value of an option as a float; ValueError unless it is what is `needed`, a key of `_NUMBERS`."""
    if is_number(value) and _NUMBERS[needed](number := as_float(value)):
        return number
    raise ValueError(f"{where}: {key} is {value!r}, {needed} is needed")


def check_not_negative(where: str, **values: int) -> None:
    """ValueError for what is no integer from 0 on."""
    for key, value in values.items():
        if not is_integer(value) or value < 0:
            raise ValueError(f"{where}: {key} is {value!r}, an integer from 0 on is needed")


def check_dim(where: str, dim: int, ndim: int) -> int:
    """`dim` counted from the front; ValueError when it is no integer, or out of range."""
    if not is_integer(dim):
        raise ValueError(f"{where}: dim is {dim!r}, an integer is needed")
    if not -ndim <= dim < ndim:
        raise ValueError(f"{where}: dim is {dim}, the region has {ndim} dimensions")
    return int(dim) % ndim


def pair(where: str, key: str, value: int | Sequence[int]) -> tuple[int, int]:
    """A number for both spatial dimensions, or one each."""
    first, second = integers(where, key, value, 2)
    return first, second


def integers(where: str, key: str, value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """A number for each of so many dimensions, or one for all; ValueError for anything else."""
    values: Sequence[Any] = value if isinstance(value, Sequence) else (value,) * count
    if len(values) != count or not all(map(is_integer, values)):
        needed = ("an integer is", "an integer or two are", "an integer or three are")[count - 1]
        raise ValueError(f"{where}: {key} is {value!r}, {needed} needed")
    return tuple(map(int, values))
