"""`taskflow run`: a script on several ranks."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from taskflow.cli.types import Commands, positive
from taskflow.comm.launch import count_cores, launch_environment, rank_command, run_job


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "run",
        help="run a script on several ranks",
        description="Run a Python script on several ranks. The exit status is the script's; the first Ctrl-C or "
        "SIGTERM lets a Trainer finish its step and save a checkpoint, a second one ends all ranks at once.",
    )
    parser.add_argument("-n", dest="ranks", type=positive, help="number of ranks (default: one per core)")
    parser.add_argument("--threads", type=positive, help="BLAS threads of each rank (default: cores // ranks)")
    parser.add_argument("--mpirun", default="", metavar="OPTIONS", help="further options of mpirun, as one word")
    parser.add_argument("-m", dest="is_module", action="store_true", help="the script is the name of a module")
    parser.add_argument("script", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    parser.set_defaults(act=_run)


def _run(options: argparse.Namespace) -> int:
    if not options.is_module and not Path(options.script).is_file():
        raise ValueError(f"run: there is no file '{options.script}'")
    ranks = options.ranks or count_cores()
    further = shlex.split(options.mpirun)
    is_one_host = not any("host" in word for word in further)
    environment = launch_environment(os.environ, ranks, options.threads, is_one_host)
    script = ["-m", options.script] if options.is_module else [options.script]
    return run_job(rank_command(ranks, [*script, *options.arguments], further), environment)
