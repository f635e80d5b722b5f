"""`taskflow report`: a plan as one HTML file to look at and send around, with no GPU and no mpirun."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from taskflow.cli.data import add_json, show_data
from taskflow.cli.inputs import (
    DEFAULT,
    Problem,
    add_problem,
    add_schedule,
    add_strategy,
    find_plan,
    load_plan,
    read_problem,
)
from taskflow.cli.output import output_file, progress_bar, show
from taskflow.cli.types import Commands, natural, positive
from taskflow.report.console import ShowProgress
from taskflow.report.describe import describe_bytes, describe_seconds
from taskflow.report.page import ReportInputs, report_data, save_page
from taskflow.schedule.plan import Plan
from taskflow.searching import SearchResult, search
from taskflow.strategy.rules import RULES

NOTHING = "none"  # to compare with


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "report",
        help="write a plan as one HTML page",
        description="Write what a plan does as one HTML file that needs no network: timeline, memory, devices, links, "
        "the strategy on the model, other plans, what if.",
    )
    add_problem(parser)
    add_strategy(parser)
    add_schedule(parser)
    parser.add_argument("--out", type=output_file, metavar="FILE", help="the page, an HTML file")
    add_json(parser, "the data of the page")
    parser.add_argument("--title", help="of the page (default: the model)")
    parser.add_argument(
        "--against",
        default=DEFAULT,
        metavar="NAME|FILE",
        help=f"compare with this strategy or plan (default: {DEFAULT}; {NOTHING}: with none)",
    )
    parser.add_argument(
        "--search",
        type=positive,
        metavar="N",
        help="search with N proposals for the plan to report",
    )
    parser.add_argument("--seed", type=natural, default=0, help="of the search (default: 0)")
    parser.add_argument(
        "--no-what-if", dest="what_if", action="store_false", help="do not simulate other machines"
    )
    parser.add_argument(
        "--no-baselines", dest="baselines", action="store_false", help="simulate no others"
    )
    parser.set_defaults(act=_report)


def _report(options: argparse.Namespace) -> int:
    if not options.out and not options.json:
        raise ValueError(
            "report: give the page a file (--out plan.html), or ask for its data (--json)"
        )
    if options.search and (options.strategy != DEFAULT or options.parts):
        raise ValueError("report: --search finds a plan itself; leave out --strategy and --parts")
    problem = read_problem(options)
    searched = _search(problem, options) if options.search else None
    plan = searched.plan if searched else find_plan(options, problem)
    name = "searched" if searched else _name(options, problem)
    with progress_bar() as show_progress:
        inputs = ReportInputs(
            title=options.title or options.model,
            graph=problem.graph,
            machine=problem.machine,
            costs=problem.costs,
            plan=plan,
            name=name,
            compared=_compared(options.against, problem, plan, name),
            found=searched,
            with_baselines=options.baselines,
            with_what_if=options.what_if,
        )
        data = report_data(inputs, show_progress)
    if options.out:
        size = save_page(options.out, data)
        if not options.json:
            show(f"written: {options.out} ({describe_bytes(size)})")
    if options.json:
        show_data("report", data)
    return 0


def _name(options: argparse.Namespace, problem: Problem) -> str:
    if problem.job and problem.job.plan and options.strategy == DEFAULT:
        return problem.job.name
    if options.parts:
        return f"pipeline of {options.parts} micro-batches"
    return (
        str(options.strategy).replace("_", " ")
        if options.strategy in RULES
        else Path(options.strategy).stem
    )


def _compared(against: str, problem: Problem, plan: Plan, name: str) -> tuple[str, Plan] | None:
    """The plan to compare with, by name; none where it is the same, or asked for none."""
    if against == NOTHING:
        return None
    is_rule = against in RULES
    other = Plan(RULES[against](problem.graph, problem.machine)) if is_rule else load_plan(against)
    called = against.replace("_", " ") if is_rule else Path(against).stem
    if other == plan:
        return None
    return f"{called}, compared" if called == name else called, other


def _search(problem: Problem, options: argparse.Namespace) -> SearchResult:
    with progress_bar() as show_progress:
        return search(
            problem.graph,
            problem.machine,
            problem.costs,
            proposals=options.search,
            seed=options.seed,
            progress=partial(_show_search, show_progress, options.search),
        )


def _show_search(show_progress: ShowProgress, proposals: int, done: int, best: float) -> None:
    show_progress(done, proposals, f"search: {done} proposals, {describe_seconds(best)} a step")
