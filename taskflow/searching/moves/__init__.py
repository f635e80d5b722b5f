"""Moves: functions from a plan to another one. All that a search can do to a plan is a tuple of them.

To add one: write a function `(plan, problem, generator) -> plan | None` in a file here, and add it to MOVES. None means
that there is nothing to try. What it changes decides how it is judged: where configurations of operators alone differ,
as a change of the plan (`packed_judge`), else as a whole plan (`judge`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.moves.again import change_again
from taskflow.searching.moves.away import change_offload
from taskflow.searching.moves.buckets import change_buckets
from taskflow.searching.moves.context import next_context, next_ring
from taskflow.searching.moves.drawn import change_chain, change_kin, change_operator
from taskflow.searching.moves.neighbour import next_neighbour
from taskflow.searching.moves.order import next_order
from taskflow.searching.moves.shape import next_shape
from taskflow.searching.moves.stages import change_groups, change_parts, move_cut
from taskflow.searching.moves.window import next_window
from taskflow.searching.problem import SearchProblem

Move = Callable[[Plan, SearchProblem, "np.random.Generator"], Plan | None]

MOVES: tuple[Move, ...] = (
    next_shape,
    next_order,
    next_context,
    next_ring,
    change_again,
    change_offload,
    change_groups,
    change_parts,
    change_buckets,
    move_cut,
    next_window,
    next_neighbour,
    change_operator,
    change_kin,
    change_chain,
)
# Those that go through all that they can change, one after the other, so that what is no faster is not accepted.
SWEEPS = frozenset({next_window, next_neighbour})
# Those that change configurations of operators alone.
CHANGES = SWEEPS | {change_operator, change_kin, change_chain}
