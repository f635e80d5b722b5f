"""`taskflow simulate`, `trace` and `explain`: the predicted step of a plan, with no GPU and no mpirun."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from taskflow.cli.beside import simulate_beside
from taskflow.cli.data import add_json, record, show_data
from taskflow.cli.inputs import (
    Problem,
    add_problem,
    add_schedule,
    add_strategy,
    find_plan,
    read_problem,
)
from taskflow.cli.lengths import simulate_lengths
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
from taskflow.cli.types import Act, Commands, natural, positive
from taskflow.report import explain
from taskflow.report.breakdown import break_down
from taskflow.report.describe import describe_seconds
from taskflow.report.explanation import explanation_parts, step_table
from taskflow.report.pipeline import pipeline_diagram
from taskflow.simulation.simulate import simulate
from taskflow.tasks.task_graph import TaskGraph


def add_parser(commands: Commands) -> None:
    """Add the subcommands to argparse's `commands`."""
    parser = _add(
        commands, "simulate", _simulate, "predict the step of a strategy or pipeline", device_counts
    )
    add_schedule(parser)
    add_sweep(parser)
    add_dot(parser)
    parser.add_argument(
        "others", nargs="*", metavar="MODULE:FUNCTION", help="further models, with --beside"
    )
    parser.add_argument(
        "--beside",
        action="store_true",
        help="steps of several models on one machine: each alone, one after the other, and together in several orders",
    )
    parser.add_argument(
        "--lengths",
        metavar="FILE",
        help="the steps of the model for each line of FILE, its argument `lengths`: by a rule as it is, and with parts "
        "of equal work",
    )
    parser.add_argument(
        "--jitter",
        type=positive,
        metavar="DRAWS",
        help="simulate so many draws of the machine file's jitter of kernels, too",
    )
    parser.add_argument("--seed", type=natural, default=0, help="of the first draw (default: 0)")
    parser = _add(
        commands, "trace", _trace, "write the predicted step for chrome://tracing or Perfetto"
    )
    add_schedule(parser)
    parser.add_argument(
        "--out", type=output_file, required=True, metavar="FILE", help="the trace, a JSON file"
    )
    add_json(parser, "what was written")
    parser = _add(
        commands,
        "explain",
        _explain,
        "say what a strategy or pipeline does, what it saves, and why",
    )
    add_schedule(parser)
    parser.add_argument(
        "--alternatives",
        type=natural,
        default=16,
        help="try other configurations of that many operators (default: 16)",
    )
    add_json(parser, "the explanation")
    parser.add_argument(
        "--rows", type=positive, default=30, help="rows of a table at most (default: 30)"
    )
    add_dot(parser)


def _add(
    commands: Commands, name: str, act: Act, help: str, devices: Callable[[str], object] = positive
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help)
    add_problem(parser, devices)
    add_strategy(parser)
    parser.set_defaults(act=act)
    return parser


def _simulate(options: argparse.Namespace) -> int:
    if options.beside or options.others:
        return simulate_beside(options)
    if options.lengths:
        return simulate_lengths(options)
    if is_sweep(options):
        return sweep(options, lambda problem: find_plan(options, problem))
    options.devices = options.devices and options.devices[0]
    problem = read_problem(options)
    plan = find_plan(options, problem)
    show_job(problem)
    graph, rows = plan.apply(problem.graph, problem.machine, problem.costs)
    timeline = simulate(rows, problem.costs)
    show_table(step_table(break_down(timeline, graph, lambda op: op.name)))
    if plan.schedule is not None:
        show(pipeline_diagram(timeline))
    if options.jitter:
        show("")
        show_table(_jittered(options, problem, rows))
    write_dot(options, problem, plan)
    return 0


def _jittered(
    options: argparse.Namespace, problem: Problem, rows: TaskGraph
) -> list[tuple[str, ...]]:
    """Quantiles of a step over draws of the machine's jitter."""
    if not problem.machine.jitter:
        raise ValueError(f"--jitter: machine '{problem.machine.name}' has none in its file")
    seeds = range(options.seed, options.seed + options.jitter)
    drawn = [simulate(rows, problem.costs.with_jitter(seed)).seconds for seed in seeds]
    shown = {"least": 0.0, "median": 0.5, "9 of 10 below": 0.9, "most": 1.0}
    return [
        (f"a step with jitter, {options.jitter} draws", ""),
        *((name, describe_seconds(float(np.quantile(drawn, q)))) for name, q in shown.items()),
    ]


def _trace(options: argparse.Namespace) -> int:
    problem = read_problem(options)
    _, rows = find_plan(options, problem).apply(problem.graph, problem.machine, problem.costs)
    timeline = simulate(rows, problem.costs)
    timeline.save_trace(options.out)
    tasks = len(timeline.task_graph)
    if options.json:
        show_data(
            "trace", {"written": str(options.out), "tasks": tasks, "seconds": timeline.seconds}
        )
    else:
        show(f"written: {options.out} ({tasks} tasks)")
    return 0


def _explain(options: argparse.Namespace) -> int:
    if options.json and (options.dot or options.task_dot):
        raise ValueError("explain: --json prints one text; leave out --dot and --task-dot")
    problem = read_problem(options)
    plan = find_plan(options, problem)
    with progress_bar() as show_progress:
        explanation = explain(
            problem.graph,
            plan,
            problem.machine,
            problem.costs,
            options.alternatives,
            progress=lambda done, total: show_progress(done, total, "alternatives"),
        )
    if options.json:
        show_data("explanation", {**record(explanation), "machine": problem.machine.name})
        return 0
    show_job(problem)
    for number, part in enumerate(explanation_parts(explanation, options.rows)):
        if number:
            show("")
        if isinstance(part, str):
            show(part)
        else:
            show_table(part)
    write_dot(options, problem, plan)
    return 0
