"""`taskflow simulate --lengths FILE`: the step of a model under a distribution of lengths of its documents."""

from __future__ import annotations

import argparse
from statistics import fmean, median

from taskflow.cli.inputs import find_costs
from taskflow.cli.machine import find_machine
from taskflow.cli.model import build_model
from taskflow.cli.output import show_table
from taskflow.core.files import naming, read_text
from taskflow.lowering import lower
from taskflow.report.describe import describe_seconds
from taskflow.simulation.simulate import simulate
from taskflow.strategy.rules import RULES, even_work

EVEN = "parts of equal work"


def read_lengths(path: str) -> list[list[int]]:
    """The lengths of documents, a batch a line; ValueError for what is none."""
    with naming(f"lengths file '{path}'"):
        batches = [line.replace(",", " ").split() for line in read_text(path).splitlines()]
        if bad := next((n for batch in batches for n in batch if not n.isdecimal()), None):
            raise ValueError(f"'{bad}' is no length")
        lengths = [list(map(int, batch)) for batch in batches if batch]
        if not lengths or not all(map(sum, lengths)):
            raise ValueError("has a line of lengths for each batch, with tokens")
    return lengths


def simulate_lengths(options: argparse.Namespace) -> int:
    """Print the seconds of the steps of all batches, by the strategy as it is and with parts of equal work.

    Raises:
        ValueError: the strategy is no rule, or the model has no `lengths`.
    """
    if options.strategy not in RULES:
        raise ValueError(f"--lengths: --strategy is a rule, not {options.strategy}")
    seconds = _seconds_of_batches(options)
    rows = [
        (name, *(describe_seconds(f(steps)) for f in (fmean, min, median, max)))
        for name, steps in seconds.items()
    ]
    faster = fmean(seconds[options.strategy]) / fmean(seconds[EVEN])
    title = f"steps of {len(seconds[EVEN])} batches", "mean", "least", "median", "most"
    show_table([title, *rows, ("equal work is faster by", f"{faster:.2f}", "", "", "")])
    return 0


def _seconds_of_batches(options: argparse.Namespace) -> dict[str, list[float]]:
    """By the strategy as it is, and with parts of equal work."""
    machine = find_machine(options.machine, options.nodes, options.devices and options.devices[0])
    costs = find_costs(options.costs, machine)
    seconds: dict[str, list[float]] = {options.strategy: [], EVEN: []}
    for lengths in read_lengths(options.lengths):
        graph = build_model(options.model, [*options.arguments, f"lengths={lengths}"])
        strategy = RULES[options.strategy](graph, machine)
        plans = {options.strategy: strategy, EVEN: even_work(graph, machine, strategy)}
        for name in plans:
            seconds[name].append(simulate(lower(graph, plans[name], machine), costs).seconds)
    return seconds
