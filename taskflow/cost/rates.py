"""What decides how long rows take: rates of devices, and which of its rates a device has for an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from taskflow.core.columns import Array
from taskflow.core.dtypes import computing_dtype
from taskflow.graph.kernel import Kernel


class DeviceRates(NamedTuple):
    """What decides how long rows within a device take.

    Attributes:
        overhead, bandwidth, ramp: per device, of what moves data.
        flops, compute_ramp, exposed: (rates, devices) flop/s, rates as `rate_number` gives them; per device the seconds
            of the ramp of what computes, and the exposed share; of no meaning but for analytic costs.
    """

    overhead: Array
    bandwidth: Array
    ramp: Array
    flops: Array
    compute_ramp: Array
    exposed: Array


class Rates(NamedTuple):
    """What decides how long rows take: (devices, devices) of transfers, `HostWays`, then see `DeviceRates`."""

    latency: Array
    throughput: Array
    host_latency: Array
    host_throughput: Array
    overhead: Array
    bandwidth: Array
    ramp: Array
    flops: Array
    compute_ramp: Array
    exposed: Array


class RateKind(NamedTuple):
    """What has a rate: a dtype; convolutions in float32 with a window that GPUs save flops of; kernels of some work."""

    dtype: str
    window: int = 0
    work: str = ""


# Window of a convolution -> how many times fewer products a GPU's library needs for it in float32, by the algorithm of
# Winograd on tiles of 6 x 6 points: (7 - w) outputs of w products each a side. Source: Lavin and Gray, "Fast algorithms
# for convolutional neural networks", CVPR 2016; cuDNN calls it CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED.
WINOGRAD = {w: ((7 - w) * w / 6) ** 2 for w in (3, 5)}
ATTENTION = ("attention", "attention gradients")  # work of kernels, forward and backward
_DTYPES = ("float32", "float64", "float16", "bfloat16")
KINDS = (
    *(RateKind(dtype) for dtype in _DTYPES),
    *(RateKind("float32", window) for window in WINOGRAD),
    *(RateKind(dtype, work=work) for work in ATTENTION for dtype in _DTYPES),
)
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


def rate_number(dtypes: Sequence[str], kernel: Kernel | None = None) -> int:
    """Number, for `AnalyticCosts.task_seconds`, of the rate at which an operator with arguments of these computes.

    Its dtype is that of `computing_dtype`.
    """
    dtype = computing_dtype(dtypes)
    window = kernel.window if kernel and dtype == "float32" else 0
    kind = RateKind(dtype, window, kernel.work if kernel else "")
    return _NUMBERS.get(kind, _NUMBERS[RateKind(dtype)])
