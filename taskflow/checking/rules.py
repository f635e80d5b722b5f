"""Rules: what a plan is held to, and the one line that says where it breaks one."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, record
from taskflow.core.compiling import leaf
from taskflow.core.geometry import Rect
from taskflow.graph.graph import LogicalRegion
from taskflow.tasks.task_graph import COLLECTIVES, Kind, TaskGraph


class PlanError(ValueError):
    """A task graph does not compute what its graph says, or not in every order that it allows."""


class Rule(IntEnum):
    """The rules; NONE: all are kept."""

    NONE = 0
    ORDER = 1
    STREAM = 2
    OPERATOR = 3
    REGION = 4
    ARGUMENTS = 5
    PRIVILEGE = 6
    DEVICE = 7
    SPAN = 8
    BOX = 9
    INSTANCE = 10
    UNWRITTEN = 11
    VERSION = 12
    PARTIAL = 13
    COMPLETE = 14
    MIXED = 15
    TWICE = 16
    RACE = 17
    ALIVE = 18
    REUSE = 19


DONE, BROKEN, NO_ROOM = range(
    3
)  # how a pass ends: all is right; a rule is broken; there is no room for pieces

FAULT = record("rule", "row", "arg", "found", "wanted", "volume", "whole", "other", "has_box")


class PlanFault(NamedTuple):
    """Where compiled code says what is wrong.

    Attributes:
        record: one `FAULT`; -1 where a field says nothing. What stands at the end of a step counts as rows, too.
        box: (2, dimensions), that of the argument unless `has_box`.
    """

    record: Array
    box: Array


def make_fault(dimensions: int) -> PlanFault:
    """A fault that says nothing."""
    fields = np.full(len(FAULT.names or ()), -1, np.int64).view(FAULT)
    return PlanFault(fields, np.zeros((2, dimensions), np.int64))


@leaf
def refuse(f: PlanFault, rule: int, row: int, arg: int) -> bool:
    """Note which rule is broken, and where; False."""
    f.record[0].rule = rule
    f.record[0].row = row
    f.record[0].arg = arg
    return False


# -- texts -------------------------------------------------------------------------------------------------------------

WHAT = {
    Rule.SPAN: "its intervals lie outside of the axes of the operator",
    Rule.ARGUMENTS: "it has other arguments than {kind} has",
    Rule.PRIVILEGE: "argument {arg} has a privilege that does not fit what {kind} does with it",
    Rule.REGION: "argument {arg} is an instance of another region, '{region}'",
    Rule.DEVICE: "argument {arg} lies on device {device}, where the row does not look for it",
    Rule.BOX: "argument {arg} is not the box that {maker}",
    Rule.INSTANCE: "argument {arg} lies outside of its instance, which holds {held}",
    Rule.UNWRITTEN: "no row before it wrote all of that on device {device}",
    Rule.VERSION: "device {device} holds version {found} there, not version {wanted}",
    Rule.PARTIAL: "device {device} holds a partial result there, {volume} of {whole} parts",
    Rule.COMPLETE: "it adds a value on device {device} that is complete already",
    Rule.MIXED: "it adds up different versions",
    Rule.TWICE: "a part is added twice: {volume} of {whole} parts, and some are missing",
    Rule.RACE: "nothing makes it wait for {other}, which uses the same memory of device {device}",
    Rule.ALIVE: "instance {instance} of device {device} is used while its bytes are those of another",
    Rule.REUSE: "nothing makes it wait for {other}, whose bytes on device {device} it takes over",
}


class Ends(NamedTuple):
    """What must stand at the end of a step: per place its text, and columns of instances and boxes."""

    texts: list[str]
    instance: Array
    box: Array


class _Place(NamedTuple):
    """Where a rule is broken.

    Attributes:
        task: a row, or an end, for people.
        kind: of the row, empty for an end.
        arg: its argument, from 0.
        region: that of the argument.
        instance: -1 for none.
        box: (2, dimensions), of the argument.
    """

    task: str
    kind: str
    arg: int
    region: LogicalRegion
    instance: int
    box: Array


def explain_fault(graph: TaskGraph, fault: PlanFault, versions: Array, ends: Ends) -> PlanError:
    """The error for a fault, rule, task, region and box in one line; `versions` are records of region and number."""
    f = fault.record[0]
    place = (
        _place_of_row(graph, f.row, f.arg)
        if f.row < len(graph)
        else _place_at_end(graph, f.row, ends)
    )
    text = WHAT[Rule(f.rule)].format(
        kind=f"a {place.kind}",
        maker="the pattern gives" if place.kind == "point" else "its other arguments are",
        arg=place.arg,
        **_instance_texts(graph, place.instance),
        found=_version_text(graph, versions, f.found, place.region.name),
        wanted=_version_text(graph, versions, f.wanted, place.region.name),
        volume=f.volume,
        whole=f.whole,
        other=task_text(graph, f.other) if f.other >= 0 else "",
    )
    low, high = (fault.box if f.has_box > 0 else place.box)[:, : place.region.ndim].tolist()
    return PlanError(
        f"plan, rule {Rule(f.rule).name.lower()}: {place.task}: region '{place.region.name}' "
        f"{Rect(tuple(low), tuple(high))}: {text}"
    )


def _place_at_end(graph: TaskGraph, row: int, ends: Ends) -> _Place:
    """The place of a row behind the last one."""
    end = row - len(graph)
    instance = int(ends.instance[end])
    region = graph.regions[int(graph.instance_region[instance])]
    return _Place(ends.texts[end], "", -1, region, instance, ends.box[end])


def _place_of_row(graph: TaskGraph, row: int, argument: int) -> _Place:
    """The place of an argument of a row, which may have fewer."""
    arg = argument - int(graph.arg_ptr[row])
    launch = int(graph.launch[row])
    args = graph.launches[launch].args if launch >= 0 else ()
    region = args[min(arg, len(args) - 1)] if args else int(graph.region[row])
    has_argument = argument < graph.arg_ptr[row + 1]
    return _Place(
        task_text(graph, row),
        Kind(int(graph.kind[row])).name.lower(),
        arg,
        graph.regions[region],
        int(graph.arg_instance[argument]) if has_argument else -1,
        graph.arg_box[argument] if has_argument else np.zeros(graph.arg_box.shape[1:], np.int64),
    )


def _instance_texts(graph: TaskGraph, instance: int) -> dict[str, object]:
    if instance < 0:
        return dict.fromkeys(("instance", "region", "held", "device"), "")
    return {
        "instance": instance,
        "region": graph.regions[int(graph.instance_region[instance])].name,
        "held": graph.instance_rect(instance),
        "device": int(graph.instance_device[instance]),
    }


def task_text(graph: TaskGraph, row: int) -> str:
    """A row for people: number, kind, name, point and device; of rows whose arguments are wrong, too."""
    source = int(graph.source[row])
    device = int(graph.device[row])
    place = f"{source}->{device}" if source != device else f"@{device}"
    kind = Kind(int(graph.kind[row]))
    what = COLLECTIVES[int(graph.collective[row])] if kind != Kind.POINT else ""
    return (
        f"row {row}, {what or kind.name.lower()} {graph.name(row)}[{int(graph.point[row])}] {place}"
    )


def _version_text(graph: TaskGraph, versions: Array, version: int, region: str) -> str:
    if version < 0:
        return ""
    name = graph.regions[int(versions[version]["region"])].name
    return f"{versions[version]['number']}" + (f" of '{name}'" if name != region else "")
