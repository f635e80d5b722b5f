"""Roofline with ramps: how long a kernel of f flops and b bytes takes on a device, and the fit of that curve.

    seconds = overhead + max(f / F, b / B) + e * min(f / F, b / B) + w * (half_flops / F) + (1 - w) * (half_bytes / B)
    w       = (f / F) / (f / F + b / B)

F and B are the rates that the largest tasks reach: peak times efficiency. A task that only computes (w = 1) gets the
rate F * f / (f + half_flops), one that only moves memory B * b / (b + half_bytes): Hockney's n_half (Hockney, Jesshope,
Parallel Computers, 1981) on both sides of a roofline (Williams, Waterman, Patterson, CACM 2009). In between the ramps
are shared as the two sides' times are, so that the curve has no jump and an elementwise kernel does not pay the ramp
of a matrix product. The ramp is a time: a dtype with another F pays the same seconds (64 products of 512^3 on an H200:
12 us in float16, 16 us in float32).

Of the shorter side the share e is exposed: a kernel reads before it computes and writes behind that. For a product of
m x k and k x n this is the efficiency by its smallest dimension, since b / f is proportional to 1/m + 1/n + 1/k.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.core.columns import Array
from taskflow.machine.device import Device


def curve_seconds(
    compute: Array,
    memory: Array,
    compute_ramp: Array | float,
    memory_ramp: Array | float,
    exposed: Array | float,
) -> Array:
    """Seconds without the overhead, elementwise, from f / F, b / B, the seconds of the ramps, and e.

    Nothing to compute and nothing to move takes no time.
    """
    both = compute + memory
    share = compute / np.where(both > 0, both, 1.0)
    sides: Array = np.maximum(compute, memory) + exposed * np.minimum(compute, memory)
    return sides + np.where(both > 0, share * compute_ramp + (1.0 - share) * memory_ramp, 0.0)


def device_seconds(
    device: Device, flops: Array, size_bytes: Array, dtype: str = "float32"
) -> Array:
    """Seconds of tasks of `flops` and `size_bytes` on one device."""
    bandwidth = device.memory_efficiency * device.memory_bandwidth
    compute = flops / (device.compute_efficiency * device.rate(dtype))
    ramp = device.half_flops / (device.compute_efficiency * device.rate("float32"))
    memory_ramp = device.half_bytes / bandwidth
    return device.overhead_seconds + curve_seconds(
        compute, size_bytes / bandwidth, ramp, memory_ramp, device.exposed_share
    )


def fit_device(
    device: Device, flops: Array, size_bytes: Array, seconds: Array, rounds: int = 30
) -> Device:
    """`device` with efficiencies and half sizes fitted to measured tasks: least squares of log(predicted / measured).

    The peaks and the overhead stay, but a peak that is exceeded is raised. For given rates the curve is linear in 1/F,
    1/B and the two ramps, so each round solves for those, then decides anew which side binds each sample and what it
    weighs; the round with the smallest error wins (as in Magnani and Boyd, Convex piecewise-linear fitting, 2009).

    Args:
        device: its `overhead_seconds` is what a launch takes.
        flops, size_bytes, seconds: (samples,) float32 tasks; both small and large ones that compute and that move.

    Raises:
        ValueError: fewer than four samples, or one that took no time.
    """
    flops, size_bytes, seconds = (np.asarray(a, float) for a in (flops, size_bytes, seconds))
    if len(seconds) < 4 or not (seconds > 0).all():
        raise ValueError(f"fit: takes four samples or more that took time, not {seconds.tolist()}")
    fitted = best = _with_rates(
        device, *_highest_rates(device, flops, size_bytes, seconds), 0.0, 0.0
    )
    for _ in range(rounds):
        fitted = _with_rates(device, *_solve(fitted, flops, size_bytes, seconds))
        best = min(best, fitted, key=lambda d: fit_error(d, flops, size_bytes, seconds))
    return best


def fit_error(device: Device, flops: Array, size_bytes: Array, seconds: Array) -> float:
    """Root mean square of log(predicted / measured) over the samples."""
    logs = np.log(np.maximum(device_seconds(device, flops, size_bytes), 1e-12) / seconds)
    return float(np.sqrt(np.square(logs).mean()))


def _highest_rates(
    device: Device, flops: Array, size_bytes: Array, seconds: Array
) -> tuple[float, float]:
    """flop/s and bytes/s that some sample reached: where the fit starts."""
    spent = np.maximum(seconds - device.overhead_seconds, 0.1 * seconds)
    return float((flops / spent).max()), float((size_bytes / spent).max())


def _solve(
    device: Device, flops: Array, size_bytes: Array, seconds: Array
) -> tuple[float, float, float, float]:
    """One round: F, B and both ramps, where `device` says which side binds and how the ramps are shared."""
    compute = flops / (device.compute_efficiency * device.flops_per_second)
    memory = size_bytes / (device.memory_efficiency * device.memory_bandwidth)
    share = compute / np.maximum(compute + memory, 1e-30)
    of_compute = np.where(compute >= memory, 1.0, device.exposed_share)
    of_memory = np.where(compute >= memory, device.exposed_share, 1.0)
    columns = np.stack([of_compute * flops, of_memory * size_bytes, share, 1.0 - share], axis=1)
    # Gauss-Newton: log(p / t) is about log(p0 / t) + (p - p0) / p0; a step far from t is cut short
    before = np.maximum(device_seconds(device, flops, size_bytes), 1e-12)
    wanted = before * (1.0 - np.clip(np.log(before / seconds), -1.0, 0.7)) - device.overhead_seconds
    per_flop, per_byte, ramp, memory_ramp = _non_negative(
        columns / before[:, None], wanted / before
    )
    return (
        (1.0 / per_flop if per_flop else 0.0),
        (1.0 / per_byte if per_byte else 0.0),
        ramp,
        memory_ramp,
    )


def _with_rates(
    device: Device, rate: float, bandwidth: float, ramp: float, memory_ramp: float
) -> Device:
    """`device` with these rates and seconds of ramps; a rate of 0, of a side that no sample shows, stays as it was."""
    rate = rate or device.compute_efficiency * device.flops_per_second
    bandwidth = bandwidth or device.memory_efficiency * device.memory_bandwidth
    peak = max(device.flops_per_second, rate)
    widest = max(device.memory_bandwidth, bandwidth)
    return replace(
        device,
        flops_per_second=peak,
        memory_bandwidth=widest,
        compute_efficiency=rate / peak,
        memory_efficiency=bandwidth / widest,
        half_flops=ramp * rate,
        half_bytes=memory_ramp * bandwidth,
    )


def _non_negative(columns: Array, target: Array) -> list[float]:
    """Least squares whose negative coefficients are held at zero, the most negative first."""
    used = [k for k in range(columns.shape[1]) if columns[:, k].any()]
    coefficients = np.zeros(columns.shape[1])
    while used:
        scale = np.linalg.norm(columns[:, used], axis=0)
        solved = np.linalg.lstsq(columns[:, used] / scale, target, rcond=None)[0]
        if (solved >= 0).all():
            coefficients[used] = solved / scale
            break
        del used[int(np.argmin(solved))]
    return [float(x) for x in coefficients]
