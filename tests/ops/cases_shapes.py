"""Cases of what moves elements: padding, turning, looking up, repeating; and convolution of sequences. See `cases`."""

from collections.abc import Sequence

import numpy as np

import ops
from taskflow import LogicalRegion

from .cases import Array, Values, case, spread

case("pad", lambda x: ops.pad(x, (1, 2)), lambda v: np.pad(v["x"], [(0, 0), (1, 2)]), {"x": (5, 3)})
case(
    "pad of two dims",
    lambda x: ops.pad(x, (0, 3, 2, 1), 0.5),
    lambda v: np.pad(v["x"], [(0, 0), (2, 1), (0, 3)], constant_values=0.5),
    {"x": (3, 4, 2)},
)
case("flip", lambda x: ops.flip(x, 1), lambda v: v["x"][:, ::-1], {"x": (4, 5)})
case(
    "flip of two dims",
    lambda x: ops.flip(x, (0, -1)),
    lambda v: v["x"][::-1, :, ::-1],
    {"x": (4, 2, 3)},
)
for dim, shape in ((0, (7, 5, 2)), (1, (4, 3, 2)), (-1, (4, 5, 3))):

    def pick(x: LogicalRegion, i: LogicalRegion, dim: int = dim) -> LogicalRegion:
        return ops.gather(x, dim, i)

    def picked(v: Values, dim: int = dim) -> Array:
        return np.take_along_axis(v["x"], v["i"], dim)

    x_shape = [4 if k == dim % 3 else n for k, n in enumerate(shape)]
    case(f"gather of dim {dim}", pick, picked, {"x": x_shape, "i": shape}, ["i"], high=4)
case(
    "expand",
    lambda x: ops.expand(x, (3, 5, 4)),
    lambda v: np.broadcast_to(v["x"], (3, 5, 4)),
    {"x": (5, 1)},
)
case(
    "expand of a dim",
    lambda x: ops.expand(x, (-1, 3)),
    lambda v: np.broadcast_to(v["x"], (5, 3)),
    {"x": (5, 1)},
)
case("squeeze", ops.squeeze, lambda v: v["x"].squeeze(), {"x": (1, 5, 1, 3)})
case(
    "squeeze of one dim",
    lambda x: ops.squeeze(x, -1),
    lambda v: v["x"][..., 0],
    {"x": (5, 1, 3, 1)},
)
case("unsqueeze", lambda x: ops.unsqueeze(x, -2), lambda v: v["x"][:, None], {"x": (5, 3)})
case(
    "cast",
    lambda x: ops.cast(ops.cast(x, "int32"), "float64"),
    lambda v: np.trunc(v["x"]),
    {"x": (5, 4)},
    is_differentiable=False,
)
case(
    "cast of a condition",
    lambda x: ops.cast(ops.greater(x, 0), "float64"),
    lambda v: v["x"] > 0.0,
    {"x": (5, 4)},
    is_differentiable=False,
)


# -- windows -----------------------------------------------------------------------------------------------------------


def convolution(
    name: str,
    shape: Sequence[int],
    out_channels: int,
    size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
) -> None:
    def operator(x: LogicalRegion) -> LogicalRegion:
        return ops.conv1d(x, out_channels, size, stride, padding, dilation, groups, bias)

    def reference(v: Values) -> Array:
        windows = spread(v["x"][:, :, None], (1, stride), (0, padding), (1, dilation), (1, size))[
            :, :, 0, :, 0
        ]
        parts = zip(
            np.split(windows, groups, axis=1), np.split(v["conv1d.weight"], groups), strict=True
        )
        y = np.concatenate([np.einsum("ncwj,ocj->now", x, w) for x, w in parts], axis=1)
        return y + v["conv1d.bias"][:, None] if bias else y

    case(name, operator, reference, {"x": shape})


convolution("conv1d", (3, 2, 7), 5, 3)
convolution("conv1d with stride and padding", (2, 3, 9), 4, 3, stride=2, padding=1, bias=False)
convolution("conv1d with dilation in groups", (2, 6, 9), 9, 3, padding=2, dilation=2, groups=3)
convolution("conv1d of one point", (2, 3, 5), 4, 1)


def in_bins(v: Values, height: int, width: int, reduce: str) -> Array:
    x = v["x"]
    y = np.empty((*x.shape[:2], height, width))
    for i, j in np.ndindex(height, width):
        rows = slice(i * x.shape[2] // height, -(-(i + 1) * x.shape[2] // height))
        columns = slice(j * x.shape[3] // width, -(-(j + 1) * x.shape[3] // width))
        y[:, :, i, j] = getattr(x[:, :, rows, columns], reduce)((2, 3))
    return y


for operator, reduce in ((ops.adaptive_avg_pool2d, "mean"), (ops.adaptive_max_pool2d, "max")):
    for shape, size in (((2, 3, 7, 5), (3, 2)), ((1, 2, 4, 5), (5, 4))):

        def pool(
            x: LogicalRegion, operator: object = operator, size: Sequence[int] = size
        ) -> LogicalRegion:
            return operator(x, size)  # type: ignore[operator]

        def pooled(v: Values, size: Sequence[int] = size, reduce: str = reduce) -> Array:
            return in_bins(v, *size, reduce)

        case(f"{operator.__name__} of {shape[2:]} to {size}", pool, pooled, {"x": shape})
