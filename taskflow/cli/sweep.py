"""What if, on the command line: options of search and simulate that ask about several machines, or print JSON."""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from taskflow.cli.inputs import Problem, read_problem
from taskflow.cli.output import show, show_table
from taskflow.core.system import world_rank
from taskflow.machine.scaling import SCALES
from taskflow.report.describe import describe_bytes, describe_seconds
from taskflow.report.whatif import Case, what_if
from taskflow.schedule.plan import Plan
from taskflow.searching import SearchInterrupted, SearchResult

FORMAT = "taskflow-what-if"
VERSION = 1


def device_counts(text: str) -> tuple[int, ...]:
    """Numbers of devices, separated by commas, for argparse."""
    counts = text.split(",")
    if not all(count.isdecimal() and int(count) for count in counts):
        raise argparse.ArgumentTypeError(f"are positive numbers with commas between, not '{text}'")
    return tuple(map(int, counts))


def factors(text: str) -> dict[str, float]:
    """`NAME=FACTOR,...`, for argparse; `scale_machine` checks both."""
    try:
        return {
            name: float(factor) for name, factor in (pair.split("=") for pair in text.split(","))
        }
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"is NAME=FACTOR, several with commas between, not '{text}'"
        ) from None


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """The options of `is_sweep`, besides `--devices`, whose type is `device_counts`."""
    parser.add_argument(
        "--scale",
        type=factors,
        action="append",
        default=[],
        metavar="NAME=FACTOR[,...]",
        help="what if the machine were so; may be repeated, for a case each. "
        + "; ".join(f"{name}: {what}" for name, what in SCALES.items())
        + "; device:K: seconds of all that device K does; link:A-B: bandwidth of the link between A and B",
    )
    parser.add_argument(
        "--sensitivities",
        action="store_true",
        help="how much longer a step takes for 1 %% more of each rate",
    )
    parser.add_argument(
        "--pareto",
        action="store_true",
        help="the plans met that no other beats in time, bytes moved and memory at once",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the cases as JSON, and nothing else"
    )


def is_sweep(options: argparse.Namespace) -> bool:
    """Whether the options ask for cases."""
    several = len(options.devices or ()) > 1
    return bool(several or options.scale or options.sensitivities or options.pareto or options.json)


def sweep(options: argparse.Namespace, find: Callable[[Problem], SearchResult | Plan]) -> int:
    """Print what a step takes in each case; gives the exit status.

    Raises:
        ValueError: see `what_if`; or a file is asked for, which holds one plan.
    """
    counts = options.devices or ()
    cases = list[Case]()
    status = 0
    is_one = options.json and len(counts) < 2 and not options.scale
    for name in ("out", "dot", "task_dot"):
        if getattr(options, name, None) and not (is_one and name == "out"):
            raise ValueError(
                f"--{name.replace('_', '-')} writes one plan; --scale, --sensitivities, --pareto, --json "
                "and several --devices print cases"
            )
    options.devices = max(counts, default=None)
    problem = read_problem(options)
    asked = what_if(
        problem.graph,
        problem.machine,
        problem.costs,
        lambda graph, machine, costs: find(Problem(graph, machine, costs, problem.file)),
        devices=counts,
        scales=options.scale,
        sensitivities=options.sensitivities,
    )
    try:
        cases.extend(asked)
    except SearchInterrupted:
        status = 128 + signal.SIGINT
    if is_one and getattr(options, "out", None) and cases and cases[0].plan and not world_rank():
        cases[0].plan.save(options.out)
    if not world_rank():
        show_json(cases) if options.json else _show_tables(cases, options.pareto)
    return status


def show_json(cases: Iterable[Case]) -> None:
    """The cases as one JSON text, units in the names; null: nothing fits into memory."""
    show(
        json.dumps(
            {"format": FORMAT, "version": VERSION, "cases": list(map(_as_json, cases))}, indent=1
        )
    )


def _as_json(case: Case) -> dict[str, Any]:
    names = "seconds", "bytes_moved", "peak_bytes"
    figures = dict(zip(names, (case.seconds, case.bytes_moved, case.peak_bytes), strict=True))
    return {
        "devices": case.devices,
        "scales": case.scales,
        "best_start": case.start or None,
        **(figures if case.plan else dict.fromkeys(names)),
        "joules": case.joules,
        "speedup": case.speedup or None,
        "sensitivities": case.sensitivities,
        "pareto": [
            {"name": outcome.name, **dict(zip(names, outcome.figures, strict=True))}
            for outcome in case.pareto
        ],
        "refusal": case.refusal or None,
    }


def _show_tables(cases: Sequence[Case], with_pareto: bool) -> None:
    """What each case takes; what bounds it, and what else there is to choose from."""
    head = "devices", "scaled", "best start", "a step", "moved", "peak", "speed-up", "memory"
    show_table([head, *(_row(case) for case in cases)])
    rates = list(dict.fromkeys(name for case in cases for name in case.sensitivities))
    if rates:
        show("\n% of a step for 1 % more of")
        show_table(
            [
                ("devices", "scaled", *rates),
                *(_rates_row(case, rates) for case in cases if case.plan),
            ]
        )
    pareto = [
        (*_which(case), outcome.name, *_figures(outcome.figures))
        for case in cases
        for outcome in case.pareto
    ]
    if pareto and with_pareto:
        show("\nno other plan that was met is better in time, bytes moved and memory at once")
        show_table([("devices", "scaled", "plan", "a step", "moved", "peak"), *pareto])


def _row(case: Case) -> tuple[str, ...]:
    figures = (
        _figures((case.seconds, case.bytes_moved, case.peak_bytes)) if case.plan else ("", "", "")
    )
    speedup = f"{case.speedup:.2f}x" if case.speedup else ""
    return (*_which(case), case.start, *figures, speedup, case.refusal or "fits")


def _rates_row(case: Case, rates: Sequence[str]) -> tuple[str, ...]:
    return (
        *_which(case),
        *(
            f"{case.sensitivities[name]:+.2f}" if name in case.sensitivities else ""
            for name in rates
        ),
    )


def _which(case: Case) -> tuple[str, str]:
    return str(case.devices), ", ".join(
        f"{name} x {factor:g}" for name, factor in case.scales.items()
    ) or "as it is"


def _figures(figures: tuple[float, int, int]) -> tuple[str, str, str]:
    seconds, moved, peak = figures
    return describe_seconds(seconds), describe_bytes(moved), describe_bytes(peak)
