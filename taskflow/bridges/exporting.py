"""Out and in: a plan in the words of another system, and a job of such a system as a plan.

What the words cannot say is a `Difference`, with what it costs: how much longer a step of the nearest plan takes that
they can say. No part is dropped in silence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from taskflow.bridges.deepspeed import DEEPSPEED
from taskflow.bridges.facts import System, Told
from taskflow.bridges.flexflow import is_flexflow, read_flexflow
from taskflow.bridges.layout import layout_text
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.megatron import MEGATRON
from taskflow.bridges.placements import placements_text
from taskflow.bridges.recipe import Recipe
from taskflow.bridges.recognising import Difference, differences, recognise
from taskflow.bridges.torchtitan import TORCHTITAN
from taskflow.core.files import naming, read_text
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.report.describe import describe_seconds
from taskflow.schedule.plan import Plan
from taskflow.searching.outcome import Outcome, judged

SYSTEMS = {system.name: system for system in (MEGATRON, TORCHTITAN, DEEPSPEED)}
Judging = Callable[[Plan], Outcome]
OURS = ("dtensor", "json")  # what says every part of a plan, or names it itself


def targets() -> tuple[str, ...]:
    """All that a plan can be exported to."""
    return (*SYSTEMS, *OURS)


@dataclass(frozen=True)
class ExportedPlan:
    """A plan in the words of another system.

    Attributes:
        system: its name.
        text: of the file.
        plan: what the text says.
        recipe: the same in words that systems share; None: the text is that of the plan itself.
        outcome, original: predicted, of that plan and of the plan that was asked for.
        unsaid: each part that the text does not say.
    """

    system: str
    text: str
    plan: Plan
    recipe: Recipe | None
    outcome: Outcome
    original: Outcome
    unsaid: tuple[Difference, ...] = ()

    @property
    def slower(self) -> float:
        """By which part of its seconds the step that the text says is longer than the one that was planned."""
        return self.outcome.with_room / self.original.with_room - 1

    def __str__(self) -> str:
        first = f"{self.system}: {_described(self.outcome)} a step"
        if self.unsaid:
            first += f", {_described(self.original)} as planned ({self.slower:+.1%}); not said:"
        return "\n  ".join([first, *map(str, self.unsaid)])


def _described(outcome: Outcome) -> str:
    text = describe_seconds(outcome.with_room)
    return text if outcome.fits else f"{text} (does not fit into memory)"


def export_plan(
    graph: Graph, plan: Plan, machine: MachineModel, costs: CostModel, to: str
) -> ExportedPlan:
    """A plan in the words of another system, as near as that can say it.

    Args:
        graph, machine, costs: as for `search`.
        plan: of that graph.
        to: one of megatron, torchtitan, deepspeed, dtensor, json.

    Raises:
        ValueError: there is no such system, or the plan does not fit the graph or the machine.
    """
    if to not in targets():
        raise ValueError(f"export: '{to}' is none of {', '.join(targets())}")
    judge = partial(judged, graph, machine, costs)
    if to in OURS:
        text = json.dumps(plan.to_table(), indent=1) if to == "json" else None
        outcome = judge(plan)
        text = text or placements_text(plan.transform(graph), plan, len(machine.devices))
        return ExportedPlan(to, text + "\n", plan, None, outcome, outcome)
    maker = PlanMaker(graph, machine)
    return said_in(SYSTEMS[to], maker, plan, costs)


def said_in(system: System, maker: PlanMaker, plan: Plan, costs: CostModel) -> ExportedPlan:
    """A plan in the words of a system, and what these leave out."""
    judge = partial(judged, maker.layers.graph, maker.machine, costs)
    full, plan = recognise(plan, maker)
    recipe = system.said(full, maker.facts)
    original = judge(plan)
    nearest = maker.plan(recipe)
    unsaid = _unsaid(judge, maker, plan, full, recipe, original)
    return ExportedPlan(
        system.name,
        system.write(recipe, maker.facts),
        nearest,
        recipe,
        judge(nearest) if unsaid else original,
        original,
        unsaid,
    )


def _unsaid(
    judge: Judging, maker: PlanMaker, plan: Plan, full: Recipe, recipe: Recipe, original: Outcome
) -> tuple[Difference, ...]:
    """What of a plan the recipe that is most like it leaves out, and what of this the recipe of a system does."""
    exact = maker.plan(full)
    parts = [*_unsaid_parts(judge, plan, exact, original)]
    said = judge(exact) if parts else original
    return (*parts, *_unsaid_words(judge, maker, full, recipe, said))


def _unsaid_parts(
    judge: Judging, plan: Plan, exact: Plan, original: Outcome
) -> Iterator[Difference]:
    for number, part in enumerate(differences(plan, exact)):
        make = partial(_without, plan, part, exact)
        seconds = _longer(judge, original, make) if number < PRICED else None
        yield replace(part, seconds=seconds)


def _unsaid_words(
    judge: Judging, maker: PlanMaker, full: Recipe, recipe: Recipe, said: Outcome
) -> Iterator[Difference]:
    for what, words in _words(full, recipe).items():
        other = replace(full, **{name: getattr(recipe, name) for name in words})
        yield Difference(
            what, seconds=_longer(judge, said, partial(maker.plan, other)), words=words
        )


PRICED = 8  # parts of a strategy that are priced alone: each takes a simulation
WORDS = (  # fields of a recipe that are one part of it
    ("tensor", "context", "expert", "data"),
    ("rest",),
    ("pipeline", "layout", "schedule", "micro_batches"),
    ("sharding", "gathers_again"),
    ("recomputation",),
    ("offload",),
)


def _words(full: Recipe, recipe: Recipe) -> dict[str, dict[str, object]]:
    """What is different in the second recipe, for people -> its fields as the first has them."""
    words = dict[str, dict[str, object]]()
    unlike = full.unlike(recipe)
    for names in WORDS:
        values = {name: unlike[name] for name in names if name in unlike}
        if values:
            words[_instead(values)] = {name: here for name, (here, _) in values.items()}
    return words


def _instead(values: Mapping[str, tuple[object, object]]) -> str:
    return "; ".join(
        f"{name} {_word(here)} instead of {_word(there)}" for name, (here, there) in values.items()
    )


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return f"'{layout_text(value)}'" if value else "of one stage"
    return str(value) or "none"


def _without(plan: Plan, part: Difference, nearest: Plan) -> Plan:
    """The plan with that part as the nearest plan has it."""
    entries = {name: nearest.strategy.get(name) for name in part.entries}
    fields = {name: getattr(nearest, name) for name in part.fields}
    return Difference(part.what, fields, entries).undo(plan)


def _longer(judge: Judging, original: Outcome, make: Callable[[], Plan]) -> float | None:
    """By how many seconds a step of another plan is longer; None: there is no such plan."""
    try:
        return judge(make()).with_room - original.with_room
    except ValueError:
        return None


# -- in ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImportedJob:
    """A job of another system.

    Attributes:
        system: its name.
        plan: as the job has it.
        unread: what the file says and a plan cannot.
    """

    system: str
    plan: Plan
    unread: tuple[str, ...] = ()


class JobFile:
    """A file of another system; `FILE:NAME` is a function in it.

    Args:
        name: of the file.
        given: variables of a script that its caller sets.

    Attributes:
        system: whose file it is.
        sizes: of the model, see `Told`.
        devices: of the job; None: the file does not say.

    Raises:
        ValueError: there is no such file, or it says what cannot be.
    """

    def __init__(self, name: str, given: Mapping[str, str] | None = None) -> None:
        file, _, variant = (name, "", "") if Path(name).is_file() else name.rpartition(":")
        self.path = Path(file)
        if not self.path.is_file():
            raise ValueError(f"'{name}': there is no such file")
        with naming(f"'{file}'"):
            text = read_text(self.path)
        self.system = "flexflow"
        self._told = Told({})
        if not is_flexflow(text):
            suffix = self.path.suffix
            system = next((s for s in SYSTEMS.values() if suffix in s.suffixes), MEGATRON)
            self.system = system.name
            self._told = system.tell(self.path, variant, given or {})
        self.sizes = self._told.sizes
        self.devices = self._told.devices

    def job(self, maker: PlanMaker) -> ImportedJob:
        """The job of a model on a machine; ValueError: they do not fit."""
        graph = maker.layers.graph
        machine = maker.machine
        if self.system not in SYSTEMS:
            return ImportedJob(self.system, read_flexflow(self.path, graph, machine))
        system = SYSTEMS[self.system]
        recipe = system.read(self._told, maker.facts)
        return ImportedJob(self.system, maker.plan(recipe), tuple(dict.fromkeys(self._told.unread)))


def import_job(name: str, graph: Graph, machine: MachineModel) -> ImportedJob:
    """The plan of a job as another system has it.

    Args:
        name: a script or flags of Megatron-LM, a configuration of torchtitan (`FILE.py:FUNCTION` or TOML), DeepSpeed's
            JSON, or a strategy file of FlexFlow.
        graph: the model, with the batch of a step of the job.
        machine: that it is for.

    Raises:
        ValueError: there is no such file, it is malformed, or the model or machine is another one.
    """
    return JobFile(name).job(PlanMaker(graph, machine))
