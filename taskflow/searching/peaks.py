"""Peaks of memory of a proposal, compiled by numba: a quick look, see `Judge`."""

from __future__ import annotations

from taskflow.core.columns import Array
from taskflow.core.compiling import leaf, njit


@njit
def alive_peak(
    change: Array,
    alive: Array,
    regions: Array,
    old: Array,
    new: Array,
    sizes: Array,
    peak: Array,
    affected: Array,
    keeps: bool,
) -> None:
    """The most bytes that are alive on each device at any time, if all instances of a region live as long as it does.

    Args:
        change: (devices, operators + 1) bytes that become alive before each operator, less those that die before it.
        alive: see `Layout`.
        regions, old, new: those that change, and the fragments of all regions in the current and the proposed strategy.
        sizes: (fragments, devices) bytes.
        peak: of the devices before the change; gets those after it.
        affected: (devices,) memory for whether a device has other sizes.
        keeps: leave `change` changed.
    """
    affected[:] = False
    change_sizes(change, alive, regions, old, new, sizes, affected, 1)
    for device in range(len(peak)):
        if affected[device]:
            now, most = 0, 0
            for op in range(change.shape[1]):
                now += change[device, op]
                most = max(most, now)
            peak[device] = most
    if not keeps:
        change_sizes(change, alive, regions, old, new, sizes, affected, -1)


@leaf
def change_sizes(
    change: Array, alive: Array, regions: Array, old: Array, new: Array, sizes: Array, affected: Array, sign: int
) -> None:
    """Exchange the fragments of some regions in `change`, or take that back."""
    for r in regions:
        for device in range(len(affected)):
            more = sizes[new[r], device] - (sizes[old[r], device] if old[r] >= 0 else 0)
            if more != 0:
                affected[device] = True
                change[device, alive[r].first] += sign * more
                change[device, alive[r].last + 1] -= sign * more
