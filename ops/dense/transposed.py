"""Transposed convolutions: what the gradient of a convolution with respect to its input is, as an operator.

The kernels are those of `convolution` with their parts exchanged: forward is the gradient of the input, the gradient of
the input is the convolution, and the gradient of the weight reads input and output the other way round. A bias is added
by a follower.

Splits over `n` (Sample), over `c` and `o` (Parameter; `o`, the channels of the input, gives partial sums), over `h` and
`w` (Attribute: a tile reads the inputs whose windows reach it) and, with groups, over `g`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ops.building import (
    check_positive,
    checked,
    is_integer,
    launch_first,
    pair,
    parameters,
    term,
    terms,
)
from ops.dense.convolution import SPATIAL, ConvolutionKernels, both, image_kernels, windows_layout
from ops.dense.convolution1d import line_kernels
from ops.elementwise.formula import formula
from ops.initializers import Init, fan_in_uniform
from taskflow import LogicalRegion, Operator, Window

Sizes = int | Sequence[int]


def conv_transpose2d(
    x: LogicalRegion,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    bias: bool = True,
    name: str | None = None,
    *,
    inits: tuple[Init | None, Init | None] = (None, None),
) -> LogicalRegion:
    """Two-dimensional transposed convolution, as torch.nn.functional.conv_transpose2d.

    Args:
        x: (batch, channels, height, width), floating point.
        out_channels: channels of the result.
        kernel_size, stride, padding, output_padding, dilation: a number, or one each for height and width.
        groups: channels are convolved in this many groups of their own.
        bias: whether to add `<name>.bias` of shape (out_channels,), by the operator `<name>.add`.
        name: of the operator; `<name>.weight` is (channels, out_channels / groups, kernel height, kernel width).
        inits: first values of weight and bias; default torch's, uniform in ±1/sqrt(fan_in).

    Returns:
        (batch, out_channels, height', width') with height' = (height - 1) stride - 2 padding + dilation (kernel - 1) +
        output_padding + 1, of the dtype of `x`.

    Raises:
        ValueError: `x` has not four dimensions, the channels do not divide into the groups, a number is out of range,
            or nothing is left of an extent.
    """
    where = checked("conv_transpose2d", name, x, ndim=(4,))
    named = {
        "kernel_size": kernel_size,
        "stride": stride,
        "padding": padding,
        "output_padding": output_padding,
    }
    sizes = [pair(where, key, value) for key, value in {**named, "dilation": dilation}.items()]
    name = name or "conv_transpose2d"
    return _launch(
        where, name, x, [*zip(*sizes)], out_channels, groups, bias, inits, image_kernels()
    )


def conv_transpose1d(
    x: LogicalRegion,
    out_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
    name: str | None = None,
    *,
    inits: tuple[Init | None, Init | None] = (None, None),
) -> LogicalRegion:
    """One-dimensional transposed convolution, as torch.nn.functional.conv_transpose1d; see `conv_transpose2d`.

    Args, returns and raises as there, of (batch, channels, length) and numbers.
    """
    where = checked("conv_transpose1d", name, x, ndim=(3,))
    sizes = [(kernel_size, stride, padding, output_padding, dilation)]
    return _launch(
        where,
        name or "conv_transpose1d",
        x,
        sizes,
        out_channels,
        groups,
        bias,
        inits,
        line_kernels(),
    )


def _launch(
    where: str,
    name: str,
    x: LogicalRegion,
    sizes: Sequence[Sequence[int]],
    out_channels: int,
    groups: int,
    bias: bool,
    inits: tuple[Init | None, Init | None],
    kernels: ConvolutionKernels,
) -> LogicalRegion:
    """`sizes` are kernel size, stride, padding, padding of the output and dilation of every dimension."""
    check_positive(where, out_channels=out_channels, groups=groups)
    for what, channels in (("channels", x.shape[1]), ("out_channels", out_channels)):
        if channels % groups:
            raise ValueError(
                f"{where}: {what} is {channels}, which does not divide into {groups} groups"
            )
    _, made, back = SPATIAL[len(sizes)]
    extents = [_extent(where, n, *numbers) for n, numbers in zip(x.shape[2:], sizes, strict=True)]
    windows = [Window(axis, k, s, p, d) for axis, (k, s, p, _, d) in zip(made, sizes, strict=True)]
    name = x.graph.unique_name(name)
    shape = (x.shape[1], out_channels // groups, *(w.size for w in windows))
    weight, *biases = parameters(x, name, shape, False, inits[0], None if bias else inits[1])
    if bias:
        init = fan_in_uniform(weight.shape) if inits[1] is None else inits[1]
        biases = [x.graph.parameter(f"{name}.bias", (out_channels,), init, x.dtype)]
    c, o = ("c", "o") if groups == 1 else ("(g c)", "(g o)")
    pattern = (
        f"n {o} {term(back)}, {o} c {term([f'^k{axis}' for axis in made])} -> n {c} {term(made)}"
    )
    y = launch_first(
        name,
        pattern,
        [x, weight],
        kernel=kernels.of_x.bind(windows=both(windows), is_grouped=groups > 1),
        sizes={**({"g": groups} if groups > 1 else {}), **dict(zip(made, extents, strict=True))},
        windows={axis: replace(w, transposed=True) for axis, w in zip(back, windows, strict=True)},
        backward=partial(_backward, kernels=kernels),
        flops=2 * prod(x.shape[2:]) / prod(extents),
        layout=windows_layout(pattern, windows),
    )
    if not bias:
        return y
    full, sizes_of = f"n {c} {term(made)}", {"g": groups} if groups > 1 else {}
    inputs = {"x": (y, full), "bias": (biases[0], c)}
    with x.graph.following(name):
        return formula(
            f"{name}.add", "x + bias", inputs, full, backward=_bias_backward, sizes=sizes_of
        )


def _extent(
    where: str, n: int, size: int, stride: int, padding: int, more: int, dilation: int
) -> int:
    """Of the output; `more` points are at its end."""
    check_positive(where, kernel_size=size, stride=stride, dilation=dilation)
    if not is_integer(padding) or not is_integer(more):
        raise ValueError(
            f"{where}: padding is {padding!r} and output_padding {more!r}, integers are needed"
        )
    if padding < 0 or not 0 <= more < max(stride, dilation):
        raise ValueError(
            f"{where}: padding is {padding} and output_padding is {more}: the first is at least 0, the second below "
            f"the stride {stride} or the dilation {dilation}"
        )
    extent = (n - 1) * stride - 2 * padding + dilation * (size - 1) + more + 1
    if extent < 1:
        raise ValueError(
            f"{where}: nothing is left of the {n} points of a dimension with a padding of {padding}"
        )
    return extent


def _backward(
    op: Operator, gy: LogicalRegion, *, kernels: ConvolutionKernels
) -> tuple[LogicalRegion, LogicalRegion]:
    (x_term, weight_term), (y_term,) = terms(op)
    x, weight = op.inputs
    read, made, back = SPATIAL[x.ndim - 2]
    windows = [replace(op.windows[axis], transposed=False) for axis in back]
    groups = {"g": op.extents["g"]} if "g" in op.extents else {}
    options = {"windows": both(windows), "is_grouped": bool(groups)}
    y_read, x_made = y_term.replace(term(made), term(read)), x_term.replace(term(back), term(made))
    of_windows = dict(zip(read, windows, strict=True))
    x_pattern, weight_pattern = (
        f"{y_read}, {weight_term} -> {x_made}",
        f"{x_made}, {y_read} -> {weight_term}",
    )
    gx = launch_first(
        f"{op.name}.dx",
        x_pattern,
        [gy, weight],
        kernel=kernels.forward.bind(**options),
        sizes={**groups, **dict(zip(made, x.shape[2:], strict=True))},
        windows=of_windows,
        flops=2,
        layout=windows_layout(x_pattern, windows),
    )
    gweight = launch_first(
        f"{op.name}.dweight",
        weight_pattern,
        [x, gy],
        kernel=kernels.of_weight.bind(**options),
        sizes={**groups, **{f"k{axis}": w.size for axis, w in zip(made, windows, strict=True)}},
        windows=of_windows,
        layout=windows_layout(weight_pattern, windows),
    )
    return gx, gweight


def _bias_backward(op: Operator, g: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    (_, channel), (full,) = terms(op)
    sizes = {"g": op.extents["g"]} if "g" in op.extents else {}
    return g, formula(f"{op.name}.dbias", "g", {"g": (g, full)}, channel, sizes=sizes)
