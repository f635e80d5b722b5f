"""Output for people: drawn tables and bars that move on a terminal, plain lines in a file or a pipe.

Importing rich takes a tenth of all imports: it waits until something is shown.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from taskflow.comm.heart import find_launcher
from taskflow.core.system import world_size
from taskflow.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from taskflow.report.explanation import Table

_TERMINALS = "/dev/pts/", "/dev/tty", "/dev/console"
LINE_SECONDS = 10.0  # between two lines that say how far something is

ShowProgress = Callable[[float, float | None, str], None]  # done, of how many, what


def is_watched(file: TextIO) -> bool:
    """Whether `file`, this process's standard output or error, ends in a terminal.

    mpirun gives the output of every rank a pseudo-terminal, wherever its own output goes; so a rank looks at that of
    its launcher. On a host without the launcher, and where there is no /proc, nobody watches.
    """
    if not file.isatty() or not world_size(0):
        return file.isatty()
    try:
        return os.readlink(f"/proc/{find_launcher()}/fd/{file.fileno()}").startswith(_TERMINALS)
    except OSError:
        return False


def make_console(stderr: bool = False, quiet: bool = False) -> Console:
    """A console on standard output or error, which prints text as it is; without a terminal it breaks no lines."""
    from rich.console import Console

    file = sys.stderr if stderr else sys.stdout
    force = None if is_watched(file) == file.isatty() else False
    console = Console(stderr=stderr, quiet=quiet, force_terminal=force, markup=False, emoji=False)
    console.soft_wrap = not console.is_terminal
    return console


def print_table(console: Console, table: Table) -> None:
    """Print a table whose first row is the head; names in it may hold anything."""
    if not console.is_terminal:
        from taskflow.report.explanation import align

        console.print(align(table), highlight=False)
        return
    from rich.table import Table as RichTable

    drawn = RichTable(*map(printable, table[0]))
    for row in table[1:]:
        drawn.add_row(*map(printable, row))
    console.print(drawn)


@contextmanager
def show_progress(console: Console, line_every: int | None = None) -> Iterator[ShowProgress]:
    """A bar that vanishes at the end; without a terminal a line every `LINE_SECONDS`, or every so many calls.

    Gives what is called to move on.
    """
    if not console.is_terminal:
        yield _print_every(console, line_every) if line_every else _print_now_and_then(console)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=console.quiet, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(
            task, completed=done, total=total, description=text
        )


def _print_now_and_then(
    console: Console, clock: Callable[[], float] = time.monotonic
) -> ShowProgress:
    last = clock()

    def show(done: float, total: float | None, text: str) -> None:
        nonlocal last
        if clock() - last >= LINE_SECONDS:
            last = clock()
            console.print(text if total is None else f"{text}, {done / total:.0%} done")

    return show


def _print_every(console: Console, count: int) -> ShowProgress:
    calls = 0

    def show(done: float, total: float | None, text: str) -> None:
        nonlocal calls
        calls += 1
        if calls % count == 0:
            console.print(text if total is None else f"{text}, {done / total:.0%} done")

    return show


class _CompilingLines(logging.Handler):
    """Says that functions are compiled, and how many so far: at once on a terminal, else now and then."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.INFO)
        self._console = console
        self._clock = clock
        self._count = 0
        self._last = clock() - LINE_SECONDS * console.is_terminal

    def emit(self, record: logging.LogRecord) -> None:
        """One more function is compiled."""
        self._count += 1
        if self._clock() - self._last >= LINE_SECONDS:
            self._last = self._clock()
            text = f"compiling, first run only: function {self._count}, {record.getMessage()}"
            self._console.print(text, highlight=False)


def show_compiling(console: Console) -> None:
    """From now on say on this console, instead of an earlier one, what is compiled."""
    log = logging.getLogger("taskflow.compiling")
    log.handlers = [
        handler for handler in log.handlers if not isinstance(handler, _CompilingLines)
    ] + [_CompilingLines(console)]
    log.setLevel(logging.INFO)
