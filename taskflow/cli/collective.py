"""`taskflow collective`: what one collective takes on a machine, by every algorithm and protocol."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from taskflow.cli.data import add_json, show_data
from taskflow.cli.machine import find_machine
from taskflow.cli.types import Commands, positive, size_bytes
from taskflow.collective.algorithms import BY_STEPS
from taskflow.collective.calls import Call, calls
from taskflow.collective.library import Library
from taskflow.collective.price import CollectiveCosts, GroupPrices, tried
from taskflow.machine import MachineModel
from taskflow.machine.library import LIBRARY
from taskflow.report.console import make_console, print_table
from taskflow.tasks.moves import Outline, even_outline

# Bytes that a ring moves of all, by each member, as nccl-tests counts bus bandwidth: (of two, of one) (n - 1) / n.
_ROUNDS = {"all-reduce": 2, "reduce": 0, "broadcast": 0}


@dataclass(frozen=True)
class Priced:
    """One way to carry it out; `expected_seconds`: by a library, before what its calls take besides."""

    moved_by: str
    algorithm: str
    seconds: float
    bus_bandwidth: float
    expected_seconds: float | None = None
    is_chosen: bool = False


def add_parser(commands: Commands) -> None:
    """Register `taskflow collective` with the subparsers of the command line."""
    parser = commands.add_parser(
        "collective",
        help="price one collective by every algorithm and protocol",
        description="What a collective of so many bytes takes among all devices of a machine: by the calls of NCCL, of "
        "which it chooses one, and by the steps of every algorithm of taskflow's own.",
    )
    parser.add_argument("--machine", required=True, metavar="NAME|FILE")
    parser.add_argument("--hosts", type=positive, help="hosts of a preset (default: 1)")
    parser.add_argument("--devices", type=positive, help="only the first so many devices")
    parser.add_argument(
        "--bytes",
        type=size_bytes,
        required=True,
        metavar="64M",
        help="of the sum, or of all that is gathered or sent",
    )
    parser.add_argument("--collective", choices=BY_STEPS, default="all-reduce")
    add_json(parser, "prices")
    parser.set_defaults(act=_run)


def _run(options: argparse.Namespace) -> int:
    machine = find_machine(options.machine, options.hosts, options.devices)
    if len(machine.devices) < 2:
        raise ValueError("collective: is among two devices or more")
    prices = sorted(price(machine, options.collective, options.bytes), key=lambda p: p.seconds)
    if options.json:
        show_data("collective", {"collective": options.collective, "prices": prices})
        return 0
    head = ("moved by", "algorithm", "us", "bus GB/s", "expected us", "")
    rows = [
        (
            p.moved_by,
            p.algorithm,
            f"{p.seconds * 1e6:.1f}",
            f"{p.bus_bandwidth / 1e9:.2f}",
            "" if p.expected_seconds is None else f"{p.expected_seconds * 1e6:.1f}",
            "chosen" if p.is_chosen else "",
        )
        for p in prices
    ]
    print_table(make_console(), [head, *rows])
    return 0


def price(machine: MachineModel, name: str, size: int) -> Iterator[Priced]:
    """A collective of `size` bytes among all devices, by every protocol of the library and every own algorithm."""
    devices = tuple(range(len(machine.devices)))
    group = CollectiveCosts(machine).prices(devices)
    by_steps = CollectiveCosts(machine.with_library("own")).prices(devices)
    bus = bus_bytes(name, size, group.group.count)
    chosen = group.choose(name, size).algorithm
    yield from _prices_of_library(_calls(group, machine, name, size), bus, chosen == LIBRARY)
    outline = even_outline(name, by_steps.group.hosts, size)
    yield from _prices_of_algorithms(by_steps, outline, bus, chosen)


def _prices_of_library(called: Sequence[Call], bus: float, is_chosen: bool) -> Iterator[Priced]:
    """Of its calls; `is_chosen`: the one that is expected to be the fastest is what the devices use."""
    best = min((float(call.expected[0]) for call in called), default=0.0)
    for call in called:
        seconds = float(call.seconds[0])
        expected = float(call.expected[0])
        label = f"{call.protocol.algorithm}, {call.protocol.protocol}"
        yield Priced(
            "nccl", label, seconds, bus / seconds, expected, is_chosen and expected == best
        )


def _prices_of_algorithms(
    prices: GroupPrices, outline: Outline, bus: float, chosen: str
) -> Iterator[Priced]:
    for algorithm in tried(outline):
        seconds = prices.seconds_of(outline, algorithm)
        yield Priced("own", algorithm, seconds, bus / seconds, None, chosen == algorithm)


def bus_bytes(name: str, size: int, members: int) -> float:
    """Bytes that pass a bus, as nccl-tests counts them: those that each member of a ring sends."""
    rounds = _ROUNDS.get(name, 1)
    return rounds * size * (members - 1) / members if rounds else size


def _calls(group: GroupPrices, machine: MachineModel, name: str, size: int) -> list[Call]:
    protocols = Library.of(machine).protocols
    return (
        calls(group.library.fabric, protocols, name, np.array([float(size)])) if protocols else []
    )
