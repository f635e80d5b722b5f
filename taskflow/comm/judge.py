"""What ranks tell of themselves, and the judge who says which of them is at fault.

A rank notes what it does in cells (`Cell`), its guard makes a `Report` of them and of what the system knows, and the
centre has the last report of every rank (`guard`). `judge` decides purely. A rank that lives and is in no step may take
as long as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

# For which a rank waits in vain before the one that has left is called to account.
LEFT_SECONDS = 2.0
PHASES = ("import", "script", "search", "construction", "fit", "checkpoint", "between fits")
CELLS = 10
LINE_BYTES = 80  # what a call is, in a table
STATUS = b"status "  # begins what a rank tells its guard at the very end


def phase_of(number: int) -> str:
    """The phase of this number; after its own, those of exits from each."""
    is_exit, phase = divmod(number, len(PHASES))
    return f"exit (after {PHASES[phase]})" if is_exit else PHASES[phase]


class Cell(IntEnum):
    """The 8-byte numbers at the beginning of the memory that a rank shares with its guard.

    `COUNT` grows with every meeting of all ranks (an exchange, a step); all ranks come to the same ones. `WAITING`: it
    is in one that is no step. `TABLE`: where the table of the program begins whose step is under way, 0 between steps:
    the number of its calls; when the step began, and when each call ended; a line for each call and for what comes
    after them, which begins with "wait" if it may be waiting for other ranks. `ITERATOR`: where in the rank's memory
    the number of its calls begun is; 0: the table has the times. `COMPILING`: so many compilations are under way.
    `PORT`: where rank 0's guard hears other hosts. `IS_KNOWN`: the guard has told the centre of this rank.
    """

    COUNT, WAITING, PHASE, STEP, TABLE, ITERATOR, COMPILING, STAGE, PORT, IS_KNOWN = range(CELLS)


class Stage(IntEnum):
    """How far the end of a rank is.

    `SAID`: it ends all ranks itself, and has said why. `FAILED`: it leaves with a status that has the launcher end all.
    """

    RUNS, LEAVING, DONE, SAID, FAILED = range(5)


class RankState(IntEnum):
    """What the system says of a process."""

    RUNS, STOPPED, GONE = range(3)


class Fault(IntEnum):
    """What can be wrong with a rank."""

    DIED, STOPPED, STANDS, LEFT, LOST, SAID, FAILED = range(7)


class Report(NamedTuple):
    """What a guard tells of its rank.

    `step` is -1 between steps. `waits`: for others, in a meeting or in a call of the step. `still` and `stopped`: for
    how many milliseconds it has been at this place, compiling not counted, and stopped. `token` is that of the job.
    """

    token: int
    rank: int
    state: int
    stage: int
    meetings: int
    step: int
    waits: int
    still: int
    stopped: int
    phase: int


def judge(
    ranks: Mapping[int, Report], size: int, patience: float, is_gone: Callable[[int], bool]
) -> tuple[int, Fault] | None:
    """The rank at fault and its fault, None where all is well.

    Args:
        ranks: the last report of every rank that has sent one.
        size: number of ranks.
        patience: seconds; 0: for ever.
        is_gone: whether a rank that has sent no report has ended.
    """
    every = [ranks[rank] for rank in sorted(ranks)]
    limit = patience * 1e3 or float("inf")
    for report in every:
        if report.stage == Stage.SAID:
            return report.rank, Fault.SAID
    for report in every:
        if report.stage == Stage.FAILED:
            return report.rank, Fault.FAILED

    def missing(meetings: int) -> tuple[int, Fault] | None:
        """Who has left without a meeting of this number."""
        for rank in range(size):
            report = ranks.get(rank)
            if (
                is_gone(rank)
                if report is None
                else report.stage >= Stage.LEAVING and report.meetings < meetings
            ):
                return rank, Fault.LEFT
        return None

    for report in every:
        if (
            report.state == RankState.GONE and report.stage < Stage.DONE
        ):  # who waited in vain was ended by the launcher
            leaver = missing(report.meetings) if report.waits and report.step < 0 else None
            return leaver or (report.rank, Fault.DIED)
    stopped = [r for r in every if r.stopped >= limit]
    if stopped and (
        len(stopped) < size or size == 1
    ):  # all of several: someone has suspended the job
        return stopped[0].rank, Fault.STOPPED
    still = [r for r in every if r.step >= 0 and r.still >= limit and r.state == RankState.RUNS]
    at_work = [r for r in still if not r.waits]
    if at_work or len(still) == size:  # who waits is not at fault, unless all do
        return (at_work or still)[0].rank, Fault.STANDS
    in_vain = max(
        (r.meetings for r in every if r.waits and r.still >= LEFT_SECONDS * 1e3), default=-1
    )
    return missing(in_vain) if in_vain >= 0 else None
