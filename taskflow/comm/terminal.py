"""Whether a person watches what this process writes, or a file or pipe takes it.

mpirun gives the output of every rank a pseudo-terminal, wherever its own output goes; so a rank looks at that of its
launcher. On a host without the launcher, and where there is no /proc, nobody watches.
"""

from __future__ import annotations

import os
from typing import TextIO

from taskflow.comm.ending import find_launcher
from taskflow.core.system import world_size

_TERMINALS = "/dev/pts/", "/dev/tty", "/dev/console"


def is_watched(file: TextIO) -> bool:
    """Whether `file`, this process's standard output or error, ends in a terminal."""
    if not file.isatty() or not world_size(0):
        return file.isatty()
    try:
        return os.readlink(f"/proc/{find_launcher()}/fd/{file.fileno()}").startswith(_TERMINALS)
    except OSError:
        return False
