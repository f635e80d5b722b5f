"""The command line: `taskflow run -n 4 script.py ...`, `taskflow machine p100`, or `python -m taskflow ...`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from taskflow import machine_command
from taskflow.launch import count_cores, launch_environment, rank_command, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit status."""
    parser = argparse.ArgumentParser(prog="taskflow", description="A task runtime for deep learning.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="command")
    run = commands.add_parser(
        "run",
        help="run a script on several ranks",
        description="Run a Python script on several ranks. The exit status is the script's; the first Ctrl-C or "
        "SIGTERM lets a Trainer finish its step and save a checkpoint, a second one ends all ranks at once.",
    )
    run.add_argument("-n", dest="ranks", type=_positive, help="number of ranks (default: one per core)")
    run.add_argument("--threads", type=_positive, help="BLAS threads of each rank (default: cores // ranks)")
    run.add_argument("--mpirun", default="", metavar="OPTIONS", help="further options of mpirun, as one word")
    run.add_argument("-m", dest="is_module", action="store_true", help="the script is the name of a module")
    run.add_argument("script", help="a Python file")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    run.set_defaults(act=_run)
    machine_command.add_parser(commands)
    options = parser.parse_args(argv)
    try:
        status: int = options.act(options)
    except ValueError as error:
        sys.stderr.write(f"taskflow: {error}\n")
        return 2
    return status


def _run(options: argparse.Namespace) -> int:
    if not options.is_module and not Path(options.script).is_file():
        raise ValueError(f"run: there is no file '{options.script}'")
    ranks = options.ranks or count_cores()
    further = shlex.split(options.mpirun)
    is_one_host = not any("host" in word for word in further)
    environment = launch_environment(os.environ, ranks, options.threads, is_one_host)
    script = ["-m", options.script] if options.is_module else [options.script]
    return run_job(rank_command(ranks, [*script, *options.arguments], further), environment)


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"is a positive number, not '{text}'")
    return number


def _version() -> str:
    try:
        return f"taskflow {version('taskflow-dl')}"
    except PackageNotFoundError:
        return "taskflow (not installed)"
