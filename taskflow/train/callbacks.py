"""What is done after steps and epochs: tables of numbers, TensorBoard, the best checkpoint, stopping early.

A callback is a function of a `Moment`; all ranks call it with the same numbers. What it gives is whether to stop.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any

from taskflow.checkpoint import files
from taskflow.core.numbers import real, whole
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
_OTHER_NOTES = ("epoch", "position", "plan")  # of checkpoints


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

    def __post_init__(self) -> None:
        self.every = whole(f"CsvLog('{self.path}')", "every", self.every, 0)

    def __call__(self, moment: Moment) -> None:
        """Write a row, if it is time."""
        if not moment.is_first_rank or not (
            moment.is_epoch or (self.every and moment.step % self.every == 0)
        ):
            return
        row = self.row(moment)
        is_new = not self._columns
        if is_new or row.keys() - set(
            self._columns
        ):  # validation comes after the first rows of steps
            self._columns += [name for name in row if name not in self._columns]
            self._begin_again(is_new)
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    def row(self, moment: Moment) -> dict[str, float]:
        """Column -> number.

        Raises:
            ValueError: an output has the name of another column.
        """
        validation = {f"validation {k}": v for k, v in (moment.validation or {}).items()}
        others = {"step": moment.step, "epoch": moment.epoch, **validation}
        if taken := [name for name in moment.outputs if name in others]:
            raise ValueError(
                f"CsvLog('{self.path}'): output '{taken[0]}' has the name of another column; rename it"
            )
        return {"step": moment.step, "epoch": moment.epoch, **moment.outputs, **validation}

    def _begin_again(self, is_new: bool) -> None:
        path = Path(self.path)
        rows: list[dict[str, Any]] = []
        if not is_new:
            with open(path, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="", encoding="utf-8") as file:
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
        self.folder = Path(folder)
        self.every = whole(f"TensorBoardLog('{folder}')", "every", every)
        self._file: EventFile | None = None

    def __call__(self, moment: Moment) -> None:
        """Write the scalars of a step or epoch."""
        if not moment.is_first_rank or not (moment.is_epoch or moment.step % self.every == 0):
            return
        self._file = self._file or EventFile(self.folder)
        groups = (
            {"epoch": moment.outputs, "validation": moment.validation} if moment.is_epoch else {}
        )
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

    def __post_init__(self) -> None:
        where = f"EarlyStopping('{self.name}')"
        check_mode(where, self.mode)
        self.patience = whole(where, "patience", self.patience)
        self.least = real(where, "least", self.least, 0)

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

    def __post_init__(self) -> None:
        where = f"BestCheckpoint('{self.name}')"
        check_mode(where, self.mode)
        if self.name in _OTHER_NOTES:
            raise ValueError(
                f"{where}: '{self.name}' is another note of a checkpoint; give the output another name"
            )

    def __call__(self, moment: Moment) -> None:
        """Save the state, if it is the best."""
        if not moment.is_epoch:
            return
        value = score(f"BestCheckpoint('{self.name}')", moment, self.name, self.mode)
        if value < self.best:
            self.best = value
            notes = {"epoch": moment.epoch, self.name: moment.value(self.name)}
            files.save(moment.executor, self.folder, keep=1, notes=notes)


def check_mode(where: str, mode: object) -> None:
    """ValueError: there is no such mode."""
    if mode not in ("min", "max"):
        raise ValueError(f"{where}: mode is {mode!r}, it is 'min' or 'max'")


def score(where: str, moment: Moment, name: str, mode: str) -> float:
    """The number, negated where more is better; infinity where it is not finite.

    Raises:
        ValueError: there is no such number.
    """
    value = moment.value(name)
    if value is None:
        known = ", ".join({**moment.outputs, **(moment.validation or {})}) or "none"
        raise ValueError(f"{where}: there is no such number after the epoch; there are {known}")
    return (value if mode == "min" else -value) if isfinite(value) else inf


def check_places(callbacks: Sequence[object], checkpoint: str | Path | None) -> None:
    """ValueError where two write into one file or folder; `checkpoint`: the folder of the run."""
    found = {} if checkpoint is None else {Path(checkpoint).resolve(): "checkpoint="}
    for k, each in enumerate(callbacks):
        place = getattr(each, "path", None) or getattr(each, "folder", None)
        if isinstance(each, CsvLog | TensorBoardLog | BestCheckpoint) and place is not None:
            other = found.setdefault(Path(place).resolve(), f"callbacks[{k}]")
            if other != f"callbacks[{k}]":
                raise ValueError(
                    f"fit: {other} and callbacks[{k}] both write '{place}'; give one another place"
                )
