"""What the subcommands print and write: tables for people, files for other programs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from taskflow.cli.inputs import Problem
from taskflow.lowering import lower
from taskflow.report.dot import strategy_dot, task_graph_dot
from taskflow.report.explanation import Table, align
from taskflow.strategy.strategy import Strategy


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
    parser.add_argument("--dot", type=output_file, metavar="FILE", help="write the strategy as a DOT graph")
    parser.add_argument(
        "--task-dot", type=output_file, metavar="FILE", help="write the task graph as DOT (a large one by operator)"
    )


def write_dot(options: argparse.Namespace, problem: Problem, strategy: Strategy) -> None:
    """Write the DOT files that the options ask for."""
    if options.dot:
        write(options.dot, strategy_dot(problem.graph, strategy, len(problem.machine.devices)))
    if options.task_dot:
        write(options.task_dot, task_graph_dot(lower(problem.graph, strategy, problem.machine)))


def write(path: Path, text: str) -> None:
    """Write a text file and say so."""
    path.write_text(text, encoding="utf-8")
    show(f"written: {path}")


def show(text: str) -> None:
    """A line for people."""
    sys.stdout.write(f"{text}\n")


def show_table(table: Table) -> None:
    """A table, drawn on a terminal and plain in a file or pipe."""
    if not sys.stdout.isatty():
        show(align(table))
        return
    drawn = RichTable(*table[0])
    for row in table[1:]:
        drawn.add_row(*row)
    Console().print(drawn)


@contextmanager
def progress_bar() -> Iterator[Callable[[float, float | None, str], None]]:
    """A bar on standard error where that is a terminal; gives what moves it: `(done, of how many, text)`."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
