"""`taskflow check`: the proof of a plan before it runs, with no GPU and no mpirun."""

from __future__ import annotations

import argparse
import sys

from taskflow.checking.checker import check_plan
from taskflow.checking.rules import PlanError
from taskflow.cli.data import add_json, record, show_data
from taskflow.cli.inputs import add_problem, add_schedule, add_strategy, find_plan, read_problem
from taskflow.cli.output import show
from taskflow.cli.types import Commands
from taskflow.tasks.memory import plan_memory


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "check", help="prove that the rows of a strategy compute what the model says"
    )
    add_problem(parser)
    add_strategy(parser)
    add_schedule(parser)
    add_json(parser, "the proof, or what is wrong,")
    parser.set_defaults(act=_check)


def _check(options: argparse.Namespace) -> int:
    """0 and the proof in one line; 1 and what is wrong in one line."""
    problem = read_problem(options)
    graph, rows = find_plan(options, problem).apply(problem.graph, problem.machine, problem.costs)
    try:
        proof = check_plan(graph, rows, plan_memory(rows))
    except PlanError as error:
        if options.json:
            show_data("proof", {"holds": False, "refusal": str(error)})
        else:
            sys.stderr.write(f"taskflow: {error}\n")
        return 1
    if options.json:
        show_data("proof", {"holds": True, **record(proof)})
    else:
        show(str(proof))
    return 0
