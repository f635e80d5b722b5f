"""Jobs of other systems on the command line: `--from FILE`, and what is better in the words of that system."""

from __future__ import annotations

import argparse
from functools import cached_property
from math import isfinite
from pathlib import Path

from taskflow.bridges.exporting import SYSTEMS, ImportedJob, JobFile, said_in
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.memory import MEMORY
from taskflow.bridges.nearest import SaidPlans, orders
from taskflow.bridges.recognising import recognise
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.report.describe import describe_seconds
from taskflow.schedule.plan import Plan
from taskflow.searching import SearchResult
from taskflow.searching.outcome import judged


def add_from(parser: argparse.ArgumentParser) -> None:
    """The options of `read_file`."""
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE[:NAME]",
        help="the job of a file: a launch script or flags of Megatron-LM, a configuration of torchtitan (a function of "
        "FILE.py, or TOML), DeepSpeed's JSON, or a strategy file of FlexFlow; it also gives the model its sizes",
    )
    parser.add_argument(
        "--system",
        choices=MEMORY,
        help="leave out what that system takes of a device's memory beside tensors (default: as our executor)",
    )
    parser.add_argument(
        "--set",
        dest="given",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of the script of --from, such as MODEL_SIZE=1.7B; may be repeated",
    )


def read_file(options: argparse.Namespace) -> JobFile | None:
    """The file that `--from` names; ValueError: it says what cannot be."""
    if not options.source:
        if options.given:
            raise ValueError(f"--set {options.given[0]}: is for a script of --from")
        return None
    given = dict[str, str]()
    for text in options.given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set is NAME=VALUE, not '{text}'")
        given[name] = value
    return JobFile(options.source, given)


class JobProblem:
    """The job of a file on a model and a machine.

    Args:
        file, graph, machine, costs: that it is of.
    """

    def __init__(
        self, file: JobFile, graph: Graph, machine: MachineModel, costs: CostModel
    ) -> None:
        self.file = file
        self._costs = costs
        self._maker = PlanMaker(graph, machine)

    @property
    def name(self) -> str:
        """For tables."""
        return Path(self.file.path).name

    @cached_property
    def job(self) -> ImportedJob:
        """As the file has it."""
        return self.file.job(self._maker)

    @property
    def plan(self) -> Plan:
        """Of the job."""
        return self.job.plan

    def lines(self) -> list[str]:
        """What the file says and a plan cannot."""
        return [f"{self.name}: not read: {', '.join(self.job.unread)}"] if self.job.unread else []

    @cached_property
    def said(self) -> SaidPlans | None:
        """The plans that its system can say; None: it has words for every operator."""
        system = SYSTEMS.get(self.file.system)
        return SaidPlans(system, self._maker) if system else None

    def better(self, result: SearchResult) -> str:
        """What a search among these found in the words of the system; and the best order, if that has none for it."""
        text = self._faster(result)
        best = result.seconds
        for recipe in orders(recognise(result.plan, self._maker)[0]):
            outcome = judged(
                self._maker.layers.graph, self._maker.machine, self._costs, self._maker.plan(recipe)
            )
            if outcome.seconds < best:
                gain = f"{result.seconds / outcome.seconds - 1:.1%} faster still"
                order = f"in the order {recipe.schedule}, which {self.file.system} cannot say"
                text += f"{order}: {describe_seconds(outcome.seconds)} a step, {gain}\n"
                best = outcome.seconds
        return text.rstrip()

    def _faster(self, result: SearchResult) -> str:
        """What was found in the words of the system, if it is faster than the job."""
        system = self.file.system
        baseline = result.baseline_seconds[self.name]
        if result.seconds >= baseline:
            return f"{system} can say no plan that was found to be faster\n"
        gain = f"{baseline / result.seconds - 1:.1%} faster than {self.name}"
        gain = gain if isfinite(baseline) else f"fits into memory, as {self.name} does not"
        words = said_in(SYSTEMS[system], self._maker, result.plan, self._costs).text
        return f"{describe_seconds(result.seconds)} a step, {gain}:\n\n{words}"
