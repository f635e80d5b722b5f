"""`taskflow costs`: costs of a job from a trace of it, and what was matched."""

from __future__ import annotations

import argparse

from taskflow.cli.data import add_json, show_data
from taskflow.cli.inputs import add_problem, add_schedule, add_strategy, find_plan, read_problem
from taskflow.cli.output import output_file, show, show_table
from taskflow.cli.types import Commands, natural
from taskflow.cost.traced import match_table, trace_costs
from taskflow.cost.traces import read_trace
from taskflow.report.describe import describe_seconds
from taskflow.simulation.simulate import simulate


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "costs",
        help="make a cost file from a trace of PyTorch",
        description="Read a trace of torch.profiler (record_shapes=True) or a linked Chakra trace of the job that "
        "the other options describe, and write costs for --costs of the other commands.",
    )
    add_problem(parser)
    add_strategy(parser)
    add_schedule(parser)
    parser.add_argument("--trace", required=True, metavar="FILE", help="the trace of one device")
    parser.add_argument(
        "--rank", type=natural, default=0, help="the device that it is of (default: 0)"
    )
    parser.add_argument("--out", type=output_file, metavar="FILE", help="the cost file")
    parser.add_argument(
        "--out-machine",
        type=output_file,
        metavar="FILE",
        help="the machine file with the times of the trace's collectives",
    )
    add_json(parser, "what was matched")
    parser.set_defaults(act=_costs)


def _costs(options: argparse.Namespace) -> int:
    problem = read_problem(options)
    trace = read_trace(options.trace)
    _, rows = find_plan(options, problem).apply(problem.graph, problem.machine, problem.costs)
    costs, matches = trace_costs(trace, rows, options.rank)
    predicted = simulate(rows, costs).seconds
    if options.out:
        costs.save(options.out)
    if options.out_machine:
        costs.machine.save(options.out_machine)
    if options.json:
        show_data(
            "costs",
            {
                "seconds": trace.seconds,
                "predicted_seconds": predicted,
                "classes": [match._asdict() for match in matches],
            },
        )
        return 0
    show_table(match_table(matches, trace))
    show(
        f"\na step took {describe_seconds(trace.seconds)}, "
        f"with these costs it takes {describe_seconds(predicted)}"
    )
    for path in filter(None, (options.out, options.out_machine)):
        show(f"written: {path}")
    return 0
