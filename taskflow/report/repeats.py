"""Repeats: one name for operators that do the same, so that ninety layers are a line of a table and not ninety.

Takes the entries of a strategy; gives each a label. Operators share one where their names differ in numbers alone,
their patterns and extents agree, and they are split alike on the same devices: `layer0.fc1`, `layer1.fc1`, ... become
`layer0-95.fc1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod

from taskflow.graph.graph import Operator
from taskflow.report.describe import list_numbers
from taskflow.strategy.strategy import ParallelConfig


def label_repeats(entries: Iterable[tuple[Operator, ParallelConfig]]) -> dict[str, str]:
    """Operator name -> the label that it shares with all that do the same; its own name where none does."""
    groups: dict[object, list[str]] = {}
    for op, config in entries:
        words, extents = tuple(re.split(r"\d+", op.name)), tuple(op.extents.items())
        groups.setdefault((words, op.pattern, extents, config), []).append(op.name)
    labels: dict[str, str] = {}
    for names in groups.values():
        label = _label(names)
        labels |= {name: name if label is None or label in labels.values() else label for name in names}
    return labels


def _label(names: Sequence[str]) -> str | None:
    """The words of the names with the numbers between them; None where not all combinations are there."""
    words = re.split(r"\d+", names[0])
    numbers = [sorted(set(map(int, column))) for column in zip(*(re.findall(r"\d+", n) for n in names), strict=True)]
    if len(names) == 1 or prod(map(len, numbers)) != len(names):
        return names[0] if len(names) == 1 else None
    return "".join(text for pair in zip(words, [*map(list_numbers, numbers), ""], strict=True) for text in pair)
