"""What the subcommands about a strategy share: a model, a machine, costs and a strategy from their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from taskflow.cli.machine import find_machine
from taskflow.cli.model import build_model
from taskflow.cli.types import positive
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.graph.homes import homes
from taskflow.graph.recompute import recompute
from taskflow.lowering import lower
from taskflow.machine import MachineModel
from taskflow.schedule import Schedule, chimera, zb_v
from taskflow.schedule.found import NAME as SEARCHED
from taskflow.schedule.orders import NAMED, reorder
from taskflow.strategy.rules import RULES
from taskflow.strategy.stages import stages
from taskflow.strategy.strategy import Strategy, check_strategy
from taskflow.tasks.task_graph import TaskGraph

DEFAULT = "data_parallel"  # a strategy


@dataclass(frozen=True)
class Problem:
    """What there is to search, simulate or explain."""

    graph: Graph
    machine: MachineModel
    costs: CostModel


def add_problem(parser: argparse.ArgumentParser, devices: Callable[[str], object] = positive) -> None:
    """The options of `read_problem`; `devices` reads the number of devices."""
    parser.add_argument("model", metavar="MODULE:FUNCTION", help="a function that builds a Graph (or FILE.py:FUNCTION)")
    parser.add_argument(
        "--arg", dest="arguments", action="append", default=[], metavar="NAME=VALUE", help="an argument of the function"
    )
    parser.add_argument(
        "--machine",
        default="uniform",
        metavar="NAME|FILE",
        help="a preset such as p100, a machine file (.toml), uniform (the default: equal CPU devices) or local",
    )
    parser.add_argument("--nodes", type=positive, help="hosts of a preset")
    parser.add_argument("--devices", type=devices, help="use that many devices (uniform, local: 4)")
    parser.add_argument(
        "--costs",
        default="analytic",
        metavar="MODEL",
        help="analytic (a roofline of the machine's rates, the default), measured (kernels timed on this machine), or "
        "a file that keeps measured costs",
    )


def add_strategy(parser: argparse.ArgumentParser) -> None:
    """The option that `find_strategy` gets."""
    parser.add_argument(
        "--strategy",
        default=DEFAULT,
        metavar="NAME|FILE",
        help=f"a strategy file, or {', '.join(RULES)} (default: {DEFAULT})",
    )


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """The options of `find_rows`."""
    parser.add_argument(
        "--parts", type=positive, metavar="K", help="a pipeline of K micro-batches instead of --strategy"
    )
    parser.add_argument(
        "--recompute",
        metavar="NAMES|auto",
        help="compute these forward operators (separated by commas) again for the backward pass; auto: about all but "
        "sqrt(n) of n",
    )
    parser.add_argument("--homes", action="store_true", help="parameters get homes: --strategy fully_sharded is FSDP")
    parser.add_argument(
        "--stages", type=positive, metavar="N", help="of the pipeline (default: one a device; zb_v: two)"
    )
    parser.add_argument(
        "--schedule",
        metavar="NAME|FILE",
        help=f"the order of the rows: {', '.join(NAMED)}, searched, or a schedule file (default: as lowered)",
    )


def read_problem(options: argparse.Namespace) -> Problem:
    """The graph, machine and costs that the options name; ValueError where they do not fit."""
    machine = find_machine(options.machine, options.nodes, options.devices)
    graph, again = build_model(options.model, options.arguments), getattr(options, "recompute", None)
    if again:
        graph = recompute(graph, again if again == "auto" else again.split(","))
    if getattr(options, "homes", False):
        graph = homes(graph)
    return Problem(graph, machine, find_costs(options.costs, machine))


def find_plan(options: argparse.Namespace, problem: Problem) -> Strategy:
    """The strategy or pipeline that the options name."""
    if options.parts and options.strategy != DEFAULT:
        instead = f"leave out --strategy {options.strategy}"
        raise ValueError(f"--parts {options.parts} makes a strategy of its own: {instead}")
    if options.parts:
        groups = _groups(options.schedule, len(problem.machine.devices), options.stages)
        count = options.stages or (None if groups is None else len(groups))
        return stages(problem.graph, problem.machine, count, options.parts, devices=groups)
    if options.stages:
        raise ValueError(f"--stages {options.stages}: give the micro-batches of the pipeline, too (--parts)")
    return find_strategy(options.strategy, problem)


def _groups(schedule: str | None, devices: int, count: int | None) -> list[tuple[int, ...]] | None:
    """The devices of every stage where a policy asks for some, or there are more stages than devices; else None."""
    each = range(devices)
    if schedule == zb_v.name:
        return [(d,) for d in (*each, *reversed(each))]
    if schedule == chimera.name:
        return [(d, devices - 1 - d) for d in each]
    return [(k % devices,) for k in range(count)] if count and count > devices else None


def find_rows(options: argparse.Namespace, problem: Problem, strategy: Strategy) -> TaskGraph:
    """The rows of a strategy in the order of the schedule that the options name."""
    rows = lower(problem.graph, strategy, problem.machine)
    if options.schedule is None:
        return rows
    return reorder(rows, problem.costs, find_order(options.schedule))


def find_order(name: str) -> Schedule | str:
    """The name of an order or policy, or a schedule from a file."""
    if name in (*NAMED, SEARCHED):
        return name
    if not Path(name).is_file():
        raise ValueError(f"schedule '{name}': is neither a file nor one of {', '.join([*NAMED, SEARCHED])}")
    return Schedule.load(name)


def find_strategy(name: str, problem: Problem) -> Strategy:
    """A strategy by rule or from a file, checked against graph and machine."""
    if name in RULES:
        return RULES[name](problem.graph, problem.machine)
    if not Path(name).is_file():
        raise ValueError(f"strategy '{name}': is neither a file nor one of {', '.join(RULES)}")
    strategy = Strategy.load(name)
    check_strategy(problem.graph, strategy, len(problem.machine.devices))
    return strategy


def find_costs(name: str, machine: MachineModel) -> CostModel:
    """Analytic costs, measured ones, or measured ones that a file keeps."""
    if name == "analytic":
        return CostModel.analytic(machine)
    return CostModel.measured(machine, None if name == "measured" else name)
