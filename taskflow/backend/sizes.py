"""Arrays of more elements than 32 bits count, and CuPy's functions, of which some are silently wrong on them.

Elementwise functions, sums and copies pick wider integers for such arrays (CuPy 14). Of others some do not: `take`
gives other elements, `cumsum` gave its input, `argmax` negative places (issues 10290, 9841 and 8014 of
https://github.com/cupy/cupy). So all but what is known to be right is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_ELEMENTS = (1 << 31) - 1
# besides elementwise functions
_REDUCTIONS = {"all", "any", "count_nonzero", "max", "mean", "min", "prod", "sum"}
_VIEWS = {
    "broadcast_shapes",
    "broadcast_to",
    "expand_dims",
    "flip",
    "moveaxis",
    "reshape",
    "shape",
    "squeeze",
    "transpose",
}
_COPIES = {
    "ascontiguousarray",
    "asarray",
    "copyto",
    "empty",
    "empty_like",
    "full",
    "zeros",
    "zeros_like",
}
COUNTS_ANY_SIZE = frozenset(_REDUCTIONS | _VIEWS | _COPIES)


def refuse_large(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What the function of CuPy gives, on arrays that 32 bits count.

    Raises:
        ValueError: an array has more elements.
    """
    for k, value in enumerate((*args, *options.values())):
        size = getattr(value, "size", 0)
        if isinstance(size, int) and size > MOST_ELEMENTS:
            where = f"argument {k + 1}" if k < len(args) else f"'{list(options)[k - len(args)]}'"
            raise ValueError(
                f"cupy.{name}: {where} has {size} elements; CuPy counts {MOST_ELEMENTS} at most there"
            )
    return function(*args, **options)
