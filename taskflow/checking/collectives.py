"""Collectives as tables of their steps and of what these touch, those of equal ones made once."""

from __future__ import annotations

from dataclasses import dataclass

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


def read_collectives(task_graph: TaskGraph) -> Collectives:
    """The steps of all collectives.

    Raises:
        PlanError: the arguments of a collective are none that its algorithm takes.
    """
    graph = task_graph
    which = np.full(len(task_graph), -1, np.int64)
    numbers: dict[tuple[object, ...], int] = {}
    step_lists = list[list[ExchangeStep]]()
    touches = list[list[Touch]]()
    for row in np.flatnonzero(graph.kind == Kind.COLLECTIVE).tolist():
        args = slice(int(graph.arg_ptr[row]), int(graph.arg_ptr[row + 1]))
        instances = graph.arg_instance[args]
        if len(instances) == 0 or instances.min() < 0:
            raise PlanError(
                f"plan, rule arguments: {task_text(graph, row)}: it has an argument without an instance"
            )
        columns = (
            instances - instances[0],  # which of them are one
            graph.instance_device[instances],
            graph.instance_partial[instances],
            graph.instance_box[instances],
            graph.arg_privilege[args],
            graph.arg_box[args],
        )
        key = (
            int(graph.collective[row]),
            graph.regions[int(graph.region[row])].ndim,
            *(c.tobytes() for c in columns),
        )
        if key not in numbers:
            numbers[key] = len(step_lists)
            step_lists.append(_steps(graph, row))
            touches.append(
                _touches(step_lists[-1], instances.tolist(), [box for _, box, _ in graph.args(row)])
            )
        which[row] = numbers[key]
    return Collectives(_tables(step_lists, graph.arg_box), which, touches)


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
    steps = [step for step_list in step_lists for step in step_list]
    end = pointers([len(step.parts) for step in steps])
    table = np.zeros(len(steps), STEP)
    boxes = box_table([step.box for step in steps], like)
    table["target"] = [step.target for step in steps]
    table["first"], table["end"] = end[:-1], end[1:]
    table["offset"] = [step.offset for step in steps]
    parts = np.array([part for step in steps for part in step.parts], np.int64)
    return StepTables(pointers([len(step_list) for step_list in step_lists]), table, boxes, parts)


def _touches(steps: list[ExchangeStep], instances: list[int], boxes: list[Rect]) -> list[Touch]:
    """What steps read and write: of one instance under its first argument, boxes that make up a whole argument as one.

    What does not lie in its argument passes through scratch memory, of which it takes all.
    """
    first = {i: k for k, i in reversed(list(enumerate(instances)))}
    written: dict[int, dict[Rect, None]] = {}
    read: dict[int, dict[Rect, None]] = {}
    for step in steps:
        written.setdefault(first[instances[step.target]], {})[step.box] = None
        for part in step.parts:
            read.setdefault(first[instances[part]], {})[step.box] = None
    touches: list[Touch] = []
    for k, pieces in written.items():
        held = [box for box, i in zip(boxes, instances, strict=True) if i == instances[k]]
        if not all(any(box.covers(piece) for box in held) for piece in pieces):
            touches.append((k, held[0], WRITES_ALL))
        elif whole := next((box for box in held if not subtract_all(box, pieces)), None):
            touches += [
                (k, box, WRITES)
                for box in ([whole] if all(whole.covers(p) for p in pieces) else pieces)
            ]
        else:
            touches += [(k, piece, WRITES) for piece in pieces]
    return touches + [
        (k, p, READS) for k, pieces in read.items() for p in pieces if p not in written.get(k, {})
    ]


def read_touches(graph: TaskGraph, collectives: Collectives) -> Touches:
    """What rows touch: their arguments, and in a collective what its steps do."""
    args = np.arange(len(graph.arg_instance))
    boxes = graph.arg_box
    access = np.where(graph.arg_privilege == Privilege.READ, READS, WRITES)
    ptr = graph.arg_ptr
    counts = [len(touches) for touches in collectives.touches]
    if counts:
        is_own = collectives.table >= 0
        first = pointers(counts)
        count = np.where(is_own, np.array(counts)[collectives.table], np.diff(graph.arg_ptr))
        flat = [touch for touches in collectives.touches for touch in touches]
        ptr = pointers(count)
        begin = np.where(is_own, first[collectives.table], graph.arg_ptr[:-1])
        at = spread(begin, count)
        is_step = np.repeat(is_own, count)
        numbers, accesses = (np.array([touch[k] for touch in flat], np.int64) for k in (0, 2))
        step_boxes = box_table([box for _, box, _ in flat], boxes)
        row_begin = np.repeat(graph.arg_ptr[:-1], count)
        args = at.copy()
        access = access[np.where(is_step, 0, at)]
        boxes = boxes[np.where(is_step, 0, at)]
        args[is_step] = row_begin[is_step] + numbers[at[is_step]]
        access[is_step], boxes[is_step] = accesses[at[is_step]], step_boxes[at[is_step]]
    touch = np.empty(len(args), TOUCH)
    touch["arg"], touch["instance"], touch["access"] = args, graph.arg_instance[args], access
    return Touches(ptr, touch, np.ascontiguousarray(boxes))
