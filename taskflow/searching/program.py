"""The rows of the current strategy of a judge, laid out so that one pass over them is fast.

Every row is a line of numbers: two streams that it occupies, the places of two ends that it waits for, and where there
are more of either. Lines name the places of ends, not rows, so a stretch whose neighbours stay the same stays as it
lies when others before it have more rows or fewer (`laying`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from taskflow.tasks.task_graph import Array

if TYPE_CHECKING:
    from taskflow.searching.critical import Path
    from taskflow.tasks.streams import Queues

ROOM = 3  # times the rows of a strategy: what proposals and changes take until all is laid anew


class Program:
    """See the module.

    Args:
        stretches: number of stretches.
        streams: number of streams.
        marks: number of places along the way where the state is remembered, at most.

    Attributes:
        rows: rows of the current strategy.
        top: see `laying`.
        place, new_place: (stretches, 4) first line of each, place of its first end, number of rows, first of them in
            the pool; of the current and the proposed strategy, which differ in `laid[: top[LAID]]`.
        stamp: per stretch when it was laid last.
        code: (n, 8) of every line: two streams (the same where there is one); the places of two ends (0: none); the
            first of further ends in `chain`, or 0; the set of its streams where there are more than four, or 0, which
            is a set of one; two further streams (the first again where there is none).
        seconds: of every line.
        chain: (n, 4) the place of an end, the step to the next, how many (negative: the earliest of them counts);
            and more of the same line, or 0.
        end, new_end: ends of rows, the first being no row's.
        every, marks, new_marks: see `resimulate`.
        path: the critical path of the current strategy, if it `is_traced`.
    """

    def __init__(self, stretches: int, streams: int, marks: int) -> None:
        self.top = np.zeros(9, np.int64)
        self.place, self.new_place = np.zeros((stretches, 4), np.int64), np.zeros((stretches, 4), np.int64)
        self.laid, self.stamp = np.zeros(stretches, np.int64), np.zeros(stretches, np.int64)
        self.every = -(-stretches // marks)
        self.marks, self.new_marks = (np.zeros((stretches // self.every + 1, 2 * streams)) for _ in range(2))
        self.rows = 0
        self.path: Path
        self._make_room(0)

    def _make_room(self, rows: int) -> None:
        from taskflow.searching.critical import no_path  # numba: imported on first use

        self.code, self.seconds = np.zeros((rows, 8), np.uint32), np.zeros(rows)
        self.chain = np.zeros((rows, 4), np.int32)
        self.end, self.new_end = np.zeros(rows + 1), np.zeros(rows + 1)
        self.path, self.is_traced = no_path(len(self.place), rows, rows + 1), False

    def clear(self, more: int) -> None:
        """No lines, all of which are to be laid anew, and room for `more`; the ends of the current strategy stay."""
        ends, lines = self.ends, int(self.top[0])
        room = ROOM * (len(ends) + more)
        if lines <= len(ends):  # nothing was to be gained
            room = max(room, 2 * len(self.code))
        if room > len(self.code):
            self._make_room(room)
        self.end[1 : 1 + len(ends)] = ends
        self.place[:, 1] = np.cumsum(self.place[:, 2]) - self.place[:, 2] + 1
        self.new_place[:] = self.place
        self.top[:] = self.stamp[:] = 0
        self.top[1], self.top[2] = 1 + len(ends), 1
        self.path.known[:] = 0
        self._forget_path()

    def trace(self, queues: Queues) -> None:
        """Find the critical path of the current strategy, if it is not known."""
        from taskflow.searching.critical import trace  # numba: imported on first use

        if not self.is_traced:
            trace(
                self.place,
                self.code,
                self.seconds,
                self.chain,
                self.end,
                *queues.columns,
                queues.count,
                tuple(self.path),
            )
            self.is_traced = True

    def _forget_path(self) -> None:
        first, end = self.path.ptr[0], self.path.ptr[-1]
        self.path.line[self.path.code[first:end, 2]] = 0
        self.path.ptr[:], self.is_traced = 0, False

    def accept(self) -> None:
        """The proposed strategy is the current one."""
        self._forget_path()
        laid = self.laid[: self.top[6]]
        self.rows += int(self.new_place[laid, 2].sum() - self.place[laid, 2].sum())
        self.place[laid] = self.new_place[laid]
        self.top[:3] = self.top[3:6]
        self.end, self.new_end = self.new_end, self.end
        self.marks, self.new_marks = self.new_marks, self.marks

    @property
    def ends(self) -> Array:
        """When each of them ends, in row order."""
        number = self.place[:, 2]
        first = np.cumsum(number) - number
        found: Array = self.end[np.arange(number.sum()) + np.repeat(self.place[:, 1] - first, number)]
        return found
