"""Orders: which row is issued before which.

A decision of its own: a schedule takes a task graph and the seconds of its rows and gives a permutation. Streams run
in issue order, so the order decides what overlaps. Whatever it is, the numbers are the same (law 2), and one pass over
the reordered rows simulates it.

* `program`: as lowered, every movement right behind the operator that made the value.
* `first_ready`: FlexFlow's FIFO (Jia et al., MLSys 2019, Algorithm 1): of all rows whose inputs are done, the one that
  became ready first goes next.
* `critical_path`: list scheduling; of all rows that could start at the same moment, the one with the longest way to the
  end of the step goes first (Graham 1969; Kwok and Ahmad 1999, HLFET).
* `depth_first`: list scheduling; of all rows that could start at the same moment, the one goes first whose inputs were
  made last, which are still in the cache. With an operator split into pieces of the size of the cache on its own
  device, what moves a piece, what computes it and what hands it on follow each other (the fused kernels of CoCoNet,
  Jangda et al., ASPLOS 2022).
* `by_ordinal`: program order, but between two barriers all rows of one ordinal before those of the next. A part of a
  split operator goes through all that follows before the next part begins, so what is alive in between is that of one
  part: of the hidden units or heads (co-shard: nnScaler, Lin et al., OSDI 2024), or of the samples. A barrier is one of
  several parts that waits for a later one. `first_ready` and `critical_path` compute again at once what `recompute` has
  put off.
* `forward_first`: list scheduling; of all rows that could start at the same moment, the one goes first whose result the
  next forward pass reads first (P3: Jayarajan et al., MLSys 2019, section 4). A gradient in pieces (`lower(...,
  piece_bytes=)`) lets a more urgent one pass. As many of its pieces follow each other as fit in before that one is
  there by prediction: the blocks of Prophet (Zhang et al., ICDCS 2021). What it gains lies between steps (`lower(...,
  repeat=)`): gradients of late layers travel while the next step computes its early layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from taskflow.core.compiling import tiered
from taskflow.cost.model import CostModel
from taskflow.schedule.found import NAME, search_schedule
from taskflow.schedule.list_scheduling import BY_READY, BY_START, LATEST_FIRST, list_schedule
from taskflow.schedule.policies import POLICIES
from taskflow.schedule.schedule import Policy, Schedule, lay_out
from taskflow.tasks.task_graph import Array, Kind, Privilege, TaskGraph

Order = Callable[
    [TaskGraph, Array], Array
]  # task graph, seconds of every row -> row numbers in issue order


def reorder(
    task_graph: TaskGraph, costs: CostModel, order: Order | Policy | Schedule | str | None = None
) -> TaskGraph:
    """The same tasks issued in another order.

    Args:
        task_graph: from `lower`.
        costs: seconds of every row.
        order: a policy of pipelines (`taskflow.schedule.one_f_one_b`, ...), a `Schedule`, one of
            `taskflow.schedule.program`, `.by_ordinal`, `.first_ready`, `.critical_path` (the default),
            `.depth_first`, `.forward_first`, the name of one of these, "searched" (see `search_schedule`), or any
            function that takes a task graph and the seconds of its rows (an array) and gives the row numbers in issue
            order.

    Raises:
        ValueError: what `order` gives is no permutation, or puts a row before one that it waits for; nothing has that
            name; or a schedule does not fit the task graph (see `schedule.lay_out`).
    """
    found = task_graph.reordered(issue_order(task_graph, costs, order))
    if (peers := found.peers) is None:
        return found
    return replace(
        found, peers=replace(peers, lower=lambda finer: reorder(peers.lower(finer), costs, order))
    )


def issue_order(
    task_graph: TaskGraph, costs: CostModel, order: Order | Policy | Schedule | str | None = None
) -> Array:
    """The row numbers in which `reorder` issues them."""
    if isinstance(order, str):
        check_order_name(order)
        order = search_schedule(task_graph, costs) if order == NAME else NAMED[order]
    seconds = costs.seconds(task_graph)
    if isinstance(order, Policy | Schedule):
        return lay_out(task_graph, seconds, order)
    return (order or critical_path)(task_graph, seconds)


def check_order_name(name: str) -> None:
    """ValueError: nothing has that name."""
    if name not in (*NAMED, NAME):
        raise ValueError(f"schedule '{name}': is none of {', '.join(NAMED)}, {NAME}")


def order_name(order: Order | Policy | Schedule | str) -> str:
    """What messages and reports call it."""
    return (
        order
        if isinstance(order, str)
        else getattr(order, "name", getattr(order, "__name__", type(order).__name__))
    )


def program(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows as they are: as `lower` issues them."""
    return np.arange(len(task_graph))


def by_ordinal(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the barriers before them in program order, then by the last ordinal that they wait for, then by row."""
    launch = np.where(task_graph.kind == Kind.POINT, task_graph.launch, -1)
    _, which = np.unique(np.stack([launch, task_graph.device]), axis=1, return_inverse=True)
    most = np.zeros(len(task_graph), np.int64)
    np.maximum.at(most, which, task_graph.ordinal)
    is_part = (launch >= 0) & (most[which] > 0)
    barriers, last = barriers_before(
        task_graph.dep_ptr, task_graph.dep_row, task_graph.ordinal, is_part
    )
    found: Array = np.lexsort((last, barriers))
    return found


@tiered
def barriers_before(
    ptr: Array, awaited: Array, ordinal: Array, is_part: Array
) -> tuple[Array, Array]:
    """Per row the barriers up to it, and the last ordinal that it waits for since.

    A barrier is one of several parts that waits for a later one. All else goes behind what it waits for: an update that
    is done once a step, say.
    """
    barriers, last = np.zeros(len(ordinal), np.int64), ordinal.copy()
    for row in range(len(ordinal)):
        barriers[row] = barriers[row - 1] if row > 0 else 0
        for k in range(ptr[row], ptr[row + 1]):
            before = awaited[k]
            if barriers[before] == barriers[row]:
                last[row] = max(last[row], last[before])
        if is_part[row] and last[row] > ordinal[row]:
            barriers[row], last[row] = barriers[row] + 1, ordinal[row]
    return barriers, last


def first_ready(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which their dependences are done; ties by ordinal, then by row."""
    return list_schedule(task_graph, seconds, BY_READY, task_graph.ordinal)


def critical_path(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which they can start; ties by ordinal, by the longest way to the end, then by row."""
    level = bottom_levels(task_graph, seconds)
    longest = level.max(initial=0.0) + 1.0
    return list_schedule(task_graph, seconds, BY_START, task_graph.ordinal * longest - level)


def depth_first(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which they can start; ties by the latest moment at which they became ready, then by row."""
    return list_schedule(task_graph, seconds, BY_START, LATEST_FIRST)


def forward_first(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which they can start; ties by the first point that reads what they lead to, then by row."""
    is_point, rows = task_graph.kind == Kind.POINT, np.arange(len(task_graph))
    return list_schedule(
        task_graph, seconds, BY_START, np.where(is_point, rows, first_readers(task_graph))
    )


def first_readers(task_graph: TaskGraph) -> Array:
    """Per row the first point that needs what comes of it; rows that move data and updates in place hand that on.

    What the last step updates is read by the next call: by row n of that one, which is number `len(task_graph) + n`.
    """
    rows, point, privilege = (
        len(task_graph),
        task_graph.kind == Kind.POINT,
        task_graph.arg_privilege,
    )
    row, instance = np.repeat(np.arange(rows), np.diff(task_graph.arg_ptr)), task_graph.arg_instance
    updates = np.flatnonzero(point[row] & (privilege == Privilege.READ_WRITE) & (instance >= 0))
    reads = np.flatnonzero(point[row] & (privilege == Privilege.READ) & (instance >= 0))
    first, found = np.full(len(task_graph.instance_region), rows), np.full(rows, 2 * rows)
    np.minimum.at(first, instance[reads], row[reads])
    np.minimum.at(found, row[updates], rows + first[instance[updates]])
    hands_on = ~point
    hands_on[row[updates]] = True
    _hand_back(task_graph.dep_ptr, task_graph.dep_row, hands_on, found)
    return found


@tiered
def _hand_back(dep_ptr: Array, dep_row: Array, hands_on: Array, found: Array) -> None:
    """To all rows that a row waits for: its number, or what it got itself if it hands that on; the least is kept."""
    for number in range(len(found) - 1, -1, -1):
        reader = found[number] if hands_on[number] else number
        for before in dep_row[dep_ptr[number] : dep_ptr[number + 1]]:
            found[before] = min(found[before], reader)


def bottom_levels(task_graph: TaskGraph, seconds: Array) -> Array:
    """Seconds of the longest chain of dependences from the start of each row to the end of the step."""
    level = np.array(seconds, float)
    _add_up(task_graph.dep_ptr, task_graph.dep_row, level.copy(), level)
    return level


@tiered
def _add_up(dep_ptr: Array, dep_row: Array, seconds: Array, level: Array) -> None:
    for row in range(len(level) - 1, -1, -1):
        for before in dep_row[dep_ptr[row] : dep_ptr[row + 1]]:
            level[before] = max(level[before], seconds[before] + level[row])


_ORDERS = (program, by_ordinal, first_ready, critical_path, depth_first, forward_first)
NAMED: dict[str, Order | Policy] = {**POLICIES, **{order.__name__: order for order in _ORDERS}}
