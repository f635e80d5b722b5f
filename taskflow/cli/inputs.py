"""What the subcommands about a plan share: a model, a machine, costs and a plan from their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from taskflow.bridges.exporting import JobFile
from taskflow.bridges.memory import under_system
from taskflow.cli.jobs import JobProblem, add_from, read_file
from taskflow.cli.machine import SIMPLE_MACHINES, find_machine
from taskflow.cli.model import build_model
from taskflow.cli.types import positive
from taskflow.cost.model import CostModel
from taskflow.cost.traced import TracedCosts, is_traced
from taskflow.graph.graph import Graph
from taskflow.graph.recompute import recompute, recomputed
from taskflow.machine import MachineModel
from taskflow.machine.machinefile import preset_names
from taskflow.schedule import Policy, Schedule, program
from taskflow.schedule.found import NAME as SEARCHED
from taskflow.schedule.orders import NAMED, named
from taskflow.schedule.plan import Plan
from taskflow.schedule.schedule import Groups, in_loops
from taskflow.strategy.rules import RULES
from taskflow.strategy.stages import stages
from taskflow.strategy.strategy import Strategy

DEFAULT = "data_parallel"  # a strategy


@dataclass(frozen=True)
class Problem:
    """What there is to search, simulate or explain; `file`: of another system, whose job it is."""

    graph: Graph
    machine: MachineModel
    costs: CostModel
    file: JobFile | None = None

    @cached_property
    def job(self) -> JobProblem | None:
        """The job of the file."""
        if self.file is None:
            return None
        return JobProblem(self.file, self.graph, self.machine, self.costs)


def add_problem(
    parser: argparse.ArgumentParser, devices: Callable[[str], object] = positive
) -> None:
    """The options of `read_problem`; `devices` reads the number of devices."""
    parser.add_argument(
        "model",
        metavar="MODULE:FUNCTION",
        help="a function that builds a Graph (or FILE.py:FUNCTION), or Hugging Face's config.json",
    )
    parser.add_argument(
        "--arg",
        dest="arguments",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument of the function",
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
        "a file that keeps measured costs, or of `taskflow costs`",
    )
    add_from(parser)


def add_strategy(parser: argparse.ArgumentParser) -> None:
    """The option that `load_plan` gets, where it is no rule."""
    parser.add_argument(
        "--strategy",
        default=DEFAULT,
        metavar="NAME|FILE",
        help=f"a plan file or strategy file, or {', '.join(RULES)} (default: {DEFAULT})",
    )


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """The options of `find_plan`."""
    parser.add_argument(
        "--parts",
        type=positive,
        metavar="K",
        help="a pipeline of K micro-batches instead of --strategy",
    )
    parser.add_argument(
        "--recompute",
        metavar="NAMES|auto",
        help="compute these forward operators (separated by commas) again for the backward pass; auto: about all but "
        "sqrt(n) of n",
    )
    parser.add_argument(
        "--homes",
        action="store_true",
        help="parameters get homes: --strategy fully_sharded is FSDP",
    )
    parser.add_argument(
        "--stages",
        type=positive,
        metavar="N",
        help="of the pipeline (default: one a device; zb_v: two)",
    )
    parser.add_argument(
        "--schedule",
        metavar="NAME|FILE",
        help=f"the order of the rows: {', '.join(NAMED)} (prefetch:2: two layers ahead; "
        "interleaved:2, ...: two steps of a device at once), searched, or a schedule file (default: as lowered)",
    )


def read_problem(options: argparse.Namespace) -> Problem:
    """The graph, machine and costs that the options name; ValueError where they do not fit."""
    file = read_file(options)
    machine = find_machine(options.machine, *_extent(options, file))
    if options.system:
        machine = under_system(machine, options.system)
    graph = build_model(options.model, options.arguments, file.sizes if file else {})
    return Problem(graph, machine, find_costs(options.costs, machine), file)


def _extent(options: argparse.Namespace, file: JobFile | None) -> tuple[int | None, int | None]:
    """Hosts and devices of the machine: those of the options, else those of the job of a file."""
    nodes = options.nodes
    devices = options.devices
    if file is None or file.devices is None or nodes or devices:
        return nodes, devices
    is_preset = options.machine in preset_names()
    if is_preset:
        nodes = -(-file.devices // len(find_machine(options.machine).devices))
    return nodes, file.devices if is_preset or options.machine in SIMPLE_MACHINES else None


def find_plan(options: argparse.Namespace, problem: Problem) -> Plan:
    """The plan that the options name, or of the job of a file."""
    if problem.job and options.strategy == DEFAULT and not options.parts:
        return _with_options(problem.job.plan, options, problem.graph)
    if options.parts and options.strategy != DEFAULT:
        instead = f"leave out --strategy {options.strategy}"
        raise ValueError(f"--parts {options.parts} makes a strategy of its own: {instead}")
    if options.stages and not options.parts:
        raise ValueError(
            f"--stages {options.stages}: give the micro-batches of the pipeline, too (--parts)"
        )
    is_rule = options.strategy in RULES
    plan = _with_options(
        Plan(Strategy()) if is_rule else load_plan(options.strategy), options, problem.graph
    )
    graph = plan.transform(problem.graph)
    machine = problem.machine
    if options.parts:
        groups = _groups(options.schedule, len(machine.devices), options.stages)
        count = options.stages or (None if groups is None else len(groups))
        plan = replace(plan, schedule=plan.schedule or program)
        return replace(plan, strategy=stages(graph, machine, count, options.parts, devices=groups))
    return replace(plan, strategy=RULES[options.strategy](graph, machine)) if is_rule else plan


def _with_options(plan: Plan, options: argparse.Namespace, graph: Graph) -> Plan:
    """The plan with what stands beside `--strategy`."""
    if again := options.recompute:
        names = recomputed(recompute(graph)) if again == "auto" else again.split(",")
        plan = plan.with_fields(f"--recompute {again}", recomputed=names)
    if options.homes:
        plan = plan.with_fields("--homes", homes=[region.name for region in graph.parameters])
    if options.schedule:
        plan = plan.with_fields(
            f"--schedule {options.schedule}", schedule=find_order(options.schedule)
        )
    return plan


def _groups(schedule: str | None, devices: int, count: int | None) -> Groups | None:
    """The devices of every stage where a policy asks for some, or there are more stages than devices; else None."""
    policy = named(schedule)
    placement = policy.placement if isinstance(policy, Policy) else in_loops
    if placement is in_loops and (count or 0) <= devices:
        return None
    return placement([(d,) for d in range(devices)], count)


def find_order(name: str) -> Schedule | str:
    """The name of an order or policy, or a schedule from a file."""
    if name == SEARCHED or named(name) is not None:
        return name
    if not Path(name).is_file():
        raise ValueError(
            f"schedule '{name}': is neither a file nor one of {', '.join([*NAMED, SEARCHED])}"
        )
    return Schedule.load(name)


def load_plan(name: str) -> Plan:
    """A plan from a file of one or of a strategy."""
    if not Path(name).is_file():
        raise ValueError(f"strategy '{name}': is neither a file nor one of {', '.join(RULES)}")
    return Plan.load(name)


def find_start(name: str, problem: Problem) -> Plan:
    """A strategy by rule, or a plan from a file."""
    return Plan(RULES[name](problem.graph, problem.machine)) if name in RULES else load_plan(name)


def find_costs(name: str, machine: MachineModel) -> CostModel:
    """Analytic costs, measured ones, measured ones that a file keeps, or those of a trace."""
    if name == "analytic":
        return CostModel.analytic(machine)
    if is_traced(name):
        return TracedCosts.load(name, machine)
    return CostModel.measured(machine, None if name == "measured" else name)
