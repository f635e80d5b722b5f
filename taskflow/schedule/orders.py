"""Orders: which row is issued before which.

A decision of its own: a schedule takes a task graph and the seconds of its rows and gives a permutation. Streams run
in issue order, so the order decides what overlaps. Whatever it is, the numbers are the same (law 2), and one pass over
the reordered rows simulates it.

* `program`: as lowered, every movement right behind the operator that made the value.
* `first_ready`: FlexFlow's FIFO (Jia et al., MLSys 2019, Algorithm 1): of all rows whose inputs are done, the one that
  became ready first goes next.
* `critical_path`: list scheduling; of all rows that could start at the same moment, the one with the longest way to the
  end of the step goes first (Graham 1969; Kwok and Ahmad 1999, HLFET).
* `own_path`: the same of jobs beside each other (`taskflow.beside`), the way as a share of the job's longest, so that a
  short job is done as early as a long one.
* `crossover`: jobs beside each other by turns, see `schedule.jobs`.
* `depth_first`: list scheduling; of all rows that could start at the same moment, the one goes first whose inputs were
  made last, which are still in the cache. With an operator split into pieces of the size of the cache on its own
  device, what moves a piece, what computes it and what hands it on follow each other (the fused kernels of CoCoNet,
  Jangda et al., ASPLOS 2022).
* `by_ordinal`: program order, but between two barriers all rows of one ordinal before those of the next. A part of a
  split operator goes through all that follows before the next part begins, so what is alive in between is that of one
  part: of the hidden units or heads (co-shard: nnScaler, Lin et al., OSDI 2024), or of the samples. A barrier is one of
  several parts that waits for a later one. `first_ready` and `critical_path` compute again at once what `recompute` has
  put off.
* `prefetch(layers=n)`: as `by_ordinal`, but parameters that are gathered are so n layers ahead: what layer k + n reads
  is issued when layer k begins. So links work while devices compute, and those of n + 1 layers are in memory.
* `pieces`: as `prefetch`, but all parts of an operator before the next operator, so that what one part gathers or sums
  travels under the products of the others: asynchronous tensor parallelism (Wang et al., ASPLOS 2023; CoCoNet).
* `interleaved:2`, and so of every policy of pipelines: the same, eager (see `schedule.Schedule`). Two steps of a device
  at once hide the collectives of tensor parallelism of one micro-batch behind the products of another.
* `forward_first`: list scheduling; of all rows that could start at the same moment, the one goes first whose result the
  next forward pass reads first (P3: Jayarajan et al., MLSys 2019, section 4). A gradient in pieces (`lower(...,
  piece_bytes=)`) lets a more urgent one pass. As many of its pieces follow each other as fit in before that one is
  there by prediction: the blocks of Prophet (Zhang et al., ICDCS 2021). What it gains lies between steps (`lower(...,
  repeat=)`): gradients of late layers travel while the next step computes its early layers.

List scheduling puts off what would be done at once and would only lie in memory then: gathers begin a layer ahead, and
what is computed again right before it is read (see `put_off`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from taskflow.core.compiling import tiered
from taskflow.core.numbers import flag, whole
from taskflow.cost.model import CostModel
from taskflow.schedule.buckets import in_buckets
from taskflow.schedule.found import NAME, search_schedule
from taskflow.schedule.jobs import crossover, jobs_of
from taskflow.schedule.list_scheduling import BY_READY, BY_START, LATEST_FIRST, list_schedule
from taskflow.schedule.ordinal_order import by_ordinal
from taskflow.schedule.policies import POLICIES
from taskflow.schedule.put_off import gathers, layers_ahead, no_later
from taskflow.schedule.schedule import Policy, Schedule, lay_out
from taskflow.strategy.orbits import Orbits
from taskflow.tasks.task_graph import Array, Kind, Privilege, TaskGraph

Order = Callable[
    [TaskGraph, Array], Array
]  # task graph, seconds of every row -> row numbers in issue order


def reorder(
    task_graph: TaskGraph,
    costs: CostModel,
    order: Order | Policy | Schedule | str | None = None,
    bucket_bytes: int | None = None,
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
    if bucket_bytes is not None:
        task_graph = replace(task_graph, bucket_bytes=bucket_bytes)
    issued = task_graph.reordered(issue_order(task_graph, costs, order))
    if (peers := issued.peers) is None:
        return issued

    def lower_finer(finer: Orbits) -> TaskGraph:
        return reorder(peers.lower(finer), costs, order, bucket_bytes)

    return replace(issued, peers=replace(peers, lower=lower_finer))


def issue_order(
    task_graph: TaskGraph, costs: CostModel, order: Order | Policy | Schedule | str | None = None
) -> Array:
    """The row numbers in which `reorder` issues them."""
    if isinstance(order, str):
        check_order_name(order)
        order = search_schedule(task_graph, costs) if order == NAME else named(order)
    seconds = costs.seconds(task_graph)
    if isinstance(order, Policy | Schedule):
        rows = lay_out(task_graph, seconds, order)
    else:
        rows = (order or critical_path)(task_graph, seconds)
    return in_buckets(task_graph, rows) if task_graph.bucket_bytes else rows


def check_order_name(name: str) -> None:
    """ValueError: nothing has that name."""
    if name != NAME and named(name) is None:
        raise ValueError(f"schedule '{name}': is none of {', '.join(NAMED)}, {NAME}")


def named(name: object) -> Order | Policy | None:
    """The order or policy of this name; None: there is none.

    `prefetch:2` is that of two layers, `interleaved:2` an eager policy (see `schedule.Schedule`).
    """
    match = re.fullmatch(r"(\w+):(0|[1-9]\d{0,3})", name) if isinstance(name, str) else None
    head, number = (match[1], int(match[2])) if match else (name, 0)
    if match and head in ("prefetch", "pieces"):
        return prefetch(number, head == "pieces")
    order = NAMED.get(head) if isinstance(head, str) else None
    if not match:
        return order
    return replace(order, eager=number) if isinstance(order, Policy) and number else None


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


def first_ready(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which their dependences are done; ties by ordinal, then by row."""
    return list_schedule(task_graph, seconds, BY_READY, task_graph.ordinal)


def critical_path(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which they can start; ties by ordinal, by the longest way to the end, then by row."""
    level = bottom_levels(task_graph, seconds)
    longest = level.max(initial=0.0) + 1.0
    return list_schedule(task_graph, seconds, BY_START, task_graph.ordinal * longest - level)


def own_path(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows as by `critical_path`, the way as a share of the longest of the own job."""
    level = bottom_levels(task_graph, seconds)
    job = jobs_of(task_graph)
    longest = np.full(job.max(initial=0) + 1, np.finfo(float).tiny)
    np.maximum.at(longest, job, level)
    priority = 2 * task_graph.ordinal - level / longest[job]
    return list_schedule(task_graph, seconds, BY_START, priority)


@dataclass(frozen=True)
class Prefetch:
    """The order that gathers parameters so many layers ahead; see `prefetch`."""

    layers: int
    in_pieces: bool = False

    @property
    def name(self) -> str:
        """What files and commands call it."""
        head = "pieces" if self.in_pieces else "prefetch"
        return head if self.layers == 1 else f"{head}:{self.layers}"

    def __call__(self, task_graph: TaskGraph, seconds: Array) -> Array:
        base = program if self.in_pieces else by_ordinal
        position = np.argsort(base(task_graph, seconds))
        put_off = gathers(task_graph, position)
        anchor = layers_ahead(task_graph, put_off, self.layers, position)
        place = position.astype(float)
        place[put_off.row] = np.where(anchor >= 0, position[anchor] - 0.5, -1.0)
        no_later(task_graph.dep_ptr, task_graph.dep_row, place)
        order: Array = np.lexsort((position, place))
        return order


def prefetch(layers: int = 1, in_pieces: bool = False) -> Prefetch:
    """Rows as `by_ordinal` has them, but gathers of parameters so many layers ahead of their first readers.

    With `in_pieces` the rest is in the order of the program: all parts of an operator before the next operator.

    A layer is what the innermost numbered part of a name stands for, `layer3` of `layer3.attention.q`; an operator
    outside of such a part is a layer of its own. With 0 layers a gather is issued when its layer begins.

    Raises:
        ValueError: `layers` is no whole number from 0 on, or `in_pieces` neither True nor False.
    """
    layers = whole("prefetch", "layers", layers, 0)
    return Prefetch(layers, flag("prefetch", "in_pieces", in_pieces))


def depth_first(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which they can start; ties by the latest moment at which they became ready, then by row."""
    return list_schedule(task_graph, seconds, BY_START, LATEST_FIRST)


def forward_first(task_graph: TaskGraph, seconds: Array) -> Array:
    """Rows by the moment at which they can start; ties by the first point that reads what they lead to, then by row."""
    is_point = task_graph.kind == Kind.POINT
    rows = np.arange(len(task_graph))
    return list_schedule(
        task_graph, seconds, BY_START, np.where(is_point, rows, first_readers(task_graph))
    )


def first_readers(task_graph: TaskGraph) -> Array:
    """Per row the first point that needs what comes of it; rows that move data and updates in place hand that on.

    What the last step updates is read by the next call: by row n of that one, which is number `len(task_graph) + n`.
    """
    rows = len(task_graph)
    row = task_graph.arg_row
    hands_on = task_graph.kind != Kind.POINT
    is_used = ~hands_on[row] & (task_graph.arg_instance >= 0)
    updates = np.flatnonzero(is_used & (task_graph.arg_privilege == Privilege.READ_WRITE))
    reads = np.flatnonzero(is_used & (task_graph.arg_privilege == Privilege.READ))
    first = np.full(len(task_graph.instance_region), rows)
    readers = np.full(rows, 2 * rows)
    np.minimum.at(first, task_graph.arg_instance[reads], row[reads])
    np.minimum.at(readers, row[updates], rows + first[task_graph.arg_instance[updates]])
    hands_on[row[updates]] = True
    _hand_back(task_graph.dep_ptr, task_graph.dep_row, hands_on, readers)
    return readers


@tiered
def _hand_back(dep_ptr: Array, dep_row: Array, hands_on: Array, readers: Array) -> None:
    """To all rows that a row waits for: its number, or what it got itself if it hands that on; the least is kept."""
    for number in range(len(readers) - 1, -1, -1):
        reader = readers[number] if hands_on[number] else number
        for before in dep_row[dep_ptr[number] : dep_ptr[number + 1]]:
            readers[before] = min(readers[before], reader)


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


_ORDERS = (
    program,
    by_ordinal,
    first_ready,
    critical_path,
    own_path,
    depth_first,
    forward_first,
    crossover,
)
NAMED: dict[str, Order | Policy] = {
    **POLICIES,
    **{order.__name__: order for order in _ORDERS},
    "prefetch": prefetch(),
    "pieces": prefetch(in_pieces=True),
}


def is_by_operator(order: object) -> bool:
    """Whether all micro-batches of an operator come before the next operator, as in the program and in pieces."""
    order = named(order) or order
    is_in_pieces = isinstance(order, Prefetch) and order.in_pieces
    return order is None or order is program or is_in_pieces
