"""What is done after steps and epochs: tables of numbers, TensorBoard, the best checkpoint, stopping early.

A callback is a function of a `Moment`; all ranks call it with the same numbers. What it gives is whether to stop, or a
plan of the steps from the next one on, or a graph over the same parameters and states with its plan. All ranks give the
same.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from taskflow.checkpoint import files
from taskflow.core.numbers import real, whole
from taskflow.execute import Executor
from taskflow.graph.beside import in_job
from taskflow.graph.graph import Graph
from taskflow.schedule.plan import Plan
from taskflow.tasks.task_graph import Array, Kind
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
        graph, plan: of the steps as they are now.
    """

    step: int
    epoch: int
    outputs: Mapping[str, float]
    validation: Mapping[str, float] | None
    executor: Executor
    graph: Graph
    plan: Plan

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


Change = Plan | tuple[Graph, Plan]
Callback = Callable[[Moment], bool | Change | None]
_OTHER_NOTES = ("epoch", "position", "plan", "changed")  # of checkpoints
_LOOKS = 5  # steps that are measured before a look


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
            self.best = value
            self.waited = 0
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


@dataclass
class Rebalance:
    """Parts of samples by what their devices were measured to compute in a second: weighted dynamic batching.

    A gradient is a sum over samples, so the numbers of a step stay. Steps have to be recorded (`Executor(record=)`).
    Source: Hong and Chandra, "DLion: decentralized distributed deep learning in micro-clouds", HPDC 2021.

    Args:
        every: steps between two looks; the median of the last few counts.
        least_gain: share of the computing of the busiest device that a change has to save; less is noise.
    """

    every: int = 50
    least_gain: float = 0.05
    _seconds: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.every = whole("Rebalance", "every", self.every)
        self.least_gain = real("Rebalance", "least_gain", self.least_gain, 0)

    def __call__(self, moment: Moment) -> Plan | None:
        """Another plan, if it is time and pays."""
        left = -moment.step % self.every
        if moment.is_epoch or left >= _LOOKS:
            return None
        work, seconds = computing(moment.executor)
        self._seconds.append(seconds)
        if left:
            return None
        mine = work, np.median(self._seconds, axis=0)
        self._seconds.clear()
        work, seconds = np.max(moment.executor.transport.gather(mine), axis=0)
        rates = np.divide(work, seconds, out=np.zeros_like(work), where=seconds > 0)
        if not rates.any() or 1 - work.sum() / rates.sum() / seconds.max() < self.least_gain:
            return None
        return moment.plan.rebalanced(moment.graph, rates.tolist())


def computing(step: Executor) -> Array:
    """(2, devices) Operations and seconds of the points of every device in the last step; 0: another rank's."""
    rows = step.task_graph
    timeline = step.timeline
    seconds = np.nan_to_num(timeline.end - timeline.start)
    points = (rows.kind == Kind.POINT) & (seconds > 0)
    columns = rows.flops[points], seconds[points]
    devices = len(rows.machine.devices)
    return np.stack([np.bincount(rows.device[points], column, devices) for column in columns])


@dataclass
class Rungs:
    """Graphs of falling work over the same parameters and states, that training goes down, and up again.

    Args:
        graphs: make them, the most work first, which is that of the trainer.
        watch: an output of all.
        bounds: for each graph but the last, the mean of the output below which the next one trains.
        every: steps of a mean.
        margin: the graph before trains again where the mean is over its bound by this share.
    """

    graphs: Sequence[Callable[[], Graph]]
    watch: str
    bounds: Sequence[float]
    every: int = 20
    margin: float = 0.1
    rung: int = 0
    _values: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        where = f"Rungs('{self.watch}')"
        self.every = whole(where, "every", self.every)
        self.margin = real(where, "margin", self.margin, 0)
        if len(self.bounds) != len(self.graphs) - 1 or list(self.bounds) != sorted(
            self.bounds, reverse=True
        ):
            raise ValueError(
                f"{where}: {len(self.graphs)} graphs have a falling bound each but the last, "
                f"not {list(self.bounds)}"
            )

    def __call__(self, moment: Moment) -> Change | None:
        """Another graph, if the mean says so."""
        if moment.is_epoch or not moment.outputs:
            return None
        self._values.append(score(f"Rungs('{self.watch}')", moment, self.watch, "min"))
        if len(self._values) < self.every:
            return None
        mean = sum(self._values) / len(self._values)
        before = self.rung
        self._values.clear()
        if before < len(self.bounds) and mean < self.bounds[before]:
            self.rung += 1
        elif before and mean > self.bounds[before - 1] * (1 + self.margin):
            self.rung -= 1
        if self.rung == before:
            return None
        graph = self.graphs[self.rung]()
        return graph, replace(moment.plan, strategy=moment.plan.strategy.for_graph(graph))


@dataclass
class MergeBest:
    """Every so often the copy of a model with the lowest loss pulls the weights of the others towards its own.

    Copies are jobs beside each other (`taskflow.beside`), each with data of its own. Source: as of `Rebalance`.

    Args:
        copies: their jobs, whose parameters have equal names.
        loss: an output of each; a running mean counts.
        every: steps between two merges.
        weight: of the best weights; those of the others count 1 less that.
    """

    copies: Sequence[str]
    loss: str = "loss"
    every: int = 50
    weight: float = 0.75
    _losses: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.every = whole("MergeBest", "every", self.every)
        self.weight = real("MergeBest", "weight", self.weight, 0)

    def __call__(self, moment: Moment) -> None:
        """Merge, if it is time."""
        if moment.is_epoch or not moment.outputs:
            return
        for copy in self.copies:
            value = score("MergeBest", moment, f"{copy}.{self.loss}", "min")
            self._losses[copy] = 0.9 * self._losses.get(copy, value) + 0.1 * value
        if moment.step % self.every:
            return
        self._pull(moment, min(self.copies, key=self._losses.__getitem__))

    def _pull(self, moment: Moment, best: str) -> None:
        """Move the parameters of all other copies towards those of the best."""
        step = moment.executor
        for region in moment.graph.parameters:
            job, _, name = region.name.partition("/")
            if job == best:
                pulls = step.read(region.name)
                for other in (in_job(name, copy) for copy in self.copies if copy != best):
                    copied = step.read(other)
                    step.write(other, copied + self.weight * (pulls - copied))


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
        numbers = ", ".join({**moment.outputs, **(moment.validation or {})}) or "none"
        raise ValueError(f"{where}: there is no such number after the epoch; there are {numbers}")
    return (value if mode == "min" else -value) if isfinite(value) else inf


def check_places(callbacks: Sequence[object], checkpoint: str | Path | None) -> None:
    """ValueError where two write into one file or folder; `checkpoint`: the folder of the run."""
    owners = {} if checkpoint is None else {Path(checkpoint).resolve(): "checkpoint="}
    for k, callback in enumerate(callbacks):
        place = getattr(callback, "path", None) or getattr(callback, "folder", None)
        if isinstance(callback, CsvLog | TensorBoardLog | BestCheckpoint) and place is not None:
            other = owners.setdefault(Path(place).resolve(), f"callbacks[{k}]")
            if other != f"callbacks[{k}]":
                raise ValueError(
                    f"fit: {other} and callbacks[{k}] both write '{place}'; give one another place"
                )
