"""What if: a model on other machines, faster or slower by factors or of fewer devices, one search or rule for each.

Takes a graph, a machine and what finds a plan; gives a `Case` for each machine: how long a step takes, what it moves
and needs, on which of the machine's rates that depends, and what other plans would trade for it. Equal machines are
asked about once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from taskflow.core.errors import NoRoomError
from taskflow.cost.model import CostModel, MeasuredCosts
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.machine.scaling import OF_LINKS, is_of_links, scalable, scale_machine
from taskflow.schedule.plan import Plan
from taskflow.searching.outcome import Outcome
from taskflow.searching.result import SearchInterrupted, SearchResult
from taskflow.searching.searching import search
from taskflow.strategy.strategy import Strategy

STEP = 0.1  # by which a rate is changed, up and down, for its derivative

Find = Callable[[Graph, MachineModel, CostModel], SearchResult | Plan | Strategy]


@dataclass(frozen=True)
class Case:
    """What a plan takes on one machine.

    Attributes:
        devices: of the machine.
        scales: what was multiplied, see `taskflow.scale_machine`.
        plan: what runs; None where nothing fits.
        start: the best start of a search; empty where none was made.
        seconds: of a step, as simulated; inf where nothing fits.
        bytes_moved: between devices.
        peak_bytes: of the device that needs most.
        joules: of a step, see `Timeline.joules`; None where the machine does not say, or nothing fits.
        speedup: seconds of the first case that fits, over those of this one.
        sensitivities: rate -> by how many per cent a step takes longer for one per cent more of it.
        pareto: see `SearchResult.pareto`.
        refusal: what does not fit into memory; empty if all does.
    """

    devices: int
    scales: Mapping[str, float]
    plan: Plan | None = None
    start: str = ""
    seconds: float = math.inf
    bytes_moved: int = 0
    peak_bytes: int = 0
    speedup: float = 0.0
    sensitivities: Mapping[str, float] = field(default_factory=dict)
    pareto: tuple[Outcome, ...] = ()
    refusal: str = ""
    joules: float | None = None


def what_if(
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    find: Find = search,
    *,
    devices: Sequence[int] = (),
    scales: Sequence[Mapping[str, float]] = (),
    sensitivities: bool = True,
) -> Iterator[Case]:
    """Ask what a step would take on other machines; each case is given as soon as it is found.

    `what_if(graph, machine, costs, scales=[{"network": 10}, {"flops": 2}], devices=[8, 16])` has six cases: the machine
    as it is, scaled so, and so, each with its first 8 and 16 devices. `partial(search, seconds=60)` bounds each search.

    Args:
        graph: of one step; the same for all machines (strong scaling).
        machine: its devices are all that there are.
        costs: of that machine; `CostModel.on` carries them over to the others.
        find: gives what runs on a machine: a search, a rule, or what returns a plan.
        devices: use the first so many; default: all.
        scales: factors of the cases that follow those of the machine as it is.
        sensitivities: simulate each plan again with each rate 10 % higher and lower.

    Raises:
        ValueError: a scale or a number of devices does not fit the machine, or costs are measured and devices are
            scaled.
        SearchInterrupted: Ctrl-C in a search, once the best that it had found was given.
    """
    for factors in scales:
        check_costs(costs, factors)
    question = _Question(graph, find, costs, sensitivities)
    cases = dict[MachineModel, Case]()
    first = math.inf
    machines = [(scale_machine(machine, factors), factors) for factors in ({}, *scales)]
    counts = devices or [len(machine.devices)]
    for scaled, factors in [
        (scaled.take(count), factors) for scaled, factors in machines for count in counts
    ]:
        interrupted = None
        key = _in_use(scaled)
        if key not in cases:
            cases[key], interrupted = question.answer(scaled)
        first = first if math.isfinite(first) else cases[key].seconds
        speedup = first / cases[key].seconds if math.isfinite(first) else 0.0
        yield replace(cases[key], scales=dict(factors), speedup=speedup)
        if interrupted:
            raise interrupted


def _in_use(machine: MachineModel) -> MachineModel:
    """The machine without the links that nothing passes: machines that are equal so are alike."""
    used = np.unique(machine.routes[machine.routes >= 0]).tolist()
    return replace(machine, links=tuple(machine.links[k] for k in used))


def check_costs(costs: CostModel, factors: Mapping[str, float]) -> None:
    """Refuse to scale what was measured."""
    scaled = [name for name in factors if not (is_of_links(name) or name == "memory")]
    if scaled and isinstance(costs, MeasuredCosts):
        rule = "costs are measured, on devices as they are; analytic costs scale"
        raise ValueError(f"what if: scale '{scaled[0]}': {rule}")


@dataclass(frozen=True)
class _Question:
    """What is asked about every machine."""

    graph: Graph
    find: Find
    costs: CostModel
    is_sensitive: bool

    def answer(self, machine: MachineModel) -> tuple[Case, SearchInterrupted | None]:
        """A case, and what interrupted its search."""
        case = Case(len(machine.devices), {})
        interrupted = None
        try:
            answer = self.find(self.graph, machine, self._costs(machine))
        except NoRoomError as error:
            return replace(case, refusal=str(error)), None
        except SearchInterrupted as caught:
            answer = (interrupted := caught).result
        if isinstance(answer, SearchResult):
            case = replace(case, start=answer.best_start, pareto=answer.pareto)
            answer = answer.plan
        plan = Plan(answer) if isinstance(answer, Strategy) else answer
        timeline = plan.predict(self.graph, machine, self._costs(machine))
        seconds = timeline.seconds
        case = replace(
            case,
            plan=plan,
            seconds=seconds,
            bytes_moved=timeline.bytes_moved,
            peak_bytes=int(timeline.peak_bytes.max()),
            sensitivities=dict(self._sensitivities(plan, machine, seconds)),
            refusal=timeline.shortage,
            joules=timeline.joules,
        )
        return case, interrupted

    def _costs(self, machine: MachineModel) -> CostModel:
        return self.costs if machine == self.costs.machine else self.costs.on(machine)

    def _sensitivities(
        self, plan: Plan, machine: MachineModel, seconds: float
    ) -> Iterator[tuple[str, float]]:
        """Per cent of the seconds per per cent of each rate, by central differences."""
        for name in scalable(machine) if self.is_sensitive else ():
            if name in OF_LINKS or not (name == "memory" or isinstance(self.costs, MeasuredCosts)):
                scaled = (scale_machine(machine, {name: 1 + step}) for step in (STEP, -STEP))
                more, less = (plan.predict(self.graph, m, self._costs(m)).seconds for m in scaled)
                yield name, (more - less) / (2 * STEP * seconds)
