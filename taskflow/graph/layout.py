"""Layouts: what a kernel wishes of the order in which the dimensions of its arguments lie in memory.

Shapes are the user's; an order says which dimension is slowest. What becomes of the wishes: `orders`.
"""

from __future__ import annotations

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
