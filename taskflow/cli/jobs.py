"""Jobs of other systems on the command line: `--from FILE`, and what is better in the words of that system."""

from __future__ import annotations

import argparse
from functools import cached_property
from pathlib import Path

from taskflow.bridges.exporting import SYSTEMS, ImportedJob, JobFile, said_in
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.memory import MEMORY
from taskflow.bridges.nearest import RecipeSearch
from taskflow.bridges.recognising import recognise
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.report.describe import describe_bytes, describe_seconds
from taskflow.report.explanation import Table
from taskflow.schedule.plan import Plan
from taskflow.searching.outcome import Outcome

SECONDS = 60.0  # of a search, where none are given


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
        self.file, self._costs = file, costs
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

    @property
    def can_climb(self) -> bool:
        """Whether the words of its system are recipes."""
        return self.file.system in SYSTEMS

    def search(self, plan: Plan, proposals: int | None, seconds: float | None) -> RecipeSearch:
        """The best plan in the words of the system, from a plan."""
        said, (recipe, _) = SYSTEMS[self.file.system].said, recognise(plan, self._maker)
        seconds = SECONDS if proposals is None and seconds is None else seconds
        found = RecipeSearch(said, self._maker, self._costs, recipe, proposals, seconds)
        found.climb()
        return found

    def table(self, found: RecipeSearch) -> Table:
        """The job's own plan in row one, then every one that was better."""
        rows: Table = [("job", "a step", "fullest device")]
        for number, each in enumerate(found.history):
            name = f"better {number}" if number else self.name
            rows.append((name, seconds_of(each.outcome), describe_bytes(each.outcome.peak_bytes)))
        return rows

    def words(self, found: RecipeSearch) -> str:
        """What is best, and by how much."""
        own, best, beyond = found.history[0].outcome, found.best.outcome, found.beyond()
        also = ""
        if beyond is not found.best:
            gain = f"{best.with_room / beyond.outcome.with_room - 1:.1%} faster still"
            order = f"in the order {beyond.recipe.schedule}, which {self.file.system} cannot say"
            also = f"{order}: {seconds_of(beyond.outcome)} a step, {gain}\n"
        if found.best is found.history[0]:
            return (
                f"{self.file.system} can say no plan that was found to be faster\n{also}".rstrip()
            )
        gain = f"{own.with_room / best.with_room - 1:.1%} faster than {self.name}"
        gain = gain if own.fits else f"fits into memory, as {self.name} does not"
        text = said_in(SYSTEMS[self.file.system], self._maker, best.plan, self._costs).text
        return f"{seconds_of(best)} a step, {gain}:\n\n{text}{also}"


def seconds_of(outcome: Outcome) -> str:
    """Of a step, with what is wrong with it."""
    text = describe_seconds(outcome.with_room)
    return text if outcome.fits else f"{text}, does not fit into memory"
