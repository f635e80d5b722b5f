"""Where a training run stands, and keeping it: what `Trainer.fit` needs to go on as if it had never stopped."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

from msgspec import Meta, Struct, field, to_builtins

from taskflow.checkpoint.files import find_checkpoint, load, save_owned
from taskflow.checkpoint.folder import fall_back, latest, owning
from taskflow.checkpoint.manifest import Manifest, read_manifest
from taskflow.core.columns import Array
from taskflow.core.files import fit, naming
from taskflow.core.system import restart_number
from taskflow.execute import Executor
from taskflow.schedule.plan import Plan

Count = Annotated[int, Meta(ge=0)]

_log = logging.getLogger(__name__)


class History(Struct, forbid_unknown_fields=True):
    """What `fit` saw: one entry per epoch in each list, by output name; `step_seconds` is the median step's time.

    `refused` is the number of batches that changed nothing, since not all was finite.
    """

    outputs: dict[str, list[float]] = field(default_factory=dict)
    validation: dict[str, list[float]] = field(default_factory=dict)
    step_seconds: Annotated[float, Meta(ge=0)] = 0.0
    refused: Count = 0


class Position(Struct, forbid_unknown_fields=True):
    """Where a run stands between two steps.

    Attributes:
        batches: batches an epoch.
        epoch: the epoch under way, from 0.
        batch: batches of it that are done.
        sums: output name -> its sum over those batches, without those that were refused.
        refused: how many of them were.
        history: of the epochs before.
    """

    batches: Count
    epoch: Count = 0
    batch: Count = 0
    sums: dict[str, float] = field(default_factory=dict)
    history: History = field(default_factory=History)
    refused: Count = 0

    def pass_batch(self, values: Mapping[str, float] | None) -> None:
        """One more batch of this epoch gave these values; None: it was refused."""
        self.batch += 1
        if values is None:
            self.refused += 1
            self.history.refused += 1
            return
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def pass_epoch(self, validation: Mapping[str, float]) -> None:
        """This epoch is over.

        Raises:
            FloatingPointError: all of its batches were refused.
        """
        if self.batch and self.refused == self.batch:
            raise FloatingPointError(
                f"epoch {self.epoch + 1}: no batch of {self.batch} gave finite numbers"
            )
        means = {name: total / (self.batch - self.refused) for name, total in self.sums.items()}
        for lists, values in ((self.history.outputs, means), (self.history.validation, validation)):
            for name, value in values.items():
                lists.setdefault(name, []).append(value)
        self.epoch = self.epoch + 1
        self.batch = 0
        self.sums = {}
        self.refused = 0


def position_of(path: Path, manifest: Manifest) -> Position:
    """Where the run stood that saved the checkpoint `path`; ValueError if that is not in it."""
    if "position" not in manifest.notes:
        raise ValueError(f"fit: '{path}' was not saved by a training run: it has no position in it")
    with naming(f"fit: '{path}': its position"):
        return fit(manifest.notes["position"], Position)


def plan_notes(plan: Plan) -> dict[str, Any]:
    """What a checkpoint keeps of a plan; nothing of one whose schedule is a function, which no file holds."""
    try:
        return {"plan": plan.to_table()}
    except ValueError:
        return {}


def plan_of(folder: str | Path) -> Plan | None:
    """The plan of the run that saved a checkpoint, or the newest one in a folder; None if it recorded none.

    Raises:
        ValueError: there is no checkpoint, or it is damaged.
    """
    path = find_checkpoint(Path(folder))
    manifest = read_manifest(path)
    if "plan" not in manifest.notes:
        return None
    with naming(f"checkpoint '{path}': its plan"):
        return Plan.of_table(fit(manifest.notes["plan"], dict[str, Any]))


class Keeper:
    """Keeps the last finite state of a run: in a folder of checkpoints, or else in memory. The folder is
    its own between `with` and its end.

    A state with a number that is not finite is never kept, so nor is it ever the only one. Regions that are not finite
    from the start, as bounds may be, do not count; nothing does where the executor allows it.

    `changed` is the plan of the checkpoint that was resumed, if a callback had given it.

    Args:
        step: the executor that trains.
        folder: of the checkpoints; None keeps a copy in memory.
        every: steps between two checkpoints; None: one after each epoch.
        keep: checkpoints to leave.
        goes_back: when a number is not finite, go on from the last finite state; else raise.
        notes: what every checkpoint keeps beside the position.
    """

    def __init__(
        self,
        step: Executor,
        folder: str | Path | None,
        every: int | None,
        keep: int,
        goes_back: bool = False,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        self.step = step
        self.every = every
        self.keep = keep
        self.goes_back = goes_back
        self.folder = None if folder is None else Path(folder)
        self.notes = notes or {}
        self._saved = -1
        self._owned = ExitStack()
        self.changed: Plan | None = None
        self._boundless = step.regions.not_finite()
        self._copy: tuple[int, dict[int, Array]] | None = (step.steps, step.regions.keep())

    def __enter__(self) -> Self:
        """Own the folder; ValueError if another run does."""
        if self.folder is not None:
            self._owned.enter_context(owning(self.folder, self.step.transport))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._owned.close()

    def resume(self, batches: int, wanted: bool) -> Position:
        """The position of the newest checkpoint, loaded into the executor; the start if there is none.

        Raises:
            ValueError: the checkpoint is damaged, of another graph or in the middle of an epoch of other batches; or
                there is one and it is not `wanted`.
        """
        if self.folder is None:
            return Position(batches)
        look = fall_back if restart_number() else latest
        folder = self.folder
        path = self.step.transport.on_rank_0(lambda: look(folder))
        if path is None:
            return Position(batches)
        if not wanted:
            raise ValueError(
                f"fit: '{self.folder}' holds '{path.name}' of another run; resume it or give another folder"
            )
        manifest = load(self.step, path)
        position = position_of(path, manifest)
        if manifest.notes.get("changed"):
            self.changed = plan_of(path)
        if position.batch and not position.batch <= position.batches == batches:
            raise ValueError(
                f"fit: '{path}' was saved after batch {position.batch} of {position.batches} in its epoch; "
                f"an epoch has {batches} batches here"
            )
        position.batches = batches
        self._saved = self.step.steps
        self._copy = None
        return position

    def keep_up(self, position: Position) -> None:
        """Save if a checkpoint is due here."""
        due = (
            position.batch == position.batches
            if self.every is None
            else self.step.steps % self.every == 0
        )
        if due:
            self.save(position)

    def save(self, position: Position) -> None:
        """Save, unless this step was saved already; `go_back` if the state is not finite."""
        if self._saved == self.step.steps:
            return
        not_finite = (
            set() if self.step.allow_nan else self.step.regions.not_finite() - self._boundless
        )
        if not_finite:
            self.go_back(
                FloatingPointError(
                    f"step {self.step.steps - 1}: not all numbers of '{min(not_finite)}' are finite"
                )
            )
        elif self.folder is None:
            self._copy = self.step.steps, self.step.regions.keep()
        else:
            save_owned(
                self.step,
                self.folder,
                self.keep,
                {**self.notes, "position": to_builtins(position)},
            )
            self._copy = None
        self._saved = self.step.steps

    def go_back(self, error: FloatingPointError) -> None:
        """To the last finite state: that of the last save, or that from before the first one.

        Raises:
            FloatingPointError: always, but where the run goes on from there.
        """
        if self._copy is not None:
            self.step.regions.restore(self._copy[1])
            self.step.continue_from(self._copy[0], self.step.seed)
        elif self.folder is not None:
            load(self.step, self.folder)
        what = str(error).partition("; ")[
            0
        ]  # where it goes on to say that nothing has changed, more does now
        message = f"{what}; the state is again that after {self.step.steps} steps"
        if not self.goes_back:
            raise FloatingPointError(message) from error
        if self.step.transport.rank == 0:
            _log.warning(message)
