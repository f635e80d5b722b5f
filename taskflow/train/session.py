"""What belongs to one call of `Trainer.fit`, and means over samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taskflow.checkpoint.history import Keeper
from taskflow.comm.interrupt import Interrupts
from taskflow.core.numbers import whole
from taskflow.schedule.plan import Plan
from taskflow.train.callbacks import Callback, Change, Moment
from taskflow.train.loading import Reading
from taskflow.train.sizes import Sizes

ON_NAN = ("stop", "skip", "back")


@dataclass
class Session:
    """Batches, executors, and who is told what.

    `is_over` once a callback wants the run to end; `change` is what the last one wants the next step to be.
    """

    read: Reading
    sizes: Sizes
    validation: Any
    keeper: Keeper
    interrupts: Interrupts
    callbacks: tuple[Callback, ...]
    line_every: int | None
    skips: bool
    is_over: bool = False
    change: Change | None = None

    def tell(self, moment: Moment) -> None:
        """Call all callbacks; the others too when one of them ends the run."""
        answers = [callback(moment) for callback in self.callbacks]
        self.is_over |= any(answer is True for answer in answers)
        changes = [answer for answer in answers if isinstance(answer, Plan | tuple)]
        self.change = changes[-1] if changes else None


@dataclass
class Means:
    """Means over samples of numbers that are means over batches."""

    sums: dict[str, float] = field(default_factory=dict)
    samples: int = 0
    refused: int = 0

    def add(self, values: Mapping[str, float], samples: int) -> None:
        """One more batch."""
        self.samples += samples
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + samples * value

    def means(self) -> dict[str, float]:
        """Of all batches so far."""
        return {name: total / self.samples for name, total in self.sums.items()}


def check_fit(
    epochs: object,
    every: object,
    keep: object,
    on_nan: str,
    callbacks: Sequence[object],
    line_every: object,
) -> None:
    """ValueError for an argument of `Trainer.fit` that cannot be meant, TypeError for a callback that is none."""
    if on_nan not in ON_NAN:
        raise ValueError(f"fit: on_nan is one of {', '.join(ON_NAN)}, not '{on_nan}'")
    whole("fit", "epochs", epochs)
    whole("fit", "keep", keep)
    for name, value in (("every", every), ("line_every", line_every)):
        if value is not None:
            whole("fit", name, value)
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(f"fit: a callback is {callback!r}, a function is needed")
