"""The command line: `taskflow run -n 4 script.py ...` or `python -m taskflow ...`; one file for each subcommand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from taskflow.cli import run

SUBCOMMANDS = (run,)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit status: 2, and one line, where the user is mistaken."""
    parser = argparse.ArgumentParser(prog="taskflow", description="A task runtime for deep learning.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="command")
    for subcommand in SUBCOMMANDS:
        subcommand.add_parser(commands)
    options = parser.parse_args(argv)
    try:
        status: int = options.act(options)
    except ValueError as error:
        sys.stderr.write(f"taskflow: {error}\n")
        return 2
    return status


def _version() -> str:
    try:
        return f"taskflow {version('taskflow-dl')}"
    except PackageNotFoundError:
        return "taskflow (not installed)"
