"""Inputs on which a module may compute otherwise than on an ordinary example: its example, changed.

Numbers are zeros, ties, kinks of the usual functions, large, or the ends of what the example has (of chances: 0 and 1,
too); masks (booleans, and numbers that are all 0 or 1, or all 0 or -inf) are full, empty, or empty in some rows;
indices are all the least, all the greatest, or exchanged. Numbers change while masks and indices stay, and the other
way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

KINKS = (-20.0, -6.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 20.0)
LARGE = 1e4
Change = Callable[[Any, Any], Any]


def adversaries(inputs: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """What is tried, and the inputs: tensors of the same shapes and dtypes, and what is no tensor as it is."""
    import torch

    for name, (concerns, change) in _changes().items():
        chosen = [isinstance(x, torch.Tensor) and x.numel() > 0 and concerns(x) for x in inputs]
        if any(chosen):
            seeded = [torch.Generator().manual_seed(k) for k in range(len(inputs))]
            yield (
                name,
                [
                    change(x, seeded[k]).to(x) if is_chosen else x
                    for k, (x, is_chosen) in enumerate(zip(inputs, chosen))
                ],
            )


def _changes() -> dict[str, tuple[Callable[[Any], bool], Change]]:
    import torch

    def drawn(values: Sequence[float], x: Any, random: Any) -> Any:
        """Each as often as the others, in any order."""
        order = torch.randperm(x.numel(), generator=random)
        return torch.tensor(values, dtype=torch.float64)[order % len(values)].reshape(x.shape)

    def ends(x: Any, random: Any) -> Any:
        finite = x[x.isfinite()]
        low, high = (finite.min().item(), finite.max().item()) if finite.numel() else (0.0, 0.0)
        is_chance = low >= 0 and high <= 1
        return drawn(
            [low, high, *(v for v in (0.0, 1.0) if is_chance or low <= v <= high)], x, random
        )

    def some_rows(x: Any, random: Any) -> Any:
        """Every second row; every second element of what has no rows."""
        shape = (x.shape[-2], 1) if x.ndim > 1 else x.shape
        is_full = (torch.arange(prod(shape)) % 2 == 1).reshape(shape)
        return torch.where(is_full.to(x.device), _full(x), _empty(x)).expand(x.shape)

    return {
        "zeros": (_is_number, lambda x, random: torch.zeros_like(x)),
        "ties": (_is_number, lambda x, random: torch.ones_like(x)),
        "kinks": (_is_number, lambda x, random: drawn(KINKS[::2], x, random)),
        "other kinks": (_is_number, lambda x, random: drawn(KINKS[1::2], x, random)),
        "large numbers": (_is_number, lambda x, random: drawn((-LARGE, LARGE), x, random)),
        "ends": (_is_number, ends),
        "full masks": (_is_mask, lambda x, random: _full(x).expand(x.shape)),
        "empty masks": (_is_mask, lambda x, random: _empty(x).expand(x.shape)),
        "empty rows of masks": (_is_mask, some_rows),
        "the least index": (_is_index, lambda x, random: torch.full_like(x, x.min().item())),
        "the greatest index": (_is_index, lambda x, random: torch.full_like(x, x.max().item())),
        "exchanged indices": (_is_index, lambda x, random: x.flatten().flip(0).reshape(x.shape)),
    }


def _is_number(x: Any) -> bool:
    return bool(x.is_floating_point())


def _is_index(x: Any) -> bool:
    import torch

    return (
        not x.is_floating_point()
        and not x.is_complex()
        and x.dtype != torch.bool
        and not _is_mask(x)
    )


def _is_mask(x: Any) -> bool:
    import torch

    return x.dtype == torch.bool or bool(((x == 0) | (x == 1)).all()) or _is_added(x)


def _is_added(x: Any) -> bool:
    """Whether a mask is added to scores: numbers of which each is 0 or hides."""
    return bool(x.is_floating_point() and ((x == 0) | (x == float("-inf"))).all())


def _full(x: Any) -> Any:
    """What lets everything be seen."""
    import torch

    return torch.tensor(0.0 if _is_added(x) and not (x == 1).any() else 1, dtype=x.dtype)


def _empty(x: Any) -> Any:
    import torch

    return torch.tensor(float("-inf") if _is_added(x) and not (x == 1).any() else 0, dtype=x.dtype)
