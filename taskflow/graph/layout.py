"""Memory orders: in which order the dimensions of a region's instances lie in memory.

Shapes are the user's; an order says which dimension is slowest. An operator may ask for the orders that its kernel is
fast with (`layout` of `Graph.launch`); every region gets one order for all its instances, since movement then copies
like to like. The first operator that asks for a region decides; a region for which nobody asks lies as one beside it
with the same term (so elementwise operators keep what they get), else row-major. Kernels see views of the public
shape, and are right for any strides.
"""

from __future__ import annotations

from collections.abc import Iterable

from taskflow.graph.operator import Operator
from taskflow.graph.pattern import Pattern

Order = tuple[int, ...]  # the dimensions, slowest first


def parse_orders(where: str, text: str, pattern: Pattern) -> tuple[Order, ...]:
    """The orders that `text` asks for: the pattern again, each term's dimensions in memory order, slowest first.

    Raises:
        ValueError: a term is not one of the pattern with its dimensions in another order.
    """
    asked = Pattern.parse(text)
    terms, given = pattern.inputs + pattern.outputs, asked.inputs + asked.outputs
    if [len(asked.inputs), len(asked.outputs)] != [len(pattern.inputs), len(pattern.outputs)]:
        raise ValueError(f"{where}: layout '{asked.text}' has other terms than the pattern '{pattern.text}'")
    for term, other in zip(terms, given, strict=True):
        if sorted(term.dims) != sorted(other.dims):
            raise ValueError(f"{where}: the memory order '{other}' is no order of the term '{term}'")
    return tuple(_order(term.dims, other.dims) for term, other in zip(terms, given, strict=True))


def _order(dims: tuple[tuple[str, ...], ...], asked: tuple[tuple[str, ...], ...]) -> Order:
    left = list(range(len(dims)))
    return tuple(left.pop(next(i for i, k in enumerate(left) if dims[k] == dim)) for dim in asked)


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
