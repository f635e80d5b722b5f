"""Memory orders: in which order the dimensions of a region's instances lie in memory.

Every region gets one order for all its instances, since movement then copies like to like. The first operator that asks
for a region decides (`layout` of `Graph.launch`). A region for which nobody asks gets the order of another one that the
same operator has with the same term, so elementwise operators keep what they get; else it is row-major. Kernels see
views of the public shape, and are right for any strides.
"""

from __future__ import annotations

from collections.abc import Iterable

from taskflow.graph.graph import Operator
from taskflow.graph.pattern import Order


def memory_orders(operators: Iterable[Operator]) -> dict[str, Order]:
    """Region name -> order, for the regions that are not row-major."""
    operators = tuple(operators)
    orders: dict[str, Order] = {}
    for op in operators:
        for region, order in zip(op.args, op.orders, strict=False):
            orders.setdefault(region.name, order)
    for op in operators:
        beside: dict[object, Order] = {}
        terms = [term.dims for term in op.bound.terms]
        for region, dims in zip(op.args, terms, strict=True):
            if region.name in orders:
                beside.setdefault(dims, orders[region.name])
        for region, dims in zip(op.args, terms, strict=True):
            if dims in beside:
                orders.setdefault(region.name, beside[dims])
    return {name: order for name, order in orders.items() if order != tuple(sorted(order))}
