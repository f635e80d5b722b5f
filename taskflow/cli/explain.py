"""`taskflow explain`: what a strategy does with each operator, what that saves, and why, with no GPU and no mpirun."""

from __future__ import annotations

import argparse

from taskflow.cli.inputs import add_problem, add_strategy, find_strategy, read_problem
from taskflow.cli.output import add_dot, progress_bar, show, show_table, write_dot
from taskflow.cli.types import Commands, natural, positive
from taskflow.report import explain
from taskflow.report.explanation import explanation_parts


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser("explain", help="say what a strategy does, what it saves, and why")
    add_problem(parser)
    add_strategy(parser)
    parser.add_argument(
        "--alternatives", type=natural, default=16, help="try other configurations of that many operators (default: 16)"
    )
    parser.add_argument("--rows", type=positive, default=30, help="rows of a table at most (default: 30)")
    add_dot(parser)
    parser.set_defaults(act=_explain)


def _explain(options: argparse.Namespace) -> int:
    problem = read_problem(options)
    strategy = find_strategy(options.strategy, problem)
    with progress_bar() as show_progress:
        found = explain(
            problem.graph,
            strategy,
            problem.machine,
            problem.costs,
            options.alternatives,
            progress=lambda done, total: show_progress(done, total, "alternatives"),
        )
    for number, part in enumerate(explanation_parts(found, options.rows)):
        if number:
            show("")
        if isinstance(part, str):
            show(part)
        else:
            show_table(part)
    write_dot(options, problem, strategy)
    return 0
