"""What the subcommands print and write: tables for people, files for other programs."""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from taskflow.cli.inputs import Problem
from taskflow.core.files import replace_file
from taskflow.core.system import world_rank
from taskflow.core.text import printable
from taskflow.report.console import ShowProgress, make_console, print_table, show_progress
from taskflow.report.dot import strategy_dot, task_graph_dot
from taskflow.report.explanation import Table
from taskflow.schedule.plan import Plan


def output_file(text: str) -> Path:
    """A file to be written, for argparse: refused before a long search rather than after it."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' is a folder")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder '{path.parent}'")
    return path


def add_dot(parser: argparse.ArgumentParser) -> None:
    """The options of `write_dot`."""
    parser.add_argument(
        "--dot", type=output_file, metavar="FILE", help="write the strategy as a DOT graph"
    )
    parser.add_argument(
        "--task-dot",
        type=output_file,
        metavar="FILE",
        help="write the task graph as DOT (a large one by operator)",
    )


def write_dot(options: argparse.Namespace, problem: Problem, plan: Plan) -> None:
    """Write the DOT files that the options ask for."""
    if options.dot:
        graph = plan.transform(problem.graph)
        write(options.dot, strategy_dot(graph, plan.strategy, len(problem.machine.devices)))
    if options.task_dot:
        write(
            options.task_dot,
            task_graph_dot(plan.apply(problem.graph, problem.machine, problem.costs)[1]),
        )


def write(path: Path, text: str, is_told: bool = True) -> None:
    """Write a text file and say so, unless it is not to be told."""
    replace_file(path, text, sys.maxsize)
    if is_told:
        show(f"written: {path}")


def show(text: str) -> None:
    """Lines for people."""
    sys.stdout.write(printable(f"{text}\n", keep="\n"))


def show_job(problem: Problem) -> None:
    """What the file of a job says and a plan cannot."""
    for line in problem.job.lines() if problem.job else ():
        show(line)


def show_table(table: Table) -> None:
    """A table, drawn on a terminal and plain in a file or pipe."""
    print_table(make_console(), table)


def progress_bar() -> AbstractContextManager[ShowProgress]:
    """How far a command is, on standard error; see `show_progress`."""
    return show_progress(make_console(stderr=True, quiet=world_rank() > 0))
