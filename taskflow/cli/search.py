"""`taskflow search`: find a strategy, with no GPU and no mpirun."""

from __future__ import annotations

import argparse
import math
import signal
import time

from taskflow.bridges.nearest import SaidPlans
from taskflow.cli.inputs import Problem, add_problem, find_start, read_problem
from taskflow.cli.output import (
    add_dot,
    output_file,
    progress_bar,
    show,
    show_job,
    show_table,
    write_dot,
)
from taskflow.cli.sweep import add_sweep, device_counts, is_sweep, sweep
from taskflow.cli.types import Commands, natural, positive, positive_seconds
from taskflow.core.system import world_rank
from taskflow.report.describe import describe_seconds
from taskflow.schedule.plan import Plan
from taskflow.searching import PROPOSALS, SearchInterrupted, SearchResult, search
from taskflow.searching.moves import MOVES

SECONDS = 60.0  # of a search in the words of another system, where no budget is given


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser("search", help="find a strategy", description=__doc__)
    add_problem(parser, device_counts)
    add_sweep(parser)
    parser.add_argument(
        "--proposals", type=positive, help=f"budget: strategies to judge (default: {PROPOSALS})"
    )
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        help="budget: seconds to search (60 where a job's system has words and there is no budget); the first "
        "search ever has half as many more, while it compiles",
    )
    parser.add_argument(
        "--seed", type=natural, default=0, help="equal seeds give equal results (default: 0)"
    )
    parser.add_argument(
        "--start",
        action="append",
        default=[],
        metavar="FILE",
        help="start from this plan too; may be repeated",
    )
    parser.add_argument(
        "--until-local",
        action="store_true",
        help="go on beyond the budget until no change of one operator is faster",
    )
    parser.add_argument("--out", type=output_file, metavar="FILE", help="write the plan as JSON")
    add_dot(parser)
    parser.set_defaults(act=_search)


def _search(options: argparse.Namespace) -> int:
    if is_sweep(options):
        return sweep(options, lambda problem: _run_search(problem, options))
    options.devices = options.devices and options.devices[0]
    problem, status = read_problem(options), 0
    said = problem.job.said if problem.job else None
    try:
        result = _run_search(problem, options, said)
    except SearchInterrupted as interrupted:
        result = interrupted.result
        status = 128 + signal.SIGINT
    if world_rank():
        return status  # rank 0 shows and writes it
    show_job(problem)
    show_table(
        [
            ("start", "a step"),
            *((name, _described(s)) for name, s in result.baseline_seconds.items()),
        ]
    )
    show(f"{'interrupted, the best so far: ' if status else ''}{result}")
    if said and problem.job:
        show(problem.job.better(result))
    if options.out:
        result.plan.save(options.out)
        show(f"written: {options.out}")
    write_dot(options, problem, result.plan)
    return status


def _run_search(
    problem: Problem, options: argparse.Namespace, said: SaidPlans | None = None
) -> SearchResult:
    """Search within the budget of the options, for any plan or those that another system can say."""
    starts = _starts(problem, options, said)
    has_budget = options.proposals or options.seconds or not said
    with progress_bar() as show_progress:
        begin = time.monotonic()

        def progress(done: int, best: float) -> None:
            text = f"search: {done} proposals, {describe_seconds(best)} a step"
            if options.seconds:
                show_progress(min(time.monotonic() - begin, options.seconds), options.seconds, text)
            else:
                show_progress(done, options.proposals or PROPOSALS, text)

        return search(
            problem.graph,
            problem.machine,
            problem.costs,
            proposals=options.proposals,
            seed=options.seed,
            starts=starts,
            progress=progress,
            seconds=options.seconds if has_budget else SECONDS,
            space=said,
            until_local=options.until_local,
            moves=said.moves if said else MOVES,
        )


def _starts(
    problem: Problem, options: argparse.Namespace, said: SaidPlans | None
) -> dict[str, Plan]:
    """The job's plan, but for a sweep over all plans, and those that the options name."""
    starts = dict[str, Plan]()
    if (job := problem.job) and (said or not job.said):
        starts[job.name] = job.plan
    return starts | {name: find_start(name, problem) for name in options.start}


def _described(seconds: float) -> str:
    return describe_seconds(seconds) if math.isfinite(seconds) else "does not fit into memory"
