"""`taskflow simulate` and `taskflow trace`: the predicted step of a strategy, with no GPU and no mpirun."""

from __future__ import annotations

import argparse

from taskflow.cli.inputs import Problem, add_problem, add_strategy, find_strategy, read_problem
from taskflow.cli.output import add_dot, output_file, show, show_table, write_dot
from taskflow.cli.types import Commands
from taskflow.lowering import lower
from taskflow.report.breakdown import break_down
from taskflow.report.explanation import step_table
from taskflow.simulation.simulate import simulate
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.timeline import Timeline


def add_parser(commands: Commands) -> None:
    """Add the subcommands to argparse's `commands`."""
    parser = commands.add_parser("simulate", help="predict the step of a strategy")
    add_problem(parser)
    add_strategy(parser)
    add_dot(parser)
    parser.set_defaults(act=_simulate)
    parser = commands.add_parser("trace", help="write the predicted step for chrome://tracing or Perfetto")
    add_problem(parser)
    add_strategy(parser)
    parser.add_argument("--out", type=output_file, required=True, metavar="FILE", help="the trace, a JSON file")
    parser.set_defaults(act=_trace)


def _simulate(options: argparse.Namespace) -> int:
    problem = read_problem(options)
    strategy = find_strategy(options.strategy, problem)
    step = break_down(_timeline(problem, strategy), problem.graph, lambda op: op.name)
    show_table(step_table(step))
    write_dot(options, problem, strategy)
    return 0


def _trace(options: argparse.Namespace) -> int:
    problem = read_problem(options)
    timeline = _timeline(problem, find_strategy(options.strategy, problem))
    timeline.save_trace(options.out)
    show(f"written: {options.out} ({len(timeline.task_graph)} tasks)")
    return 0


def _timeline(problem: Problem, strategy: Strategy) -> Timeline:
    return simulate(lower(problem.graph, strategy, problem.machine), problem.costs)
