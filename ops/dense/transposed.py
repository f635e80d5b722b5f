"""Transposed convolutions: what the gradient of a convolution with respect to its input is, as an operator.

Forward is the gradient of the input, the gradient of the input is the convolution, and the gradient of the weight reads
input and output the other way round. A bias is added by a follower.

Splits over `n` (Sample), over `c` and `o` (Parameter; `o`, the channels of the input, gives partial sums), over `h` and
`w` (Attribute: a tile reads the inputs whose windows reach it) and, with groups, over `g`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.building import (
    check_positive,
    checked,
    integers,
    parameters,
    takes_old,
    term,
    terms,
)
from ops.dense.convolution import Convolution, Sizes, check_channels
from ops.elementwise.formula import formula
from ops.initializers import Init, fan_in_uniform
from taskflow import LogicalRegion, Operator, Window

_takes_inits = takes_old(
    "inits", "use weight_init= and bias_init=", lambda v: {"weight_init": v[0], "bias_init": v[1]}
)


@_takes_inits
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
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> LogicalRegion:
    """Two-dimensional transposed convolution, as torch.nn.functional.conv_transpose2d.

    Args:
        x: (batch, channels, height, width), floating point.
        out_channels: channels of the result.
        kernel_size, stride, padding, output_padding, dilation: a number, or one each for height and width.
        groups: channels are convolved in this many groups of their own.
        bias: whether to add `<name>.bias` of shape (out_channels,), by the operator `<name>.add`.
        name: of the operator; `<name>.weight` is (channels, out_channels / groups, kernel height, kernel width).
        weight_init, bias_init: first values; default torch's, uniform in ±1/sqrt(fan_in).

    Returns:
        (batch, out_channels, height', width') with height' = (height - 1) stride - 2 padding + dilation (kernel - 1) +
        output_padding + 1, of the dtype of `x`.

    Raises:
        ValueError: `x` has not four dimensions, the channels do not divide into the groups, a number is out of range,
            or nothing is left of an extent.
    """
    where = checked("conv_transpose2d", name, x, ndim=(4,))
    windows = _windows(where, x, kernel_size, stride, padding, output_padding, dilation)
    rest = (out_channels, groups, bias, weight_init, bias_init)
    return _transpose(where, name or "conv_transpose2d", x, windows, *rest)


@_takes_inits
def conv_transpose1d(
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
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> LogicalRegion:
    """One-dimensional transposed convolution, as torch.nn.functional.conv_transpose1d; see `conv_transpose2d`.

    Args, returns and raises as there, of (batch, channels, length) and numbers.
    """
    where = checked("conv_transpose1d", name, x, ndim=(3,))
    windows = _windows(where, x, kernel_size, stride, padding, output_padding, dilation)
    rest = (out_channels, groups, bias, weight_init, bias_init)
    return _transpose(where, name or "conv_transpose1d", x, windows, *rest)


def _windows(
    where: str,
    x: LogicalRegion,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    dilation: Sizes,
) -> list[tuple[Window, int]]:
    """For every dimension of `x` behind the second the window, and the extent of the result."""
    extents = x.shape[2:]
    named = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
    named |= {"output_padding": output_padding, "dilation": dilation}
    columns = [integers(where, key, value, len(extents)) for key, value in named.items()]
    windows = []
    for axis, extent, size, step, edge, more, gap in zip("hw"[-len(extents) :], extents, *columns):
        check_positive(where, kernel_size=size, stride=step, dilation=gap)
        window = Window(axis, size, step, edge, gap)
        windows.append((window, _extent(where, extent, window, more)))
    return windows


def _extent(where: str, n: int, window: Window, more: int) -> int:
    """Of the output; `more` points are at its end."""
    step = window.stride
    padding = window.padding
    gap = window.dilation
    if padding < 0 or not 0 <= more < max(step, gap):
        raise ValueError(
            f"{where}: padding is {padding} and output_padding is {more}: the first is at least 0, the second below "
            f"the stride {step} or the dilation {gap}"
        )
    extent = (n - 1) * step - 2 * padding + gap * (window.size - 1) + more + 1
    if extent < 1:
        raise ValueError(
            f"{where}: nothing is left of the {n} points of a dimension with a padding of {padding}"
        )
    return extent


def _transpose(
    where: str,
    name: str,
    x: LogicalRegion,
    windows_and_extents: Sequence[tuple[Window, int]],
    out_channels: int,
    groups: int,
    bias: bool,
    weight_init: Init | None,
    bias_init: Init | None,
) -> LogicalRegion:
    check_channels(where, x, out_channels, groups)
    windows, extents = zip(*windows_and_extents, strict=True)
    name = x.graph.unique_name(name)
    shape = (x.shape[1], out_channels // groups, *(w.size for w in windows))
    (weight,) = parameters(x, name, shape, False, weight_init, None if bias else bias_init)
    convolution = Convolution(windows, groups)
    y = convolution.of_x(name, x, weight, extents, backward=_backward)
    if not bias:
        return y
    init = fan_in_uniform(weight.shape) if bias_init is None else bias_init
    added = x.graph.parameter(f"{name}.bias", (out_channels,), init, x.dtype)
    channel = convolution.channels[0]
    sizes = convolution.sizes
    full = f"n {channel} {term(convolution.axes[1])}"
    inputs = {"x": (y, full), "bias": (added, channel)}
    with x.graph.following(name):
        return formula(
            f"{name}.add",
            "x + bias",
            inputs,
            full,
            backward=_bias_backward,
            sizes=sizes,
        )


def _backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    x, weight = op.inputs
    convolution = Convolution.of(op)
    gx = convolution.forward(f"{op.name}.dx", gy, weight, extents=x.shape[2:])
    return gx, convolution.of_weight(f"{op.name}.dweight", x, gy)


def _bias_backward(op: Operator, g: LogicalRegion) -> tuple[LogicalRegion, LogicalRegion]:
    (_, channel), (full,) = terms(op)
    sizes = {"g": op.extents["g"]} if "g" in op.extents else {}
    return g, formula(
        f"{op.name}.dbias",
        "g",
        {"g": (g, full)},
        channel,
        sizes=sizes,
    )
