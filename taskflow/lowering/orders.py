"""In which order the dimensions of every region lie in memory."""

from __future__ import annotations

from collections.abc import Iterable

from taskflow.graph.graph import Operator
from taskflow.graph.pattern import Order


def memory_orders(operators: Iterable[Operator]) -> dict[str, Order]:
    """Region name -> the order in which the dimensions of its instances lie in memory, unless it is row-major.

    Every region gets one order for all its instances, since movement then copies like to like. The first operator that
    asks for a region decides (`layout` of `Graph.launch`). A region for which nobody asks gets the order of another one
    that the same operator has with the same term, so elementwise operators keep what they get. Kernels see views of the
    public shape, and are right for any strides.
    """
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
