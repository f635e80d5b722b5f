"""`taskflow export`: a plan in the words of another system, and what these cannot say."""

from __future__ import annotations

import argparse
import sys

from taskflow.bridges.exporting import SYSTEMS, export_plan, targets
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.nearest import SaidPlans
from taskflow.cli.data import add_json, show_data
from taskflow.cli.inputs import (
    Problem,
    add_problem,
    add_schedule,
    add_strategy,
    find_plan,
    read_problem,
)
from taskflow.cli.output import output_file, show, write
from taskflow.cli.types import Commands, positive_seconds
from taskflow.schedule.plan import Plan
from taskflow.searching import search

SECONDS = 60.0  # of --nearest


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "export",
        help="write a plan in the words of another system",
        description="Write a plan as flags of Megatron-LM, a configuration of torchtitan, DeepSpeed's JSON, placements "
        "of DTensor, or as it is (json). Parts that the other system cannot say are named, with what they cost.",
    )
    add_problem(parser)
    add_strategy(parser)
    add_schedule(parser)
    parser.add_argument("--to", required=True, choices=targets(), help="the other system")
    parser.add_argument(
        "--nearest",
        action="store_true",
        help="search for the fastest plan that the other system can say, from the nearest one",
    )
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        default=SECONDS,
        help=f"of --nearest (default: {SECONDS:g})",
    )
    parser.add_argument("--out", type=output_file, metavar="FILE", help="write it there")
    add_json(parser, "the text and what it does not say")
    parser.set_defaults(act=_export)


def _export(options: argparse.Namespace) -> int:
    problem = read_problem(options)
    plan = find_plan(options, problem)
    if options.nearest:
        plan = _nearest(plan, problem, options)
    exported = export_plan(problem.graph, plan, problem.machine, problem.costs, options.to)
    if options.out:
        write(options.out, exported.text, is_told=not options.json)
    if options.json:
        show_data(
            "export",
            {
                "system": exported.system,
                "text": exported.text,
                "seconds": exported.outcome.with_room,
                "planned_seconds": exported.original.with_room,
                "unsaid": [
                    {"what": part.what, "seconds": part.seconds} for part in exported.unsaid
                ],
            },
        )
    elif options.out:
        show(str(exported))
    else:
        show(exported.text)
        sys.stderr.write(f"{exported}\n")
    return 0


def _nearest(plan: Plan, problem: Problem, options: argparse.Namespace) -> Plan:
    """The fastest plan that the other system can say, searched for from the one nearest to this."""
    if options.to not in SYSTEMS:
        raise ValueError(f"--nearest: {options.to} says every plan")
    sayable = SaidPlans(SYSTEMS[options.to], PlanMaker(problem.graph, problem.machine))
    return search(
        problem.graph,
        problem.machine,
        problem.costs,
        starts={"nearest": plan},
        seconds=options.seconds,
        space=sayable,
        moves=sayable.moves,
    ).plan
