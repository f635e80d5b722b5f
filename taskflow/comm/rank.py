"""One rank of `taskflow run`: `python -m taskflow.comm.rank script.py ...` or `... -m module ...`.

Runs the script as `python` would. When it leaves with an error (`sys.exit("...")`) on this rank alone, all ranks end at
once; under plain mpirun they do when one of them waits for it.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from taskflow.comm.ending import end_all_leaving


def main(arguments: Sequence[str]) -> None:
    """Run the script or module that `arguments` name."""
    try:
        if arguments[0] == "-m":
            sys.argv = list(arguments[1:])
            sys.path[0] = os.getcwd()
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(arguments)
            sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as leave:
        end_all_leaving(leave)
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
