"""A collective spelled out: its steps on some devices as columns, once for all rows that are like it.

Arguments and pieces of memory are numbers of the collective, so that only instances differ from row to row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.tasks.carry import COPY, StepColumns
from taskflow.tasks.task_graph import JOINED, Kind, Privilege, TaskGraph


class AddedInstances(NamedTuple):
    """Instances that a collective adds: for arguments that its row lacks, then for boxes that no instance holds.

    Attributes:
        place: of the argument in whose memory it lies, the number among those that the row has; -1: the row lacks it.
        within: the piece in whose memory it lies, where the row lacks the argument; of such an argument, itself.
        offset: bytes behind the beginning of that memory.
        box: (pieces, 2, dimensions).
        device, is_partial: see `TaskGraph`.
    """

    place: Array
    within: Array
    offset: Array
    box: Array
    device: Array
    is_partial: Array


class Spelled(NamedTuple):
    """The steps of a collective.

    Attributes:
        columns: of every step, where they differ from those of the collective.
        args: how many arguments every step has.
        place: of every argument of every step, the number among those that the row has; -1: a piece.
        piece: its number; -1: none.
        box, privilege: of every argument.
        pieces: see there.
    """

    columns: dict[str, Array]
    args: Array
    place: Array
    piece: Array
    box: Array
    privilege: Array
    pieces: AddedInstances


def spell(task_graph: TaskGraph, row: int, is_own: Array) -> Spelled:
    """The steps of the collective `row` that touch the devices that are marked."""
    return _Speller(task_graph, row, is_own).spell()


class _Speller:
    """Spells a collective: it has all arguments, and says which of these the row has."""

    def __init__(self, task_graph: TaskGraph, row: int, is_own: Array) -> None:
        self.table, number = task_graph.with_all_arguments(row)
        self.exchange = self.table.exchange(number)
        self.region = task_graph.regions[int(task_graph.region[row])]
        self.name = int(task_graph.collective[row])
        self.steps = self.exchange.steps_on(is_own)
        self.device = np.array(self.exchange.devices, np.int64)
        self.instance = np.array(self.exchange.instances, np.int64)
        args = slice(*task_graph.arg_ptr[row : row + 2].tolist())
        there = task_graph.instance_device[task_graph.arg_instance[args]]
        self.is_there = np.isin(self.device, there)

    def spell(self) -> Spelled:
        """See `Spelled`."""
        is_fold = self.steps.added != COPY
        args = np.where(is_fold, 3, 2)
        argument, privilege = _arguments(self.steps, pointers(args), self.instance)
        step = np.repeat(np.arange(len(args)), args)
        box = self._padded()[step]
        place, piece, pieces = self._placed(argument, step, box)
        return Spelled(self._columns(is_fold), args, place, piece, box, privilege, pieces)

    def _columns(self, is_fold: Array) -> dict[str, Array]:
        """See `Spelled`."""
        steps = self.steps
        device = self.device[steps.target]
        source = self.device[steps.part]
        size = np.prod(steps.box[:, 1] - steps.box[:, 0], axis=1) * self.region.itemsize
        return {
            "kind": np.where(is_fold, Kind.FOLD, Kind.COPY),
            "point": steps.number,
            "device": device,
            "source": source,
            "collective": np.where(source != device, self.name, 0),
            "algorithm": np.where(steps.follows, JOINED, -1),
            "bytes": np.where(is_fold, 3, 1) * size,
        }

    def _placed(
        self, argument: Array, step: Array, box: Array
    ) -> tuple[Array, Array, AddedInstances]:
        """Place and piece of every argument of every step, and the pieces."""
        leads = np.unique(self.instance, return_index=True)[1]
        lead = leads[np.searchsorted(self.instance[leads], self.instance)][argument]
        low, high = self.table.instance_box[self.instance[lead]].swapaxes(0, 1)
        is_passing = argument >= self.exchange.scratch.start
        is_held = ((low <= box[:, 0]) & (box[:, 1] <= high)).all(axis=1)
        is_cut = is_passing | ~is_held

        lacking = np.unique(lead[~self.is_there[lead]])
        offset = np.where(is_passing, self.steps.offset[step] * self.region.itemsize, 0)
        table = np.column_stack([lead, offset, box.reshape(len(box), -1)])[is_cut]
        cuts, which = np.unique(table, axis=0, return_inverse=True)
        number = np.full(len(self.device), -1)
        number[lacking] = np.arange(len(lacking))
        piece = number[lead]
        piece[is_cut] = len(lacking) + which.reshape(-1)
        places = np.where(self.is_there, pointers(self.is_there)[:-1], -1)
        return np.where(piece < 0, places[lead], -1), piece, self._pieces(lacking, cuts, places)

    def _pieces(self, lacking: Array, cuts: Array, places: Array) -> AddedInstances:
        """Pieces for the arguments that the row lacks, and for those cut: argument, offset and box of each."""
        argument = np.concatenate([lacking, cuts[:, 0]])
        instance = self.instance[argument]
        whole = self.table.instance_box[self.instance[lacking]]
        return AddedInstances(
            places[argument],
            np.searchsorted(lacking, argument),
            np.concatenate([np.zeros_like(lacking), cuts[:, 1]]),
            np.concatenate([whole, cuts[:, 2:].reshape(-1, *whole.shape[1:])]),
            self.device[argument],
            self.table.instance_partial[instance],
        )

    def _padded(self) -> Array:
        """The boxes of the steps as columns have them: (0, 0) in the dimensions that the region lacks."""
        ndim = self.region.ndim
        shape = self.table.instance_box.shape[1:]
        boxes = np.zeros((len(self.steps.box), *shape), np.int64)
        boxes[:, :, :ndim] = self.steps.box[:, :, :ndim]
        return boxes


def _arguments(steps: StepColumns, begin: Array, instance: Array) -> tuple[Array, Array]:
    """The arguments of all steps in turn, and their privileges: a copy reads, then writes; a fold writes first."""
    is_fold = steps.added != COPY
    first = begin[:-1]
    argument = np.empty(begin[-1], np.int64)
    privilege = np.full(begin[-1], Privilege.READ)
    target = np.where(is_fold, first, first + 1)
    argument[target] = steps.target
    argument[np.where(is_fold, first + 1, first)] = steps.part
    argument[first[is_fold] + 2] = steps.added[is_fold]
    is_same = instance[steps.target] == instance[steps.part]
    privilege[target] = np.where(is_same, Privilege.READ_WRITE, Privilege.WRITE)
    return argument, privilege.astype(np.uint8)
