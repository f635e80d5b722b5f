"""Where a training run stands, and keeping it: what `Trainer.fit` needs to go on as if it had never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from msgspec import Meta, Struct, field, to_builtins

from taskflow.checkpoint.files import load, save_owned
from taskflow.checkpoint.folder import latest, owning
from taskflow.checkpoint.manifest import Manifest
from taskflow.core.files import fit, naming
from taskflow.execute import Executor

Count = Annotated[int, Meta(ge=0)]


class History(Struct, forbid_unknown_fields=True):
    """What `fit` saw: one entry per epoch in each list, by output name; `step_seconds` is the median step's time."""

    outputs: dict[str, list[float]] = field(default_factory=dict)
    validation: dict[str, list[float]] = field(default_factory=dict)
    step_seconds: Annotated[float, Meta(ge=0)] = 0.0


class Position(Struct, forbid_unknown_fields=True):
    """Where a run stands between two steps.

    Attributes:
        batches: batches an epoch.
        epoch: the epoch under way, from 0.
        batch: batches of it that are done.
        sums: output name -> its sum over those batches.
        history: of the epochs before.
    """

    batches: Count
    epoch: Count = 0
    batch: Count = 0
    sums: dict[str, float] = field(default_factory=dict)
    history: History = field(default_factory=History)

    def pass_batch(self, values: Mapping[str, float]) -> None:
        """One more batch of this epoch gave these values."""
        self.batch += 1
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def pass_epoch(self, validation: Mapping[str, float]) -> None:
        """This epoch is over."""
        means = {name: total / self.batch for name, total in self.sums.items()}
        for lists, values in ((self.history.outputs, means), (self.history.validation, validation)):
            for name, value in values.items():
                lists.setdefault(name, []).append(value)
        self.epoch, self.batch, self.sums = self.epoch + 1, 0, {}


def position_of(found: Path, manifest: Manifest) -> Position:
    """Where the run stood that saved the checkpoint `found`; ValueError if that is not in it."""
    if "position" not in manifest.notes:
        raise ValueError(f"fit: '{found}' was not saved by a training run: it has no position in it")
    with naming(f"fit: '{found}': its position"):
        return fit(manifest.notes["position"], Position)


class Keeper:
    """Keeps a run in a folder of checkpoints, which it owns between `with` and its end.

    Args:
        step: the executor that trains.
        folder: of the checkpoints; None keeps nothing.
        every: steps between two checkpoints; None: one after each epoch.
        keep: checkpoints to leave.

    Raises:
        ValueError: `every` is not positive.
    """

    def __init__(self, step: Executor, folder: str | Path | None, every: int | None, keep: int) -> None:
        if every is not None and every < 1:
            raise ValueError(f"fit: every is at least 1 step, not {every}")
        self.step, self.every, self.keep = step, every, keep
        self.folder = None if folder is None else Path(folder)
        self._saved, self._owned = -1, ExitStack()

    def __enter__(self) -> Self:
        """Own the folder; ValueError if another run does."""
        if self.folder is not None:
            self._owned.enter_context(owning(self.folder, self.step.transport))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._owned.close()

    def resume(self, batches: int, wanted: bool) -> Position:
        """The position of the newest checkpoint, loaded into the executor; the start if there is none.

        Raises:
            ValueError: the checkpoint is damaged, of another graph or in the middle of an epoch of other batches; or
                there is one and it is not `wanted`.
        """
        if self.folder is None:
            return Position(batches)
        found = self.step.transport.gather(latest(self.folder))[0]  # rank 0's view of the disk
        if found is None:
            return Position(batches)
        if not wanted:
            raise ValueError(
                f"fit: '{self.folder}' holds '{found.name}' of another run; resume it or give another folder"
            )
        position = position_of(found, load(self.step, found))
        if position.batch and not position.batch <= position.batches == batches:
            raise ValueError(
                f"fit: '{found}' was saved after batch {position.batch} of {position.batches} in its epoch; "
                f"an epoch has {batches} batches here"
            )
        position.batches, self._saved = batches, self.step.steps
        return position

    def keep_up(self, position: Position) -> None:
        """Save if a checkpoint is due here."""
        due = position.batch == position.batches if self.every is None else self.step.steps % self.every == 0
        if due:
            self.save(position)

    def save(self, position: Position) -> None:
        """Save, unless this step was saved already."""
        if self.folder is not None and self._saved != self.step.steps:
            save_owned(self.step, self.folder, self.keep, {"position": to_builtins(position)})
            self._saved = self.step.steps
