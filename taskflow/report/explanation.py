"""An explanation, and the same as tables and sentences. A table is a header and rows of text; it may be drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

from taskflow.core.text import describe_memory, printable
from taskflow.machine import MachineModel
from taskflow.report.breakdown import Breakdown, RegionMovement, Share
from taskflow.report.describe import (
    describe_bytes,
    describe_change,
    describe_seconds,
    describe_split,
)
from taskflow.report.plan import PlanExplanation, device_table, plan_headline, stage_table
from taskflow.strategy.strategy import ParallelConfig

Table = list[tuple[str, ...]]

WIDTH = 110
_MEMORY = "memory, fullest device"


@dataclass(frozen=True)
class Alternative:
    """The best of some other configurations of one operator.

    Attributes:
        config: the best; None where none is possible, see `refusal`.
        tried: how many there were.
        seconds: of a step with it (inf: none is possible).
        compute_seconds, communication_seconds: what computation and communication on the critical path grow by.
        refusal: why the last one that is not possible is not.
    """

    config: ParallelConfig | None
    tried: int
    seconds: float = math.inf
    compute_seconds: float = 0.0
    communication_seconds: float = 0.0
    refusal: str = ""


@dataclass(frozen=True)
class OperatorExplanation:
    """One entry of a strategy: an operator, with those backward and update operators that follow it.

    Attributes:
        name, config: the entry.
        label: the name that it shares with all entries that do the same (`repeats`), such as `layer0-95.fc1`.
        soap: the dimensions that it uses: letters of Sample, Operator (not all devices), Attribute, Parameter.
        split: the same in words.
        is_data_parallel: whether data parallelism has this configuration too.
        share, baseline: its part of the step, here and under data parallelism.
        movements: the regions of its making that cross between devices.
        alternative: under `is_data_parallel` the best other configuration, else that of data parallelism, for this
            operator alone; None where it was not tried.
    """

    name: str
    config: ParallelConfig
    label: str
    soap: str
    split: str
    is_data_parallel: bool
    share: Share
    baseline: Share
    movements: tuple[RegionMovement, ...]
    alternative: Alternative | None = None


@dataclass(frozen=True)
class Explanation:
    """What `explain` found; `str()` is the text.

    Attributes:
        machine: that it was judged on.
        operators: the entries of the strategy, in program order.
        step, baseline: where a step's time and bytes go, under the strategy and under data parallelism.
        plan: what is done when; None where no order was asked for and nothing is computed again.
        advice: what to do next, in a sentence; empty where no alternatives were asked for.
    """

    machine: MachineModel
    operators: tuple[OperatorExplanation, ...]
    step: Breakdown
    baseline: Breakdown
    plan: PlanExplanation | None = None
    advice: str = ""

    def __str__(self) -> str:
        return "\n\n".join(
            part if isinstance(part, str) else align(part) for part in explanation_parts(self)
        )


def explanation_parts(explanation: Explanation, most: int = 30) -> Iterator[str | Table]:
    """The texts and tables of an explanation, in order; tables and lists have at most `most` rows."""
    yield headline(explanation)
    if explanation.advice:
        yield _wrapped(explanation.advice)
    yield comparison_table(explanation)
    if explanation.plan is not None:
        yield _wrapped(plan_headline(explanation.plan))
        yield stage_table(explanation.plan)
        yield device_table(explanation.plan)
    yield operator_table(explanation, most)
    yield "\n".join(sentences(explanation, most))
    yield path_headline(explanation.step)
    yield path_table(explanation, most)


def headline(explanation: Explanation) -> str:
    """Seconds of a step, and against data parallelism."""
    step = explanation.step
    baseline = explanation.baseline
    machine = explanation.machine
    devices = f"{len(machine.devices)} device{'s' if len(machine.devices) > 1 else ''}"
    return (
        f"{describe_seconds(step.seconds)} a step on machine '{printable(machine.name)}' ({devices}), "
        f"{baseline.seconds / step.seconds:.2f}x as fast as data parallelism"
    )


def comparison_table(explanation: Explanation) -> Table:
    """The step under the strategy and under data parallelism."""
    rows: Table = [("a step", "strategy", "data parallelism", "change")]
    mine = _totals(explanation.step)
    other = _totals(explanation.baseline)
    for (name, value), base in zip(mine.items(), other.values(), strict=True):
        rows.append(
            (name, _described(name, value), _described(name, base), describe_change(base, value))
        )
    return rows + _memory_rows(explanation)


def step_table(step: Breakdown) -> Table:
    """The totals of one step."""
    return [
        ("a step", ""),
        *((name, _described(name, value)) for name, value in _totals(step).items()),
    ]


def _described(name: str, value: float) -> str:
    if name == _MEMORY:
        return describe_memory(value)
    return describe_bytes(value) if isinstance(value, int) else describe_seconds(value)


def _totals(step: Breakdown) -> Mapping[str, float]:
    return {
        "time": step.seconds,
        "compute, busiest device": step.compute_seconds,
        "communication, busiest device": step.communication_seconds,
        "exposed communication": step.exposed_seconds,
        "bytes moved": step.bytes_moved,
        _MEMORY: max(step.peak_bytes),
    }


def _memory_rows(explanation: Explanation) -> Table:
    """Devices whose memory is too small; none where all fits."""
    rows: Table = []
    pairs = zip(explanation.step.peak_bytes, explanation.baseline.peak_bytes, strict=True)
    for number, (device, needs) in enumerate(zip(explanation.machine.devices, pairs, strict=True)):
        if max(needs) > device.memory_bytes:
            name = f"device {number} has {describe_memory(device.memory_bytes)}, needs"
            rows.append((name, *map(describe_memory, needs), describe_change(needs[1], needs[0])))
    return rows


def operator_table(explanation: Explanation, most: int) -> Table:
    """The entries that take most of the step, in program order; those that do the same are a row, added up."""
    header = (
        "operator",
        "SOAP",
        "split",
        "compute",
        "(data p.)",
        "communication",
        "(data p.)",
        "moved",
        "(data p.)",
    )
    return [header, *(_operator_row(same) for same in _longest(explanation.operators, most))]


def _operator_row(same: Sequence[OperatorExplanation]) -> tuple[str, ...]:
    shares = [entry.share for entry in same]
    bases = [entry.baseline for entry in same]
    return (
        _title(same),
        same[0].soap or "-",
        describe_split(same[0].config),
        *(
            describe_seconds(sum(share.compute_seconds for share in side))
            for side in (shares, bases)
        ),
        *(
            describe_seconds(sum(share.communication_seconds for share in side))
            for side in (shares, bases)
        ),
        *(describe_bytes(sum(share.bytes_moved for share in side)) for side in (shares, bases)),
    )


def _title(same: Sequence[OperatorExplanation]) -> str:
    """E.g. `layer0-95.fc1 (96)`."""
    return same[0].label + (f" ({len(same)})" if len(same) > 1 else "")


def by_label(entries: Iterable[OperatorExplanation]) -> list[list[OperatorExplanation]]:
    """Entries that do the same, together; first those that take most of a step, and of them the longest."""
    groups: dict[str, list[OperatorExplanation]] = {}
    for entry in sorted(entries, key=lambda entry: -_seconds(entry)):
        groups.setdefault(entry.label, []).append(entry)
    return sorted(groups.values(), key=lambda same: -sum(map(_seconds, same)))


def _seconds(entry: OperatorExplanation) -> float:
    return entry.share.compute_seconds + entry.share.communication_seconds


def _longest(entries: Sequence[OperatorExplanation], most: int) -> list[list[OperatorExplanation]]:
    """Those that take most of the step, in the order of the entries."""
    position = {entry.label: k for k, entry in reversed(list(enumerate(entries)))}
    return sorted(by_label(entries)[:most], key=lambda same: position[same[0].label])


def sentences(explanation: Explanation, most: int) -> list[str]:
    """What is done with each operator and why, in lines of `WIDTH`; operators of which the same is said share one.

    Of operators that do the same, the one that takes most of a step is described.
    """
    lines: dict[str, list[str]] = {}
    for same in _longest(explanation.operators, most):
        lines.setdefault(_sentence(same[0], explanation.step.seconds), []).append(_title(same))
    return [_wrapped(f"{', '.join(names)}: {line}") for line, names in lines.items()]


def _wrapped(text: str) -> str:
    """In lines of `WIDTH`, with no break between a number and its unit."""
    glued = re.sub(r"(?<=\d) (?=([kMGT]?B|[mµ]?s)\b)", "\0", printable(text))
    return fill(glued, WIDTH, subsequent_indent="  ").replace("\0", " ")


def _sentence(entry: OperatorExplanation, seconds: float) -> str:
    kept = "as in data parallelism, " if entry.is_data_parallel else ""
    parts = [f"{kept}{entry.split}", _moves(entry.movements), _reason(entry, seconds)]
    return "; ".join(part for part in parts if part) + "."


def _moves(movements: Sequence[RegionMovement]) -> str:
    if not movements:
        return "moves nothing"
    named = [f"{m.region} ({m.collective}, {describe_bytes(m.bytes)})" for m in movements[:3]]
    rest = sum(m.bytes for m in movements[3:])
    return "moves " + ", ".join(named) + (f" and {describe_bytes(rest)} more" if rest else "")


def _reason(entry: OperatorExplanation, seconds: float) -> str:
    other = entry.alternative
    if other is None:
        return ""
    many = f"the best of {other.tried} alternatives" if other.tried > 1 else "the one alternative"
    what = many if entry.is_data_parallel else "data parallelism for it alone"
    if other.config is None:
        return f"{what} is not possible: {other.refusal}"
    ratio = other.seconds / seconds
    name = f"{what} ({describe_split(other.config)})"
    if math.isclose(ratio, 1.0, rel_tol=1e-6):
        return f"{name} makes a step just as long"
    return f"{name} makes a step {ratio:.3g}x as long{_growth(other, seconds)}{': faster' if ratio < 1 else ''}"


def _growth(other: Alternative, seconds: float) -> str:
    """What of the critical path changed by more than a millionth of a step, the larger change first."""
    terms = {"compute": other.compute_seconds, "communication": other.communication_seconds}
    changed = sorted(
        (n for n in terms if abs(terms[n]) > 1e-6 * seconds), key=lambda name: -abs(terms[name])
    )
    signed = [
        f"{name} {'+' if terms[name] > 0 else '-'}{describe_seconds(abs(terms[name]))}"
        for name in changed
    ]
    return f" (on the critical path {', '.join(signed)})" if signed else ""


def path_headline(step: Breakdown) -> str:
    """What a step waits for."""
    parts = [(role, step.path_seconds(role)) for role in ("compute", "communication", "feed")]
    return "critical path: " + ", ".join(
        f"{describe_seconds(seconds)} {role} ({seconds / step.seconds:.0%})"
        for role, seconds in parts
        if seconds
    )


def path_table(explanation: Explanation, most: int) -> Table:
    """The operators that the critical path spends most time on, the longest first; those that do the same added up."""
    seconds = _path_seconds(explanation)
    rows: Table = [("critical path", "compute", "communication", "feed", "of the step")]
    longest = sorted(seconds, key=lambda name: -sum(seconds[name].values()))
    for name in longest[:most]:
        times = [seconds[name].get(role, 0.0) for role in ("compute", "communication", "feed")]
        share = sum(times) / explanation.step.seconds
        rows.append((name, *map(describe_seconds, times), f"{share:.1%}"))
    return rows


def _path_seconds(explanation: Explanation) -> dict[str, dict[str, float]]:
    """Label of operators -> what the critical path does there -> its seconds."""
    labels = {entry.name: entry.label for entry in explanation.operators}
    seconds: dict[str, dict[str, float]] = {}
    for part in explanation.step.path:
        roles = seconds.setdefault(labels.get(part.group) or part.group or "(fed)", {})
        roles[part.role] = roles.get(part.role, 0.0) + part.seconds
    return seconds


def align(table: Table) -> str:
    """The table with columns of equal width, a line for each row; names in it may hold anything."""
    table = [tuple(map(printable, row)) for row in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)
