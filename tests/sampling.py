"""Which of many like cases a plain run takes: the rest waits for HYPOTHESIS_PROFILE=thorough."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, TypeVar

from hypothesis import settings

_Case = TypeVar("_Case")
IS_THOROUGH = settings().max_examples > 100


def sampled(cases: Iterable[_Case], name: Callable[[_Case], str] = str) -> list[_Case]:
    """The first case of each name, up to its first mark; all if thorough."""
    if IS_THOROUGH:
        return list(cases)
    firsts = dict[str, _Case]()
    for case in cases:
        firsts.setdefault(re.split("[, (]", name(case), maxsplit=1)[0], case)
    return list(firsts.values())


def crossed(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All tuples of these values if thorough, else as many as the longest list has: each value is in one.

    A value may stand in its list twice, so that two lists do not go in step.
    """
    if IS_THOROUGH:
        every = list(product(*values))
        return [row for k, row in enumerate(every) if row not in every[:k]]
    count = max(map(len, values))
    return [tuple(column[k % len(column)] for column in values) for k in range(count)]


def batched(values: Sequence[_Case], count: int) -> Iterator[tuple[_Case, ...]]:
    """In groups of so many, as `itertools.batched` of Python 3.12."""
    return (tuple(values[k : k + count]) for k in range(0, len(values), count))
