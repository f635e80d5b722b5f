"""Convolution of sequences and images.

Splits over `n` (Sample), over `o` and `c` (Parameter; `c` gives partial sums), over `h` and `w` (Attribute: each tile
reads a halo of its neighbours) and, with groups, over `g`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ops.building import (
    check_not_negative,
    check_positive,
    checked,
    integers,
    launch_first,
    layout_channels_last,
    parameters,
    term,
)
from ops.dense import convolution_kernels as kernels
from ops.initializers import Init
from taskflow import Kernel, LogicalRegion, Operator, Window

Sizes = int | Sequence[int]
SPATIAL = {
    1: ("x", "w", "q"),
    2: ("yx", "hw", "pq"),
}  # axes of inputs, of outputs, and of outputs in the gradient


def conv1d(
    x: LogicalRegion,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    bias: bool = True,
    name: str | None = None,
    *,
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> LogicalRegion:
    """One-dimensional cross-correlation, as torch.nn.functional.conv1d; see `conv2d`.

    Args, returns and raises as there, of (batch, channels, length) and numbers.
    """
    where = checked("conv1d", name, x, ndim=(3,))
    windows = windows_over(where, x, kernel_size, stride, padding, dilation)
    rest = (out_channels, groups, bias, weight_init, bias_init)
    return _convolve(where, name or "conv1d", x, windows, *rest)


def conv2d(
    x: LogicalRegion,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    bias: bool = True,
    name: str | None = None,
    *,
    weight_init: Init | None = None,
    bias_init: Init | None = None,
) -> LogicalRegion:
    """Two-dimensional cross-correlation, as torch.nn.functional.conv2d.

    Args:
        x: (batch, channels, height, width), floating point.
        out_channels: channels of the result.
        kernel_size, stride, padding, dilation: a number, or one each for height and width; padding is with zeros.
        groups: channels are convolved in this many groups of their own.
        bias: whether to add `<name>.bias` of shape (out_channels,).
        name: of the operator; `<name>.weight` is (out_channels, channels / groups, kernel height, kernel width).
        weight_init, bias_init: first values; default torch's, uniform in ±1/sqrt(fan_in).

    Returns:
        (batch, out_channels, height', width'), of the dtype of `x`.

    Raises:
        ValueError: `x` has not four dimensions, the channels do not divide into the groups, or the windows do not fit.
    """
    where = checked("conv2d", name, x, ndim=(4,))
    windows = windows_over(where, x, kernel_size, stride, padding, dilation)
    rest = (out_channels, groups, bias, weight_init, bias_init)
    return _convolve(where, name or "conv2d", x, windows, *rest)


def _convolve(
    where: str,
    name: str,
    x: LogicalRegion,
    windows: Sequence[Window],
    out_channels: int,
    groups: int,
    bias: bool,
    weight_init: Init | None,
    bias_init: Init | None,
) -> LogicalRegion:
    check_channels(where, x, out_channels, groups)
    name = x.graph.unique_name(name)
    shape = (out_channels, x.shape[1] // groups, *(w.size for w in windows))
    weights = parameters(x, name, shape, bias, weight_init, bias_init)
    return Convolution(windows, groups).forward(name, x, *weights, backward=convolution_backward)


def check_channels(where: str, x: LogicalRegion, out_channels: int, groups: int) -> None:
    """ValueError unless the channels are positive and divide into the groups."""
    check_positive(where, out_channels=out_channels, groups=groups)
    for what, channels in (("channels", x.shape[1]), ("out_channels", out_channels)):
        if channels % groups:
            raise ValueError(
                f"{where}: {what} is {channels}, which does not divide into {groups} groups"
            )


def windows_over(
    where: str,
    x: LogicalRegion,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes = 1,
) -> tuple[Window, ...]:
    """The windows over the dimensions of `x` behind the second, for the axes `d`, `h` and `w`.

    Raises:
        ValueError: they do not fit, or there are other than a number for all dimensions or one each.
    """
    extents = x.shape[2:]
    named = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
    numbers = [integers(where, key, value, len(extents)) for key, value in named.items()]
    windows = []
    for axis, extent, size, step, edge, gap in zip(
        "dhw"[-len(extents) :], extents, *numbers, strict=True
    ):
        check_positive(where, kernel_size=size, stride=step, dilation=gap)
        check_not_negative(where, padding=edge)
        windows.append(Window(axis, size, step, edge, gap))
        span = gap * (size - 1) + 1
        if span > extent + 2 * edge:
            raise ValueError(
                f"{where}: a window of {span} points does not fit into the {extent} points of '{x.name}' "
                f"and a padding of {edge}"
            )
    return tuple(windows)


@dataclass(frozen=True)
class Convolution:
    """Inputs `x` (n, c, ...), weights (o, c, ...) and outputs `y` (n, o, ...) over one or two dimensions.

    Each of the three is a product of the other two. A convolution and its gradients are these products, and so are a
    transposed one (`x` of the output) and its gradients.

    Attributes:
        windows: of every dimension, for the axes of the outputs.
        groups: channels are convolved in so many groups of their own: `(g c)` and `(g o)`.
    """

    windows: Sequence[Window]
    groups: int = 1

    @classmethod
    def of(cls, op: Operator) -> Convolution:
        """That of an operator that is one of its products."""
        windows = [replace(w, transposed=False) for w in op.windows.values()]
        return cls(windows, op.extents.get("g", 1))

    @property
    def axes(self) -> tuple[str, str, str]:
        """Of inputs, of outputs, and of outputs where windows are put back over inputs."""
        return SPATIAL[len(self.windows)]

    @property
    def channels(self) -> tuple[str, str]:
        """The terms of the channels of inputs and of outputs."""
        return ("c", "o") if self.groups == 1 else ("(g c)", "(g o)")

    @property
    def _weight(self) -> str:
        return f"{self.channels[1]} c {term([f'^k{axis}' for axis in self.axes[1]])}"

    def forward(
        self,
        name: str,
        x: LogicalRegion,
        weight: LogicalRegion,
        *bias: LogicalRegion,
        extents: Sequence[int] = (),
        **options: Any,
    ) -> LogicalRegion:
        """y = x * weight + bias; its `extents` are needed where windows leave several possible."""
        (read, made, _) = self.axes
        image = f"n {self.channels[0]} {term(read)}"
        return self._launch(
            name,
            f"{', '.join([image, self._weight, *self.channels[1:] * len(bias)])} -> "
            f"n {self.channels[1]} {term(made)}",
            [x, weight, *bias],
            kernels.convolve,
            sizes=dict(zip(made, extents)),
            windows=dict(zip(read, self.windows, strict=True)),
            **options,
        )

    def of_x(
        self,
        name: str,
        y: LogicalRegion,
        weight: LogicalRegion,
        extents: Sequence[int],
        **options: Any,
    ) -> LogicalRegion:
        """The gradient of x from that of y; the extents of x are `extents`."""
        (_, made, back) = self.axes
        put_back = (replace(w, transposed=True) for w in self.windows)
        return self._launch(
            name,
            f"n {self.channels[1]} {term(back)}, {self._weight} -> n {self.channels[0]} {term(made)}",
            [y, weight],
            kernels.gradient_x,
            sizes=dict(zip(made, extents, strict=True)),
            windows=dict(zip(back, put_back, strict=True)),
            flops=2 * prod(y.shape[2:]) / prod(extents),
            **options,
        )

    def of_weight(self, name: str, y: LogicalRegion, x: LogicalRegion) -> LogicalRegion:
        """The gradient of the weight from that of y."""
        (c, o) = self.channels
        (read, made, _) = self.axes
        return self._launch(
            name,
            f"n {o} {term(made)}, n {c} {term(read)} -> {self._weight}",
            [y, x],
            kernels.gradient_weight,
            sizes={f"k{axis}": w.size for axis, w in zip(made, self.windows, strict=True)},
            windows=dict(zip(read, self.windows, strict=True)),
        )

    def of_bias(self, name: str, y: LogicalRegion) -> LogicalRegion:
        """The gradient of the bias from that of y."""
        return launch_first(
            name,
            f"n {self.channels[1]} {term(self.axes[1])} -> {self.channels[1]}",
            [y],
            kernel=kernels.gradient_bias,
            sizes=self.sizes,
            flops=1,
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Of the axis `g`, if there is one."""
        return {"g": self.groups} if self.groups > 1 else {}

    def _launch(
        self,
        name: str,
        pattern: str,
        inputs: Sequence[LogicalRegion],
        kernel: Kernel,
        *,
        sizes: dict[str, int],
        **options: Any,
    ) -> LogicalRegion:
        """Images are wished to lie with their channels last, sequences in any order."""
        is_image = len(self.windows) == 2
        lines = [] if is_image else [Window("h")]  # a sequence is an image of one line
        bound = kernel.bind(windows=(*lines, *self.windows), is_grouped=self.groups > 1)
        return launch_first(
            name,
            pattern,
            inputs,
            kernel=replace(bound, window=self._square()),
            sizes=self.sizes | sizes,
            layout=layout_channels_last(pattern) if is_image else None,
            **options,
        )

    def _square(self) -> int:
        """The size of square windows of stride 1 over all channels of images, else 0; see `taskflow.Kernel`."""
        sizes = {w.size if (w.stride, w.dilation) == (1, 1) else 0 for w in self.windows}
        return sizes.pop() if self.groups == 1 and len(self.windows) == 2 and len(sizes) == 1 else 0


def convolution_backward(op: Operator, gy: LogicalRegion) -> tuple[LogicalRegion, ...]:
    """The gradients of input, weight and, if there is one, bias of `Convolution.forward`."""
    x, weight, *biases = op.inputs
    convolution = Convolution.of(op)
    gx = convolution.of_x(f"{op.name}.dx", gy, weight, x.shape[2:])
    gweight = convolution.of_weight(f"{op.name}.dweight", gy, x)
    return gx, gweight, *(convolution.of_bias(f"{op.name}.dbias", gy) for _ in biases)
