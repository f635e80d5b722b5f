"""Ending: all ranks end together, whatever ends one of them; without this the others wait for ever.

* An exception that nobody catches: MPI's abort, from Python's hook.
* Leaving (`sys.exit`) in the middle of what all ranks do together, see `phase`: the same. Python shows `SystemExit` to
  no hook, so elsewhere only `taskflow run` sees an error in it (`rank`).
* What a rank cannot say itself, since it is killed, stopped, in a kernel without end or gone: its `guard`.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from taskflow.comm.heart import heart
from taskflow.comm.judge import PHASES, Cell, Stage, phase_of
from taskflow.core.system import STOPPING, world_rank

_WHERE = "_taskflow_phase"  # attribute of an error: the innermost phase that it has left


def end_together() -> None:
    """From now on this process, if it is a rank, has a guard, and an error that it does not catch ends all ranks."""
    if heart().is_guarded:
        sys.excepthook = _end_all
        atexit.register(heart().approach_end, Stage.DONE)  # after what is registered later
        register = getattr(
            threading, "_register_atexit", atexit.register
        )  # before what `atexit` calls
        register(_begin_exit)


def await_guard() -> None:
    """From now on it is said how this process ends, however soon and fast it does."""
    heart().await_guard()


def _begin_exit() -> None:
    """The guard then says after which phase a rank left."""
    heart().cells[Cell.PHASE] += len(PHASES)


def enter(phase: str) -> int:
    """Note the phase of this rank; gives the number of the one before."""
    cells = heart().cells
    before = cells[Cell.PHASE]
    cells[Cell.PHASE] = PHASES.index(phase)
    return before


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Note what this rank does meanwhile.

    Leaving Python in it ends all ranks; in a fit only with an error, for there all ranks may leave alike.
    """
    before = enter(name)
    try:
        yield
    except BaseException as error:
        note_phase(error, name)
        if isinstance(error, SystemExit):
            end_all_leaving(error, is_alone=name != "fit")
        raise
    finally:
        heart().cells[Cell.PHASE] = (
            PHASES.index("between fits") if name == "fit" else max(before, 1)
        )


def note_phase(error: BaseException, name: str) -> None:
    """Keep in an error where it was raised; who keeps first is right."""
    vars(error).setdefault(_WHERE, name)


def _end_all(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text: Sequence[str] = traceback.format_exception(kind, error, trace)
    status = 128 + signal.SIGINT if issubclass(kind, KeyboardInterrupt) else 1
    if not end_all_ranks(status, "failed", error, "".join(text)):
        sys.stderr.write("".join(text))


def end_all_leaving(leave: SystemExit, is_alone: bool = False) -> None:
    """Where other ranks count on this one: leaving Python with an error, or alone, ends all ranks.

    With the status of a signal that asks for an end all leave, so none has to be ended by another.
    """
    is_asked = leave.code in {128 + number for number in STOPPING}
    if (leave.code or is_alone) and not is_asked:
        status = leave.code if leave.code and isinstance(leave.code, int) else 1
        end_all_ranks(status, f"leaves with {leave.code!r}", leave)


def end_all_ranks(
    status: int, what: str, error: BaseException | None = None, text: str = ""
) -> bool:
    """End all ranks at once, saying what this one did; from any thread. False if this process is no rank.

    A rank that has not joined MPI yet has said why; the launcher ends all when it leaves.
    """
    if not heart().is_guarded:
        return False
    heart().approach_end(Stage.SAID)
    where = vars(error).get(_WHERE) or phase_of(heart().cells[Cell.PHASE])
    sys.stderr.write(f"taskflow: rank {world_rank()} {what} in {where} and ends all ranks\n{text}")
    sys.stderr.flush()
    mpi = sys.modules.get("mpi4py.MPI")  # to ask loads nothing
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(status)
    return True
