"""A timeline as a picture: what every device computes and what it sends and receives, predicted by `simulate`.

Takes a Timeline of a real task graph; so a page's picture is what its program would run. A device has a row of what it
computes, coloured by phase, and below it one of what comes and goes, by collective. Micro-batches are numbered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from docs.draw.svg import CHARACTER, Picture
from taskflow import Kind, Timeline

LEFT, RIGHT, TOP, COMPUTE, MOVES, GAP = 76, 16, 60, 26, 14, 12
PHASES = ("forward", "backward", "weight", "update")  # as Phase numbers them
LEGEND = {
    "forward": "forward",
    "backward": "gradients of activations",
    "weight": "gradients of weights",
    "update": "update",
    "move": "between devices",
}


@dataclass(frozen=True)
class Bar:
    """What a device does from `start` to `end`, in seconds."""

    device: int
    start: float
    end: float
    fill: str
    label: str
    is_move: bool


def bars_of(timeline: Timeline) -> list[Bar]:
    """Every point, and every row that carries bytes, once for each device that takes part in it."""
    graph, found = timeline.task_graph, []
    for row in range(len(graph)):
        task, start, end = graph[row], float(timeline.start[row]), float(timeline.end[row])
        if task.kind == Kind.POINT:
            launch = graph.launches[int(graph.launch[row])]
            has_batches = int(graph.ordinal[graph.device == task.device].max(initial=0)) > 0
            label = (
                f"{max(int(graph.ordinal[row]), 0)}"
                if has_batches
                else launch.leader or launch.name
            )
            found.append(Bar(task.device, start, end, PHASES[launch.phase], label, False))
        elif task.kind == Kind.COLLECTIVE or task.source != task.device:
            ends = {task.source, task.device}
            if task.kind == Kind.COLLECTIVE:
                ends = {int(graph.instance_device[k]) for k, _, _ in graph.args(row) if k >= 0}
            label = task.collective or "copy"
            found += [Bar(device, start, end, "move", label, True) for device in sorted(ends)]
    return found


def joined(bars: Iterable[Bar], shortest: float) -> list[Bar]:
    """Bars of one look that follow each other with less than `shortest` between them, or as moves six times that."""
    last: dict[tuple[int, bool], Bar] = {}
    found: list[Bar] = []
    for bar in sorted(bars, key=lambda b: (b.device, b.is_move, b.start, b.end)):
        before = last.get(key := (bar.device, bar.is_move))
        same = before is not None and (before.fill, before.label) == (bar.fill, bar.label)
        if (
            before is not None
            and same
            and bar.start - before.end < shortest * (6 if bar.is_move else 1)
        ):
            found.remove(before)
            bar = Bar(
                *key[:1], before.start, max(before.end, bar.end), bar.fill, bar.label, bar.is_move
            )
        found.append(bar)
        last[key] = bar
    return found


def draw_timeline(
    timeline: Timeline, title: str, width: float = 860, until: float | None = None
) -> Picture:
    """A row for each device, from the start of the step to `until` (default: its end)."""
    until = until or timeline.seconds
    bars = bars_of(timeline)
    devices = sorted({bar.device for bar in bars})
    each = COMPUTE + MOVES + GAP
    height = TOP + len(devices) * each + 58
    moved = f"{timeline.bytes_moved / 1e6:.1f} MB moved, {max(timeline.peak_bytes) / 1e6:.1f} MB at most on a device"
    said = f"{len(devices)} devices, {spoken(timeline.seconds)} a step, {moved}"
    picture = Picture(width, height, title, said)
    picture.text((16, 26), title, 14, bold=True)
    picture.text((16, 44), said, 12, colour="soft")
    scale = (width - LEFT - RIGHT) / until
    for k, device in enumerate(devices):
        y = TOP + k * each
        picture.text((16, y + 17), f"device {device}", 12)
        picture.rect((LEFT, y, width - LEFT - RIGHT, COMPUTE), "plain", round_by=0)
        picture.rect((LEFT, y + COMPUTE + 1, width - LEFT - RIGHT, MOVES), "plain", round_by=0)
    for bar in joined(bars, 0.7 / scale):
        draw_bar(picture, bar, TOP + devices.index(bar.device) * each, scale, until)
    axis(picture, TOP + len(devices) * each + 4, scale, until)
    legend(picture, height - 14, {bar.fill for bar in bars})
    return picture


def draw_bar(picture: Picture, bar: Bar, y: float, scale: float, until: float) -> None:
    """One bar, with its label where there is room for it; the label always shows under the pointer."""
    start, end = min(bar.start, until), min(bar.end, until)
    x, width = LEFT + start * scale, (end - start) * scale
    if width < 0.25:
        return
    top, height, size = (y + COMPUTE + 1, MOVES, 9.5) if bar.is_move else (y, COMPUTE, 11.5)
    picture.rect(
        (x, top, max(width - 0.4, 0.4), height),
        bar.fill,
        round_by=1.5 if width > 4 else 0,
        tip=tip(bar),
    )
    if len(bar.label) * size * CHARACTER + 3 < width:
        picture.text(
            (x + width / 2, top + height / 2 + size * 0.36), bar.label, size, anchor="middle"
        )


def tip(bar: Bar) -> str:
    return (
        f"{bar.label}: {LEGEND[bar.fill]}, {spoken(bar.end - bar.start)} from {spoken(bar.start)}"
    )


def axis(picture: Picture, y: float, scale: float, until: float) -> None:
    """Time, at steps of 1, 2 or 5."""
    step = 10.0 ** np.floor(np.log10(until / 4))
    step *= next(k for k in (1, 2, 5, 10) if until / (step * k) <= 8)
    for k in range(int(until / step + 1e-9) + 1):
        x = LEFT + k * step * scale
        picture.line([(x, y - 4), (x, y)], "soft", width=1)
        anchor = "middle" if x < picture.width - 2 * RIGHT else "end"
        picture.text((x, y + 13), spoken(k * step) if k else "0", 11, anchor=anchor, colour="soft")


def legend(picture: Picture, y: float, fills: set[str]) -> None:
    x = float(LEFT)
    for fill in (each for each in LEGEND if each in fills):
        picture.rect((x, y - 10, 14, 11), fill, round_by=2)
        picture.text((x + 19, y), LEGEND[fill], 12, colour="soft")
        x += 19 + len(LEGEND[fill]) * 12 * CHARACTER + 18


def spoken(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds >= 0.1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
