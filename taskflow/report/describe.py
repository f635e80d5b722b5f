"""Words for people: what a configuration does in SOAP's terms, names of operators, times, sizes and comparisons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from taskflow.core.text import describe_memory, list_numbers
from taskflow.graph.graph import Operator
from taskflow.schedule.orders import order_name
from taskflow.schedule.plan import Plan
from taskflow.strategy.strategy import REPLICAS, Degree, ParallelConfig, parts

_SOAP = {
    "sample": "Sample",
    "parameter": "Parameter",
    "attribute": "Attribute",
    "reduction": "Attribute",
}


def soap_letters(config: ParallelConfig, kinds: Mapping[str, str], devices: int) -> str:
    """Which dimensions of SOAP a configuration uses, e.g. `SP`; O: some devices have no part in the operator.

    Args:
        config: of one operator.
        kinds: axis -> kind, from `axis_kinds`.
        devices: of the machine.
    """
    used = {
        _SOAP[kinds[axis]][0]
        for axis, degree in config.degrees
        if axis != REPLICAS and parts(degree) > 1
    }
    if len(set(config.devices)) < devices:
        used.add("O")
    return "".join(letter for letter in "SOAP" if letter in used)


def describe_config(op: Operator, config: ParallelConfig, kinds: Mapping[str, str]) -> str:
    """E.g. `Sample axis b in 2, Parameter axis i in 2 (partial sums) on devices 0-3`."""
    split = [
        _describe_axis(op, axis, degree, kinds)
        for axis, degree in config.degrees
        if parts(degree) > 1
    ]
    made = f"made of {' and '.join(op.members)}, " if op.members else ""
    return f"{made}{', '.join(split) or 'whole'} on {describe_devices(config.devices)}"


def _describe_axis(op: Operator, axis: str, degree: Degree, kinds: Mapping[str, str]) -> str:
    if axis == REPLICAS:
        return f"{parts(degree)} replicas"
    shares = "" if isinstance(degree, int) else f" ({'/'.join(f'{share:.3g}' for share in degree)})"
    is_summed = any(axis in op.bound.reduced_axes(k) for k in range(len(op.outputs)))
    return f"{_SOAP[kinds[axis]]} axis {axis} in {parts(degree)}{shares}{' (partial sums)' if is_summed else ''}"


def describe_split(config: ParallelConfig) -> str:
    """A configuration in few letters, e.g. `b:4 on 0-3`."""
    split = [f"{axis}:{parts(degree)}" for axis, degree in config.degrees if parts(degree) > 1]
    return f"{' '.join(split) or 'whole'} on {list_numbers(sorted(set(config.devices)))}"


def describe_plan(plan: Plan) -> str:
    """What a plan says beside its strategy, e.g. `4 micro-batches; schedule gpipe; computed again: fc1, fc2`."""
    parts = [f"{plan.parts} micro-batches"] if plan.parts > 1 else []
    parts += [f"schedule {order_name(plan.schedule)}"] if plan.schedule is not None else []
    names = plan.recomputed if len(plan.recomputed) <= 6 else [f"{len(plan.recomputed)} operators"]
    parts += [f"computed again: {', '.join(names)}"] if names else []
    away = len(plan.offloaded)
    parts += [f"in the memory of hosts: {away} regions"] if away else []
    parts += [f"homes of {len(plan.homes)} parameters"] if plan.homes else []
    parts += [f"attention in {plan.ring} parts around a ring"] if plan.ring > 1 else []
    size = plan.bucket_bytes
    parts += [f"collectives in buckets of {describe_memory(size)}"] if size else []
    return "; ".join(
        parts + [f"{name} by {algorithm}" for name, algorithm in plan.collectives.items()]
    )


def describe_devices(devices: Sequence[int]) -> str:
    """`device 2`, `devices 0-3`, or, where devices hold several points, `devices 0,2 (1 to 2 points each)`."""
    used = sorted(set(devices))
    counts = sorted(devices.count(device) for device in used)
    per_device = "" if counts[-1] == 1 else f" ({counts[0]} points each)"
    if counts[0] != counts[-1]:
        per_device = f" ({counts[0]} to {counts[-1]} points each)"
    return f"device {used[0]}" if len(used) == 1 else f"devices {list_numbers(used)}{per_device}"


def describe_seconds(seconds: float) -> str:
    """Three digits and a unit, e.g. `1.25 ms`; `0` for nothing."""
    return "0" if not seconds else _scaled(seconds * 1e6, ("µs", "ms", "s"))


def describe_bytes(count: float) -> str:
    """Three digits and a decimal unit, e.g. `1.25 MB`; `0` for nothing."""
    return (
        "0"
        if not count
        else f"{count:.0f} B"
        if abs(count) < 1000
        else _scaled(count / 1e3, ("kB", "MB", "GB", "TB"))
    )


def describe_change(old: float, new: float) -> str:
    """`-25 %`, `+300 %`, `the same`."""
    if old == new:
        return "the same"
    return f"{(new / old - 1) * 100:+.3g} %" if old else "new"


def _scaled(value: float, units: Sequence[str]) -> str:
    unit = 0
    while abs(value) >= 999.5 and unit + 1 < len(units):
        value = value / 1000
        unit = unit + 1
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {units[unit]}"


def label_repeats(entries: Iterable[tuple[Operator, ParallelConfig]]) -> dict[str, str]:
    """Operator name -> the label that it shares with all that do the same; its own name where none does.

    Operators do the same where their names differ in numbers alone, their patterns and extents agree, and they are
    split alike on the same devices: `layer0.fc1`, `layer1.fc1`, ... become `layer0-95.fc1`, a line of a table.
    """
    groups: dict[object, list[str]] = {}
    for op, config in entries:
        key = tuple(re.split(r"\d+", op.name)), op.pattern, tuple(op.extents.items()), config
        groups.setdefault(key, []).append(op.name)
    labels: dict[str, str] = {}
    for names in groups.values():
        label = _label(names)
        labels |= {
            name: name if label is None or label in labels.values() else label for name in names
        }
    return labels


def _label(names: Sequence[str]) -> str | None:
    """The words of the names with the numbers between them; None where not all combinations are there."""
    words = re.split(r"\d+", names[0])
    numbers = [
        sorted(set(map(int, column)))
        for column in zip(*(re.findall(r"\d+", n) for n in names), strict=True)
    ]
    if len(names) == 1 or prod(map(len, numbers)) != len(names):
        return names[0] if len(names) == 1 else None
    return "".join(
        text for pair in zip(words, [*map(list_numbers, numbers), ""], strict=True) for text in pair
    )
