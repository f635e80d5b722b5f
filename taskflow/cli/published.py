"""Published figures, by set, and what the model makes of each; the files stand in `machine/published`.

A row is made of what users have: a preset, the model of a module, a plan by degrees (`grid`), analytic costs and
`simulate`; or the price of a collective.

```toml
name = "..."               # of the set
tolerance = 1.3            # a row holds if model and published are within this factor of each other
outside = 0                # so many rows may be outside
median = 1.1               # the median of these factors is at most this
sources = { key = "text" } # what `source` of a row may say

[default]                  # fields that rows have unless they say otherwise; tables are merged

[constant]                 # what was fitted to the rows that are marked `fit`, see `FittedConstant`
[[order]]                  # rows whose figures ascend
[[row]]                    # see `PublishedRow`
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct

from taskflow.cli.model import build_model
from taskflow.collective.price import CollectiveCosts
from taskflow.core.files import fit, naming, parse_toml, read_text
from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.graph.precision import casts_parameter
from taskflow.machine import MachineModel, machinefile
from taskflow.machine.protocol import NCCL, published, read_protocols
from taskflow.schedule.plan import Plan
from taskflow.searching.grid_plan import grid
from taskflow.strategy.rules import data_parallel
from taskflow.tasks.timeline import Timeline

PUBLISHED = Path(machinefile.__file__).with_name("published")


class PublishedRow(Struct, forbid_unknown_fields=True):
    """A published figure, and how the model makes it.

    Attributes:
        name, published, unit, source: the figure; its unit is a key of `FIGURES`.
        machine, nodes, devices: a preset, its hosts, and how many of its devices; None: all.
        rates: fields of devices and links that differ from the preset's.
        collective, size_bytes, algorithm: of the price of a collective among all devices; algorithm "": the one that is
            chosen; of a library, one of `machine.protocol.ALGORITHMS`.
        model, arguments: of a step, `build(**arguments)`.
        plan: degrees, arguments of `grid`; none: data parallel. Its `recomputed` are patterns of names of forward
            operators, and `kept` those among them that are kept.
        against: of a row in "times", arguments of the plan that differ in the one which takes so many times as long.
        samples: that a step counts.
        fit: whether a constant was fitted to it.
    """

    name: str
    published: float
    unit: str
    machine: str
    source: str
    nodes: int = 1
    devices: int | None = None
    rates: dict[str, Any] = {}
    collective: str = "all-reduce"
    size_bytes: int = 0
    algorithm: str = ""
    model: str = ""
    arguments: dict[str, Any] = {}
    plan: dict[str, Any] = {}
    against: dict[str, Any] = {}
    samples: int = 0
    fit: bool = False

    def make_machine(self) -> MachineModel:
        """The machine of the row."""
        machine = MachineModel.preset(self.machine, self.nodes).with_rates(**self.rates)
        return machine if self.devices is None else machine.take(self.devices)


class FittedConstant(Struct, forbid_unknown_fields=True):
    """A field of the devices of a preset, or of the protocols of `nccl`, that was fitted to rows of the set.

    Attributes:
        what, machine, unit: the field.
        without: what it would be by published or measured figures alone.
        also: presets whose field follows from this one.
    """

    what: str
    machine: str
    unit: str
    without: float
    also: list[str] = []

    @property
    def value(self) -> float:
        """The constant."""
        if self.machine == NCCL:
            return float(getattr(published(), self.what))
        return float(getattr(MachineModel.preset(self.machine).devices[0], self.what))

    def serves(self, row: PublishedRow) -> bool:
        """Whether the figure of a row depends on it; how many times faster a plan is than another hardly does."""
        if self.machine == NCCL:
            return bool(row.size_bytes)
        is_step = bool(row.model) and not row.against
        return is_step and row.machine in (self.machine, *self.also)

    def left_out(self, machine: MachineModel) -> MachineModel:
        """The machine as it would be without the fit."""
        if self.machine != NCCL:
            rate = getattr(machine.devices[0], self.what)
            return machine.with_rates(**{self.what: rate * self.without / self.value})
        protocols = machine.protocols or read_protocols()
        quicker = (
            replace(p, **{self.what: min(getattr(p, self.what), self.without)}) for p in protocols
        )
        return replace(machine, protocols=tuple(quicker))


class Ascending(Struct, forbid_unknown_fields=True):
    """Names of rows whose figures ascend."""

    rows: list[str]


class PublishedTable(Struct, forbid_unknown_fields=True):
    """A file of published figures."""

    name: str
    tolerance: float
    row: list[dict[str, Any]]
    median: float | None = None
    outside: int = 0
    sources: dict[str, str] = {}
    constant: FittedConstant | None = None
    order: list[Ascending] = []
    default: dict[str, Any] = {}


class PublishedSet(Struct):
    """A set of published figures: a `PublishedTable` whose rows are complete."""

    name: str
    tolerance: float
    median: float | None
    outside: int
    sources: dict[str, str]
    constant: FittedConstant | None
    order: list[Ascending]
    row: list[PublishedRow]

    @property
    def fitted(self) -> list[PublishedRow]:
        """The rows that the constant was fitted to."""
        return [row for row in self.row if row.fit]


def read_published(folder: Path = PUBLISHED) -> list[PublishedSet]:
    """The published figures, that of the presets first; ValueError: what is wrong in a file."""
    paths = sorted(folder.glob("*.toml"), key=lambda path: (path.stem != "presets", path.stem))
    return [read_set(path) for path in paths]


def read_set(path: Path) -> PublishedSet:
    """One file."""
    with naming(f"published figures '{path}'"):
        table = fit(parse_toml(read_text(path)), PublishedTable)
        rows = [_complete(entry, table.default) for entry in table.row]
    return PublishedSet(
        table.name,
        table.tolerance,
        table.median,
        table.outside,
        table.sources,
        table.constant,
        table.order,
        rows,
    )


def _complete(entry: Mapping[str, Any], default: Mapping[str, Any]) -> PublishedRow:
    """A row with the fields of the default, tables merged."""
    merged = {
        key: {**value, **entry.get(key, {})} if isinstance(value, dict) else value
        for key, value in default.items()
    }
    return fit(
        {**entry, **{k: v for k, v in merged.items() if isinstance(v, dict) or k not in entry}},
        PublishedRow,
        f"row '{entry.get('name')}'",
    )


# -- the figure that the model makes -----------------------------------------------------------------------------------


def predict(row: PublishedRow, without: FittedConstant | None = None) -> float:
    """The figure of a row as the model makes it, in the unit of the row.

    Args:
        row: of any set.
        without: a constant whose fit is left out.

    Raises:
        ValueError: the row names what there is not.
        ModuleNotFoundError: an optional package is missing.
    """
    machine = row.make_machine()
    if without is not None:
        machine = without.left_out(machine)
    if row.size_bytes:
        return _predict_collective(row, machine)
    graph = build_model(row.model, [f"{name}={value!r}" for name, value in row.arguments.items()])

    def run(options: Mapping[str, Any]) -> Timeline:
        plan = _plan_of(options, graph, machine)
        return plan.predict(graph, machine, CostModel.analytic(machine))

    timeline = run(row.plan)
    if row.against:
        return run({**row.plan, **row.against}).seconds / timeline.seconds
    return FIGURES[row.unit](row, timeline)


def _predict_collective(row: PublishedRow, machine: MachineModel) -> float:
    if row.algorithm and machine.has_library:
        machine = with_algorithm(machine, row.algorithm)
    elif row.algorithm:
        machine = machine.with_collectives({row.collective: row.algorithm})
    count = len(machine.devices)
    prices = CollectiveCosts(machine).prices(tuple(range(count)))
    seconds = prices.choose(row.collective, row.size_bytes).seconds
    passes = 2 if row.collective == "all-reduce" else 1  # bus bandwidth as nccl-tests counts it
    bus = passes * (count - 1) / count * row.size_bytes / seconds
    return bus / 1e9 if row.unit == "bus GB/s" else seconds * 1e6


def with_algorithm(machine: MachineModel, name: str) -> MachineModel:
    """The machine whose library has this algorithm alone, as with NCCL_ALGO."""
    protocols = machine.protocols or read_protocols()
    allowed = (p if p.algorithm == name else replace(p, collectives=()) for p in protocols)
    return replace(machine, protocols=tuple(allowed))


def _plan_of(arguments: Mapping[str, Any], graph: Graph, machine: MachineModel) -> Plan:
    if not arguments:
        return Plan(data_parallel(graph, machine))
    options = dict(arguments)
    wanted = options.pop("recomputed", [])
    kept = options.pop("kept", [])
    return grid(graph, machine, recomputed=_forward(graph, wanted, kept), **options)


def _forward(graph: Graph, wanted: list[str], kept: list[str]) -> Iterator[str]:
    """Names of forward operators by pattern; half copies of parameters stay, as systems keep them."""
    for op in graph.operators:
        is_named = any(fnmatchcase(op.name, pattern) for pattern in wanted)
        is_kept = any(fnmatchcase(op.name, pattern) for pattern in kept)
        is_left = is_kept or casts_parameter(op)
        if is_named and not is_left and not op.is_backward and not op.writes:
            yield op.name


def _per_second(row: PublishedRow, timeline: Timeline) -> float:
    return row.samples / timeline.seconds


# Unit -> what the model says, of a step.
FIGURES: dict[str, Callable[[PublishedRow, Timeline], float]] = {
    "images/s": _per_second,
    "tokens/s": _per_second,
    "tokens/s/GPU": lambda row, timeline: _per_second(row, timeline) / len(timeline.peak_bytes),
    "s": lambda row, timeline: timeline.seconds,
    "ms": lambda row, timeline: timeline.seconds * 1e3,
    "GB": lambda row, timeline: float(timeline.peak_bytes.max()) / 1e9,
}
TIMES = "times"  # as long by another plan
COLLECTIVE_UNITS = ("bus GB/s", "us")
