"""Schedules: which row of a task graph is issued before which.

`taskflow.reorder(task_graph, costs, order)` applies one of the orders or policies here, or one of the user's own.
`find_period` and `find_schedule` search for the schedule of a pipeline that is given as blocks.
"""

from taskflow.schedule.blocks import Block
from taskflow.schedule.finite import Finite, find_schedule
from taskflow.schedule.jobs import crossover
from taskflow.schedule.orders import (
    critical_path,
    depth_first,
    first_ready,
    forward_first,
    own_path,
    prefetch,
    program,
)
from taskflow.schedule.ordinal_order import by_ordinal
from taskflow.schedule.period import Period, find_period
from taskflow.schedule.policies import (
    POLICIES,
    chimera,
    gpipe,
    interlaced,
    interleaved,
    looped_bfs,
    one_f_one_b,
    three_f_one_b,
    zb_h1,
    zb_v,
)
from taskflow.schedule.schedule import Place, Policy, Schedule, Step

__all__ = [
    "POLICIES",
    "Block",
    "Finite",
    "Period",
    "Place",
    "Policy",
    "Schedule",
    "Step",
    "by_ordinal",
    "chimera",
    "critical_path",
    "crossover",
    "depth_first",
    "find_period",
    "find_schedule",
    "first_ready",
    "forward_first",
    "gpipe",
    "interlaced",
    "interleaved",
    "looped_bfs",
    "one_f_one_b",
    "own_path",
    "prefetch",
    "program",
    "three_f_one_b",
    "zb_h1",
    "zb_v",
]
