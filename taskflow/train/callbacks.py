"""What is done after steps and epochs: tables of numbers, TensorBoard, the best checkpoint, stopping early.

A callback is a function of a `Moment`; all ranks call it with the same numbers. What it gives is whether to stop.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any

from taskflow.checkpoint import files
from taskflow.execute import Executor
from taskflow.train.tensorboard import EventFile


@dataclass(frozen=True)
class Moment:
    """After a step, or after an epoch and its validation.

    Attributes:
        step: steps so far.
        epoch: epochs that are finished.
        outputs: of this step, or their means over the epoch.
        validation: means over the validation; None after a step.
        executor: of the training graph: `read` gives parameters, on all ranks.
    """

    step: int
    epoch: int
    outputs: Mapping[str, float]
    validation: Mapping[str, float] | None
    executor: Executor

    @property
    def is_epoch(self) -> bool:
        """Whether an epoch is over."""
        return self.validation is not None

    @property
    def is_first_rank(self) -> bool:
        """Whether this rank writes what all know."""
        return self.executor.transport.rank == 0

    def value(self, name: str) -> float | None:
        """A number of the validation, or else of the epoch; None if there is none of this name."""
        return {**self.outputs, **(self.validation or {})}.get(name)


Callback = Callable[[Moment], bool | None]


@dataclass
class CsvLog:
    """A row per epoch, or per `every` steps too, with a column per number; names of validation begin with it.

    Args:
        path: of the file, which is begun anew; its columns are those of the first row.
        every: steps between rows; 0: epochs only.
    """

    path: str | Path
    every: int = 0
    _columns: list[str] = field(default_factory=list)

    def __call__(self, moment: Moment) -> None:
        """Write a row, if it is time."""
        if not moment.is_first_rank or not (moment.is_epoch or (self.every and moment.step % self.every == 0)):
            return
        validation = {f"validation {k}": v for k, v in (moment.validation or {}).items()}
        row = {"step": moment.step, "epoch": moment.epoch, **moment.outputs, **validation}
        is_new = not self._columns
        if is_new or row.keys() - set(self._columns):  # validation comes after the first rows of steps
            self._columns += [name for name in row if name not in self._columns]
            self._begin_again(is_new)
        with open(self.path, "a", newline="") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    def _begin_again(self, is_new: bool) -> None:
        path = Path(self.path)
        rows: list[dict[str, Any]] = []
        if not is_new:
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(rows)


class TensorBoardLog:
    """Scalars for TensorBoard, as files of events in a folder; no package is needed to write them.

    Args:
        folder: of the run; steps are `train/<name>`, epochs `epoch/<name>` and `validation/<name>`.
        every: steps between two numbers of steps.
    """

    def __init__(self, folder: str | Path, every: int = 1) -> None:
        self.folder, self.every = Path(folder), every
        self._file: EventFile | None = None

    def __call__(self, moment: Moment) -> None:
        """Write the scalars of a step or epoch."""
        if not moment.is_first_rank or not (moment.is_epoch or moment.step % self.every == 0):
            return
        self._file = self._file or EventFile(self.folder)
        groups = {"epoch": moment.outputs, "validation": moment.validation} if moment.is_epoch else {}
        for group, values in (groups or {"train": moment.outputs}).items():
            for name, value in (values or {}).items():
                self._file.scalar(f"{group}/{name}", value, moment.step)


@dataclass
class EarlyStopping:
    """Stop when a number has not become better for some epochs.

    Args:
        name: of the number, in the validation or else in the epoch.
        patience: epochs without a better one.
        least: by how much it has to be better.
        mode: "min" or "max".

    Raises:
        ValueError (when called): there is no such number.
    """

    name: str = "loss"
    patience: int = 3
    least: float = 0.0
    mode: str = "min"
    best: float = inf
    waited: int = 0

    def __call__(self, moment: Moment) -> bool:
        """Whether to stop, after an epoch."""
        if not moment.is_epoch:
            return False
        value = score(f"EarlyStopping('{self.name}')", moment, self.name, self.mode)
        if value < self.best - self.least:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


@dataclass
class BestCheckpoint:
    """The state of the best epoch, as a checkpoint in a folder of its own; `taskflow.checkpoint.load` takes it.

    Args:
        folder: where the best one is; a better one takes its place.
        name, mode: as of `EarlyStopping`.
    """

    folder: str | Path
    name: str = "loss"
    mode: str = "min"
    best: float = inf

    def __call__(self, moment: Moment) -> None:
        """Save the state, if it is the best."""
        if not moment.is_epoch:
            return
        value = score(f"BestCheckpoint('{self.name}')", moment, self.name, self.mode)
        if value < self.best:
            self.best = value
            notes = {"epoch": moment.epoch, self.name: moment.value(self.name)}
            files.save(moment.executor, self.folder, keep=1, notes=notes)


def score(where: str, moment: Moment, name: str, mode: str) -> float:
    """The number, negated where more is better; infinity where it is not finite.

    Raises:
        ValueError: there is no such number, or no such mode.
    """
    if mode not in ("min", "max"):
        raise ValueError(f"{where}: mode is '{mode}', it is 'min' or 'max'")
    value = moment.value(name)
    if value is None:
        known = ", ".join({**moment.outputs, **(moment.validation or {})}) or "none"
        raise ValueError(f"{where}: there is no such number after the epoch; there are {known}")
    return (value if mode == "min" else -value) if isfinite(value) else inf
