"""`taskflow machine --validate`: what the presets predict beside what was published.

The figures stand in `machine/published.toml`, each with its source. The model of a row is made of what users have: the
preset, the model of a module, data parallelism, lowering, analytic costs, `simulate`; or the price of an all-reduce.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from taskflow.cli.data import show_data
from taskflow.cli.model import build_model
from taskflow.collective.price import CollectiveCosts
from taskflow.core.files import fit, naming, parse_toml, read_text
from taskflow.cost.model import CostModel
from taskflow.lowering import lower
from taskflow.machine import MachineModel, machinefile
from taskflow.report.console import make_console, print_table
from taskflow.simulation.simulate import simulate
from taskflow.strategy.rules import data_parallel

HEAD = ("", "model", "published", "unit", "ratio", "verdict", "source")
PUBLISHED = Path(machinefile.__file__).with_name("published.toml")


class PublishedRow(Struct, forbid_unknown_fields=True):
    """A published figure, and how the model makes it; see `machine/published.toml`."""

    name: str
    published: float
    unit: str
    machine: str
    source: str
    nodes: int = 1
    devices: int | None = None
    size_bytes: int = 0
    model: str = ""
    arguments: dict[str, Any] = {}
    samples: int = 0
    fit: bool = False


class FittedConstant(Struct, forbid_unknown_fields=True):
    """A field of the devices of a preset that was fitted to the rows of its machine."""

    what: str
    machine: str
    unit: str


class Ascending(Struct, forbid_unknown_fields=True):
    """Names of rows whose figures ascend."""

    rows: list[str]


class Published(Struct, forbid_unknown_fields=True):
    """The file of published figures."""

    tolerance: float
    sources: dict[str, str]
    constant: list[FittedConstant]
    order: list[Ascending]
    row: list[PublishedRow]

    def rows_of(self, constant: FittedConstant) -> list[PublishedRow]:
        """The rows that a constant was fitted to."""
        return [row for row in self.row if row.fit and row.machine == constant.machine]


def read_published(path: Path = PUBLISHED) -> Published:
    """The published figures; ValueError: what is wrong in the file."""
    with naming(f"published figures '{path}'"):
        return fit(parse_toml(read_text(path)), Published)


def predict(row: PublishedRow) -> float:
    """The figure of a row as the model makes it, in the unit of the row."""
    machine = MachineModel.preset(row.machine, row.nodes)
    machine = machine if row.devices is None else machine.take(row.devices)
    if row.size_bytes:
        count = len(machine.devices)
        seconds = (
            CollectiveCosts(machine)
            .prices(tuple(range(count)))
            .choose("all-reduce", row.size_bytes)
            .seconds
        )
        return 2 * (count - 1) / count * row.size_bytes / seconds / 1e9
    graph = build_model(row.model, [f"{name}={value!r}" for name, value in row.arguments.items()])
    seconds = simulate(
        lower(graph, data_parallel(graph, machine), machine), CostModel.analytic(machine)
    ).seconds
    return row.samples / seconds if row.samples else seconds


def validate(as_json: bool = False) -> bool:
    """Print model against published, row by row; whether all hold."""
    published = read_published()
    found = {row.name: predict(row) for row in published.row}
    if as_json:
        wrong = [*_outside(published, found), *_out_of_order(published, found)]
        rows = [
            {"name": r.name, "model": found[r.name], "published": r.published, "unit": r.unit}
            for r in published.row
        ]
        show_data("validation", {"holds": not wrong, "rows": rows, "wrong": wrong})
        return not wrong
    print_table(make_console(), [HEAD, *_lines(published, found)])
    wrong = [*_outside(published, found), *_out_of_order(published, found)]
    notes = [f"{key}: {source}" for key, source in published.sources.items()]
    verdict = (
        f"{len(wrong)} do not hold"
        if wrong
        else f"all within {published.tolerance:g} times, and in order"
    )
    sys.stdout.write("\n".join(["", *notes, "", *_fitted(published), *wrong, verdict, ""]))
    return not wrong


def _fitted(published: Published) -> Iterator[str]:
    for constant in published.constant:
        value = getattr(MachineModel.preset(constant.machine).devices[0], constant.what)
        rows = ", ".join(row.name for row in published.rows_of(constant))
        yield f"fitted: {constant.what} of {constant.machine} = {value:g} ({constant.unit}), to {rows}"
    fitted = sum(row.fit for row in published.row)
    yield f"{len(published.row)} rows: {len(published.constant)} constants fitted to {fitted}, the others left out"


def _lines(published: Published, found: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    for row in published.row:
        ratio = found[row.name] / row.published
        verdict = "holds" if _holds(ratio, published.tolerance) else "DOES NOT HOLD"
        part = "in the fit" if row.fit else "left out of it"
        yield (
            row.name,
            f"{found[row.name]:.4g}",
            f"{row.published:.4g}",
            row.unit,
            f"{ratio:.2f}",
            f"{verdict}, {part}",
            row.source,
        )


def _holds(ratio: float, tolerance: float) -> bool:
    return 1 / tolerance <= ratio <= tolerance


def _outside(published: Published, found: Mapping[str, float]) -> Iterator[str]:
    for row in published.row:
        if not _holds(found[row.name] / row.published, published.tolerance):
            yield f"{row.name}: {found[row.name]:.4g}, published {row.published:.4g} {row.unit}"


def _out_of_order(published: Published, found: Mapping[str, float]) -> Iterator[str]:
    for order in published.order:
        for low, high in pairwise(order.rows):
            if found[low] >= found[high]:
                yield f"order: {low} has {found[low]:.4g}, {high} {found[high]:.4g}"
