"""A plan: all that may differ between two ways to run one step of a graph. What a search returns, and a file holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from taskflow.core.files import (
    fit,
    fit_each,
    naming,
    parse_json,
    read_text,
    replace_file,
    without_head,
)
from taskflow.core.garbage import collect_rarely
from taskflow.core.numbers import whole
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.graph.homes import homes
from taskflow.graph.offload import offload
from taskflow.graph.recompute import recompute
from taskflow.graph.repeat import repeated
from taskflow.graph.ring import ring
from taskflow.lowering import Lowering, lower, lower_to_simulate
from taskflow.lowering.like import RowOrder
from taskflow.lowering.lowering import Devices
from taskflow.machine import MachineModel
from taskflow.schedule.order_of_all import order_of_all
from taskflow.schedule.orders import (
    Order,
    check_order_name,
    is_by_operator,
    named,
    order_name,
    program,
    reorder,
)
from taskflow.schedule.ordinal_order import by_ordinal
from taskflow.schedule.schedule import Policy, Schedule, ScheduleTable
from taskflow.simulation.simulate import simulate
from taskflow.strategy import strategy as strategies
from taskflow.strategy.micro_batches import check_parts, micro_batches, most_micro_batches
from taskflow.strategy.rebalance import cut_by_rates
from taskflow.strategy.strategy import Strategy, StrategyTable, check_strategy, in_steps
from taskflow.tasks.task_graph import TaskGraph
from taskflow.tasks.timeline import Timeline

FORMAT = "taskflow-plan"
VERSION = 1


class PlanTable(StrategyTable, forbid_unknown_fields=True):
    """A plan file: that of its strategy, and more; `schedule` is a name or a `ScheduleTable`."""

    parts: Annotated[int, Meta(ge=1, lt=1 << 31)] = 1
    schedule: str | dict[str, Any] | None = None
    recomputed: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    offloaded: tuple[str, ...] = ()
    gathers_again: bool = True
    collectives: dict[str, Any] = msgspec.field(default_factory=dict)
    bucket_bytes: Annotated[int, Meta(ge=1, lt=1 << 62)] | None = None
    ring: Annotated[int, Meta(ge=1, lt=1 << 31)] = 1


def _decide_alone(act: Callable[[], RowOrder]) -> RowOrder:
    """What the function gives here."""
    return act()


@dataclass(frozen=True)
class Plan:
    """How one step of a graph runs.

    Attributes:
        strategy: of one micro-batch; it names updates and homes too, where these do not follow.
        parts: micro-batches of each device.
        schedule: the order of rows, what `taskflow.reorder` takes; None: as lowered. An order or policy of
            `taskflow.schedule` becomes its name.
        recomputed: forward operators that are computed again for the backward pass.
        homes: parameters that have a home (see `taskflow.homes`).
        offloaded: what lies in the memory of hosts until it is needed: results of forward operators, states, and
            parameters, which have homes then (see `taskflow.offload`).
        gathers_again: whether the backward pass gathers what homes hold again, and each micro-batch does where a
            schedule has these one after the other.
        collectives: kind of collective -> algorithm, see `MachineModel.with_collectives`.
        bucket_bytes: see `lower`.
        ring: in so many parts attention goes around a ring, see `taskflow.ring`.

    Raises:
        ValueError: `parts` or `ring` is not positive, or no schedule has that name.
        TypeError: the strategy is none, or names are one text.
    """

    strategy: Strategy
    parts: int = 1
    schedule: Schedule | Policy | Order | str | None = None
    recomputed: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    gathers_again: bool = True
    collectives: Mapping[str, str] = field(default_factory=dict)
    bucket_bytes: int | None = None
    ring: int = 1
    offloaded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, Strategy):
            raise TypeError(f"plan: strategy is a Strategy, not a {type(self.strategy).__name__}")
        check_parts(self.parts)
        object.__setattr__(self, "parts", int(self.parts))
        object.__setattr__(self, "ring", whole("plan", "ring", self.ring, 1))
        for name in ("recomputed", "homes", "offloaded"):
            if isinstance(names := getattr(self, name), str):
                raise TypeError(f"plan: {name} are names, not one text '{names}'")
            object.__setattr__(self, name, tuple(names))
        if isinstance(self.schedule, str):
            check_order_name(self.schedule)
        elif self.schedule is not None and named(order_name(self.schedule)) == self.schedule:
            object.__setattr__(self, "schedule", order_name(self.schedule))

    @property
    def order(self) -> Schedule | Policy | Order | str | None:
        """Of rows: the schedule; where there is none, buckets are together in that of the program."""
        return program if self.bucket_bytes and self.schedule is None else self.schedule

    def transform(self, graph: Graph) -> Graph:
        """The graph whose rows run: with what is computed again, attention in rounds, homes, and what is offloaded."""
        if self.recomputed:
            graph = recompute(graph, self.recomputed)
        graph = ring(graph, self.ring)
        parameters = {region.name for region in graph.parameters}.intersection(self.offloaded)
        if names := dict.fromkeys((*self.homes, *sorted(parameters))):
            graph = homes(graph, names, again=self.gathers_again, parts=self.gathers)
        return offload(graph, self.offloaded) if self.offloaded else graph

    @property
    def gathers(self) -> int:
        """So often a pass gathers what homes hold: for each micro-batch, where a schedule has these in turn."""
        is_once = not (self.homes and self.gathers_again) or is_by_operator(self.schedule)
        return 1 if is_once else self.parts

    def placement(self, graph: Graph, machine: MachineModel) -> Strategy:
        """The strategy of the graph that runs, with all micro-batches; ValueError if it does not fit."""
        check_strategy(graph, self.strategy, len(machine.devices))
        return micro_batches(graph, self.strategy, self.parts)

    def in_steps(self, graph: Graph, machine: MachineModel, repeat: int) -> tuple[Graph, Strategy]:
        """The graph of so many steps that run in a row, and its strategy; ValueError: the plan does not fit."""
        graph = self.transform(graph)
        strategy = self.placement(graph, machine)
        return repeated(graph, repeat), in_steps(strategy, repeat)

    def lower(
        self, graph: Graph, machine: MachineModel, repeat: int = 1
    ) -> tuple[Graph, TaskGraph]:
        """The graph that runs, and its rows as they are lowered; see `apply`."""
        graph, strategy = self.in_steps(graph, machine, repeat)
        size = self.bucket_bytes
        return graph, lower(graph, strategy, machine, self.collectives, bucket_bytes=size)

    def apply(
        self,
        graph: Graph,
        machine: MachineModel,
        costs: CostModel,
        devices: Devices | None = None,
        decide: Callable[[Callable[[], RowOrder]], RowOrder] = _decide_alone,
        repeat: int = 1,
    ) -> tuple[Graph, TaskGraph]:
        """The graph that runs, and its rows in their order.

        Args:
            graph, machine: that it is for.
            costs: seconds of rows, by which they are ordered.
            devices: only the rows that touch these, in one order of the rows of all devices, which are not made. Those
                of one device are in the order in which they are among all rows that `apply` gives. Or a function that
                gives these, of the devices in use.
            decide: gives all ranks what a function gives on one of them (`Transport.on_rank_0`); only that one needs
                costs. By default each decides for itself.
            repeat: so many steps in a row, see `lower`.

        Raises:
            ValueError: the plan does not fit the graph or the machine.
        """
        if devices is None:
            graph, rows = self.lower(graph, machine, repeat)
            return graph, rows if self.order is None else reorder(rows, costs, self.order)
        graph, strategy = self.in_steps(graph, machine, repeat)
        machine = machine.with_collectives(self.collectives)
        lowering = Lowering(graph, machine, bucket_bytes=self.bucket_bytes or 0)
        schedule = self.order
        if schedule is None:
            return graph, lowering.lower(strategy, devices)
        order = decide(lambda: order_of_all(lowering, strategy, costs, schedule))
        return graph, lowering.lower_in_order(strategy, devices, order)

    @collect_rarely()
    def predict(
        self, graph: Graph, machine: MachineModel, costs: CostModel, repeat: int = 1
    ) -> Timeline:
        """What `simulate` says of so many steps in a row, from rows of representatives where these stand for all.

        So the timeline may lack rows of devices that do the same (`TaskGraph.peers`).

        Raises:
            ValueError: the plan does not fit the graph or the machine.
        """
        if self.schedule is not None and named(self.schedule) is None:  # it names devices, say
            return simulate(self.apply(graph, machine, costs, repeat=repeat)[1], costs)
        graph, strategy = self.in_steps(graph, machine, repeat)
        machine = machine.with_collectives(self.collectives)
        rows = lower_to_simulate(graph, strategy, machine, costs, self.bucket_bytes or 0)
        if self.order:
            rows = reorder(rows, costs, self.order)  # those in another order are not kept
        return simulate(rows, costs)

    def for_graph(self, graph: Graph) -> Plan:
        """The plan of an evaluation graph of the same model, see `Strategy.for_graph`.

        It has the homes of the parameters that are there, where those of this plan lie, and as many micro-batches, up
        to those of this plan, as its samples divide into, one after the other. Nothing is computed again or kept, since
        there is no backward pass.
        """
        parameters = {region.name for region in graph.parameters}
        homes = tuple(name for name in self.homes if name in parameters)
        away = tuple(name for name in self.offloaded if name in parameters)
        plan = replace(self, parts=1, schedule=None, recomputed=(), homes=homes, offloaded=away)
        graph = plan.transform(graph)
        strategy = self.strategy.for_graph(graph)
        parts = most_micro_batches(graph, strategy, self.parts)
        return replace(
            plan, strategy=strategy, parts=parts, schedule=by_ordinal if parts > 1 else None
        )

    def rebalanced(self, graph: Graph, rates: Sequence[float]) -> Plan:
        """The plan with parts of samples in proportion to the rates of their devices, what these compute in a second.

        A gradient is a sum over samples, so the numbers of a step are the same. See `taskflow.callbacks.Rebalance`.

        Raises:
            ValueError: no device has a rate.
        """
        return replace(self, strategy=cut_by_rates(graph, self.strategy, rates))

    def with_fields(self, where: str, **fields: Any) -> Plan:
        """The plan with fields that it does not set itself.

        Raises:
            ValueError: it sets one of them; the message begins with `where`.
        """
        plain = Plan(self.strategy)
        for name in fields:
            if (setting := getattr(self, name)) != getattr(plain, name):
                raise ValueError(
                    f"{where}: the plan sets {name} itself, to {_shown(setting)}; leave one of both out"
                )
        return replace(self, **fields)

    # -- files ---------------------------------------------------------------------------------------------------------

    def to_table(self) -> dict[str, Any]:
        """A `PlanTable` as JSON has it.

        Raises:
            ValueError: the schedule is a function of the user's own, which has no name.
        """
        schedule = (
            self.schedule.to_table() if isinstance(self.schedule, Schedule) else self.schedule
        )
        if not isinstance(schedule, dict | str | None):
            raise ValueError(
                f"plan: schedule '{order_name(schedule)}' is a function; a file holds a Schedule or a name"
            )
        names = {"recomputed": list(self.recomputed), "homes": list(self.homes)}
        rest: dict[str, Any] = {"gathers_again": self.gathers_again}
        rest["collectives"] = dict(self.collectives)
        if self.offloaded:
            rest["offloaded"] = list(self.offloaded)
        if self.bucket_bytes:
            rest["bucket_bytes"] = self.bucket_bytes
        if self.ring > 1:
            rest["ring"] = self.ring
        return {
            **self.strategy.to_table(),
            "parts": self.parts,
            "schedule": schedule,
            **names,
            **rest,
        }

    @staticmethod
    def of_table(table: Mapping[str, Any]) -> Plan:
        """The plan of a `PlanTable`; ValueError if it is none (with the place)."""
        plan_table = fit(dict(table), PlanTable)
        values = {
            name: getattr(plan_table, name)
            for name in PlanTable.__struct_fields__
            if name != "operators"
        }
        values["collectives"] = fit_each(plan_table.collectives, str, "collective")
        if isinstance(plan_table.schedule, dict):
            with naming("schedule"):
                values["schedule"] = fit(plan_table.schedule, ScheduleTable).schedule()
        return Plan(plan_table.strategy(), **values)

    def save(self, path: str | Path) -> None:
        """Write JSON, atomically; see `load`."""
        text = json.dumps({"format": FORMAT, "version": VERSION, **self.to_table()}, indent=1)
        replace_file(path, text + "\n")

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan file, or a strategy file; whether it fits a graph is checked when it is lowered.

        Raises:
            ValueError: the file is no JSON, of another format or version, or an entry is malformed (named).
        """
        with naming(f"plan file '{path}'"):
            table = parse_json(read_text(path))
            if isinstance(table, dict) and table.get("format") == strategies.FORMAT:
                return Plan(
                    fit(
                        without_head(table, strategies.FORMAT, strategies.VERSION), StrategyTable
                    ).strategy()
                )
            return Plan.of_table(without_head(table, FORMAT, VERSION))


def _shown(value: Any) -> str:
    """A field in few words."""
    if isinstance(value, int):
        return str(value)
    return ", ".join(value) if isinstance(value, tuple) else order_name(value)
