"""The points of a configuration as arrays, compiled by numba; see `taskflow.partition` for what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.compiling import numba

PLACE, BOX, COLOUR, PARTIAL, SPAN, RECORD = range(6)  # columns of a store that fill up, by their place in `length`
FITS, FAULT = -2, -1


@numba.njit(cache=True)
def place_points(axis: Any, parts: Any, devices: Any, kept: Any) -> tuple[Any, Any, Any]:
    """Points by colour, then by device: `(device, colour, part of every kept axis)` of each point.

    The points of `devices` are row-major over `parts`. Axes that are not kept (`axis[j]` < 0) make replicas: of each
    colour there is one point per device, however often the device is named.
    """
    colours = 1
    for j in range(len(parts)):
        if axis[j] >= 0:
            colours *= parts[j]
    placed = np.full((colours, len(devices) // max(colours, 1)), -1, np.int64)
    count = np.zeros(colours, np.int64)
    for k in range(len(devices)):
        rest, colour, weight = k, 0, 1
        for j in range(len(parts) - 1, -1, -1):
            part = rest % parts[j]
            rest //= parts[j]
            if axis[j] >= 0:
                colour += weight * part
                weight *= parts[j]
        is_new = True
        for i in range(count[colour]):
            is_new = is_new and placed[colour, i] != devices[k]
        if is_new:
            placed[colour, count[colour]] = devices[k]
            count[colour] += 1
    total = count.sum()
    device, colour_of, part_of = np.empty(total, np.int64), np.empty(total, np.int64), np.empty((total, kept), np.int64)
    n = 0
    for colour in range(colours):
        for i in range(count[colour]):
            device[n], colour_of[n], rest = placed[colour, i], colour, colour
            column = kept - 1
            for j in range(len(parts) - 1, -1, -1):
                if axis[j] >= 0:
                    part_of[n, column] = rest % parts[j]
                    rest //= parts[j]
                    column -= 1
            n += 1
    return device, colour_of, part_of


@numba.njit(cache=True)
def dim_interval(d: int, point: Any, extents: Any, dim_ptr: Any, dim_axis: Any, dim_extent: Any, window: Any) -> Any:
    """`(lo, hi, axis at fault or -1)` of dimension `d` for the intervals `point` of all axes."""
    if window[d, 0]:
        lo, hi = point[dim_axis[dim_ptr[d]]]
        if hi <= lo:
            return 0, 0, -1
        size, stride, padding, dilation = window[d, 1], window[d, 2], window[d, 3], window[d, 4]
        reach = (size - 1) * dilation
        if window[d, 5]:
            first, last = -((reach - lo - padding) // stride), (hi - 1 + padding) // stride
        else:
            first, last = lo * stride - padding, (hi - 1) * stride - padding + reach
        first, last = max(first, 0), min(last + 1, dim_extent[d])
        return (first, last, -1) if first < last else (0, 0, -1)
    low, high, is_spread = 0, 1, False
    for k in range(dim_ptr[d], dim_ptr[d + 1]):
        n = extents[dim_axis[k]]
        a, b = point[dim_axis[k]]
        if b <= a:
            return 0, 0, -1
        if is_spread:
            if b - a < n:
                return 0, 0, dim_axis[k]
            low, high = low * n, high * n
        else:
            low, high = low * n + a, low * n + b
        is_spread = is_spread or b - a > 1
    return low, high, -1


@numba.njit(cache=True)
def make_points(
    axis: Any,
    parts: Any,
    bounds: Any,
    devices: Any,
    extents: Any,
    dim_ptr: Any,
    dim_axis: Any,
    dim_extent: Any,
    window: Any,
    reduced: Any,
) -> tuple[Any, Any, Any, Any, Any, int]:
    """The points of an operator.

    Args:
        axis, parts: per axis of the configuration, the operator's axis (-1: makes replicas) and its number of parts.
        bounds: (axes of the configuration, parts + 1) borders of the parts.
        devices: of every point of the configuration, row-major.
        others: see `taskflow.pattern.PatternTable`.

    Returns:
        devices (n,), intervals (n, axes, 2), boxes (n, dimensions of all terms, 2), colours (n, outputs), number of
        colours per output, and the point at fault (a group that is not contiguous) or -1.
    """
    kept = 0
    for j in range(len(axis)):
        kept += axis[j] >= 0
    device, _, part_of = place_points(axis, parts, devices, kept)
    count, axes, dims, outputs = len(device), len(extents), len(dim_extent), reduced.shape[0]
    intervals, boxes = np.empty((count, axes, 2), np.int64), np.empty((count, dims, 2), np.int64)
    colours, fault, n = np.zeros((count, outputs), np.int64), -1, 0
    for p in range(count):
        for a in range(axes):
            intervals[n, a, 0], intervals[n, a, 1] = 0, extents[a]
        is_empty, column = False, 0
        for j in range(len(axis)):
            if axis[j] >= 0:
                low, high = bounds[j, part_of[p, column]], bounds[j, part_of[p, column] + 1]
                intervals[n, axis[j], 0], intervals[n, axis[j], 1] = low, high
                is_empty = is_empty or high <= low
                for k in range(outputs):
                    if reduced[k, axis[j]]:
                        colours[n, k] = colours[n, k] * parts[j] + part_of[p, column]
                column += 1
        if is_empty:
            colours[n] = 0
            continue
        for d in range(dims):
            low, high, wrong = dim_interval(d, intervals[n], extents, dim_ptr, dim_axis, dim_extent, window)
            boxes[n, d, 0], boxes[n, d, 1] = low, high
            if wrong >= 0 and fault < 0:
                fault = n
        device[n] = device[p]
        n += 1
    return device[:n], intervals[:n], boxes[:n], colours[:n], number_colours(colours[:n]), fault


@numba.njit(cache=True)
def number_colours(colours: Any) -> Any:
    """Number the colours of every output from 0 in order of appearance, in place; how many there are per output."""
    found = np.zeros(colours.shape[1], np.int64)
    for k in range(colours.shape[1]):
        number = np.full(1 if not len(colours) else colours[:, k].max() + 1, -1, np.int64)
        for p in range(len(colours)):
            if number[colours[p, k]] < 0:
                number[colours[p, k]] = found[k]
                found[k] += 1
            colours[p, k] = number[colours[p, k]]
    return found


@numba.njit(cache=True)
def add_points(
    axis: Any,
    parts: Any,
    bounds: Any,
    devices: Any,
    extents: Any,
    dim_ptr: Any,
    dim_axis: Any,
    dim_extent: Any,
    window: Any,
    reduced: Any,
    term: int,
    term_ptr: Any,
    itemsize: Any,
    flops: float,
    length: Any,
    place: Any,
    flops_column: Any,
    bytes_column: Any,
    box: Any,
    colour: Any,
    partial: Any,
    span: Any,
    record: Any,
) -> int:
    """Append the points of an operator to a store: FITS; else nothing is appended.

    Args:
        axis ... reduced: see `make_points`.
        term: where the terms of operators of this kind begin; see `pointstore.Places`.
        term_ptr, itemsize: first dimension of every argument, and their number; bytes of an element of every argument.
        flops: of a point of all axes.
        length ... record: of the store; see `pointstore.Places`.

    Returns:
        FITS, the column that has too little room, or FAULT: a group that is not contiguous.
    """
    where, spans, boxes, colours, found, fault = make_points(
        axis, parts, bounds, devices, extents, dim_ptr, dim_axis, dim_extent, window, reduced
    )
    if fault >= 0:
        return FAULT
    count, axes, dims, outputs = len(where), len(extents), len(dim_extent), len(found)
    more = (count, 2 * count * dims, count * outputs, outputs, 2 * count * axes, 1)
    room = (len(place), len(box), len(colour), len(partial), len(span), len(record))
    for column in range(6):
        if length[column] + more[column] > room[column]:
            return column
    first, at = record[length[RECORD]], 0
    first[0], first[1], first[2], first[3] = length[PLACE], count, length[BOX], dims
    first[4], first[5], first[6], first[7] = length[COLOUR], outputs, length[PARTIAL], term
    first[8], first[9] = length[SPAN], axes
    for p in range(count):
        at = length[PLACE] + p
        place[at], flops_column[at], bytes_column[at] = where[p], flops * volume(spans[p]), 0
        for k in range(len(itemsize)):
            size = 1
            for d in range(term_ptr[k], term_ptr[k + 1]):
                size *= max(boxes[p, d, 1] - boxes[p, d, 0], 0)
            bytes_column[at] += size * itemsize[k]
        for d in range(dims):
            i = length[BOX] + 2 * (p * dims + d)
            box[i], box[i + 1] = boxes[p, d]
        for k in range(outputs):
            colour[length[COLOUR] + p * outputs + k] = colours[p, k]
        for a in range(axes):
            i = length[SPAN] + 2 * (p * axes + a)
            span[i], span[i + 1] = spans[p, a]
    for k in range(outputs):
        partial[length[PARTIAL] + k] = found[k] > 1
    for column in range(6):
        length[column] += more[column]
    return FITS


@numba.njit(cache=True)
def volume(span: Any) -> float:
    """Number of points of a box, as a float."""
    found = 1.0
    for a in range(len(span)):
        found *= span[a, 1] - span[a, 0]
    return found
