"""The order of all rows, which one rank decides for all: from rows of representatives, wherever these say it.

Orders by name look at what rows wait for, at their seconds and at the streams of devices: so rows that are alike begin
at one moment. Of a device they give the order that `reorder` gives of all rows. Who has the rows of some devices alone
(`Lowering.lower_in_order`) has them in this order.
"""

from __future__ import annotations

from taskflow.cost.model import CostModel
from taskflow.lowering import Lowering
from taskflow.lowering.like import RowOrder
from taskflow.schedule.orders import Order, issue_order, named
from taskflow.schedule.schedule import Policy, Schedule
from taskflow.simulation.representatives import with_alike_loads
from taskflow.strategy.strategy import Strategy


def order_of_all(
    lowering: Lowering,
    strategy: Strategy,
    costs: CostModel,
    order: Order | Policy | Schedule | str,
) -> RowOrder:
    """How all rows of a strategy are issued; `costs`, `order`: see `reorder`.

    Raises:
        ValueError: the order does not fit the rows.
    """
    if named(order) is not None:
        rows = lowering.rows_to_simulate(strategy, costs)
    else:  # it names devices, or nobody knows what it does
        rows = lowering.lower(strategy)
    if rows.peers is not None:
        rows, _, _ = with_alike_loads(rows, costs)
    return lowering.order_of(rows, issue_order(rows, costs, order), strategy)
