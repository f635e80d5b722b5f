"""Collectives as tables of their steps and of what these touch, those of equal ones made once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from taskflow.checking.arguments import STEP, StepTables
from taskflow.checking.pieces import box_table
from taskflow.checking.races import READS, TOUCH, WRITES, WRITES_ALL, Touches
from taskflow.checking.rules import PlanError, task_text
from taskflow.core.columns import Array, pointers, spread
from taskflow.core.geometry import Rect, subtract_all
from taskflow.tasks.exchange import ExchangeStep
from taskflow.tasks.task_graph import Kind, Privilege, TaskGraph

Touch = tuple[int, Rect, int]  # number of an argument, box, access


@dataclass(frozen=True)
class Collectives:
    """The collectives of a task graph.

    Attributes:
        steps: tables of steps.
        table: per row the number of its table, -1 where it is no collective.
        touches: per table what its steps touch.
    """

    steps: StepTables
    table: Array
    touches: list[list[Touch]]


def read_collectives(graph: TaskGraph) -> Collectives:
    """The steps of all collectives.

    Raises:
        PlanError: the arguments of a collective are none that its algorithm takes.
    """
    table = np.full(len(graph), -1, np.int64)
    numbers: dict[tuple[object, ...], int] = {}
    step_lists = list[list[ExchangeStep]]()
    touches = list[list[Touch]]()
    for row in np.flatnonzero(graph.kind == Kind.COLLECTIVE).tolist():
        key = _key(graph, row)
        if key not in numbers:
            numbers[key] = len(step_lists)
            step_lists.append(_steps(graph, row))
            touches.append(_touches(step_lists[-1], graph.args(row)))
        table[row] = numbers[key]
    return Collectives(_tables(step_lists, graph.arg_box), table, touches)


def _key(graph: TaskGraph, row: int) -> tuple[object, ...]:
    """What the steps of a collective depend on."""
    args = slice(int(graph.arg_ptr[row]), int(graph.arg_ptr[row + 1]))
    instances = graph.arg_instance[args]
    if len(instances) == 0 or instances.min() < 0:
        raise PlanError(
            f"plan, rule arguments: {task_text(graph, row)}: it has an argument without an instance"
        )
    return (
        int(graph.collective[row]),
        graph.regions[int(graph.region[row])].ndim,
        (instances - instances[0]).tobytes(),  # which of them are one
        graph.instance_device[instances].tobytes(),
        graph.instance_partial[instances].tobytes(),
        graph.instance_box[instances].tobytes(),
        graph.arg_privilege[args].tobytes(),
        graph.arg_box[args].tobytes(),
    )


def _steps(task_graph: TaskGraph, row: int) -> list[ExchangeStep]:
    try:
        with np.errstate(divide="raise"):  # by the scratch memories of a device that has none
            return task_graph.exchange(row).steps()
    except (ArithmeticError, LookupError, StopIteration, RuntimeError, ValueError) as error:
        name = task_graph.name(row)
        raise PlanError(
            f"plan, rule arguments: {task_text(task_graph, row)}: region '{name}' {task_graph.args(row)[0][1]}: its "
            f"arguments are none of the algorithm's ({type(error).__name__})"
        ) from error


def _tables(step_lists: list[list[ExchangeStep]], like: Array) -> StepTables:
    steps = [*chain.from_iterable(step_lists)]
    end = pointers([len(step.parts) for step in steps])
    table = np.zeros(len(steps), STEP)
    table["target"] = [step.target for step in steps]
    table["first"] = end[:-1]
    table["end"] = end[1:]
    table["offset"] = [step.offset for step in steps]
    return StepTables(
        pointers([len(of_one) for of_one in step_lists]),
        table,
        box_table([step.box for step in steps], like),
        np.array([part for step in steps for part in step.parts], np.int64),
    )


def _touches(
    steps: list[ExchangeStep], args: tuple[tuple[int, Rect, Privilege], ...]
) -> list[Touch]:
    """What steps read and write: of one instance under its first argument, boxes that make up a whole argument as one.

    What does not lie in its argument passes through scratch memory, of which it takes all.
    """
    written = _by_argument(args, ((step.target, step.box) for step in steps))
    read = _by_argument(args, ((part, step.box) for step in steps for part in step.parts))
    return [
        *(touch for k in written for touch in _writes(k, written[k], args)),
        *((k, box, READS) for k in read for box in read[k] if box not in written.get(k, {})),
    ]


def _by_argument(
    args: tuple[tuple[int, Rect, Privilege], ...], pieces: Iterable[tuple[int, Rect]]
) -> dict[int, dict[Rect, None]]:
    """Boxes of arguments, under the first one of their instance."""
    first = {instance: k for k, (instance, _, _) in reversed([*enumerate(args)])}
    boxes: dict[int, dict[Rect, None]] = {}
    for k, box in pieces:
        boxes.setdefault(first[args[k][0]], {})[box] = None
    return boxes


def _writes(
    k: int, pieces: dict[Rect, None], args: tuple[tuple[int, Rect, Privilege], ...]
) -> list[Touch]:
    """What is written of the instance of argument `k`."""
    held = [box for instance, box, _ in args if instance == args[k][0]]
    if not all(any(box.covers(piece) for box in held) for piece in pieces):
        return [(k, held[0], WRITES_ALL)]
    whole = next((box for box in held if not subtract_all(box, pieces)), None)
    if whole and all(whole.covers(piece) for piece in pieces):
        return [(k, whole, WRITES)]
    return [(k, piece, WRITES) for piece in pieces]


def read_touches(graph: TaskGraph, collectives: Collectives) -> Touches:
    """What rows touch: their arguments, and in a collective what its steps do."""
    touch, boxes = _all_touches(graph, collectives)
    counts = np.array([*map(len, collectives.touches), 0])
    is_collective = collectives.table >= 0
    first = len(graph.arg_instance) + pointers(counts)[collectives.table]
    count = np.where(is_collective, counts[collectives.table], np.diff(graph.arg_ptr))
    at = spread(np.where(is_collective, first, graph.arg_ptr[:-1]), count)
    touch = touch[at]
    touch["arg"] += np.repeat(np.where(is_collective, graph.arg_ptr[:-1], 0), count)
    touch["instance"] = graph.arg_instance[touch["arg"]]
    return Touches(pointers(count), touch, np.ascontiguousarray(boxes[at]))


def _all_touches(graph: TaskGraph, collectives: Collectives) -> tuple[Array, Array]:
    """`TOUCH` records and boxes of all arguments, then of the steps of all tables, whose arguments count from 0."""
    of_steps = [*chain.from_iterable(collectives.touches)]
    numbers, boxes, accesses = zip(*of_steps, strict=True) if of_steps else ((), (), ())
    is_read = graph.arg_privilege == Privilege.READ
    touch = np.zeros(len(is_read) + len(of_steps), TOUCH)
    touch["arg"][: len(is_read)] = np.arange(len(is_read))
    touch["arg"][len(is_read) :] = numbers
    touch["access"][: len(is_read)] = np.where(is_read, READS, WRITES)
    touch["access"][len(is_read) :] = accesses
    return touch, np.concatenate([graph.arg_box, box_table(boxes, graph.arg_box)])
