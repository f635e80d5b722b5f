"""`taskflow machine`: show a preset or a machine file, measure the machine at hand, write a machine file, validate."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from taskflow.backend import make_backend
from taskflow.backend.choices import LIBRARY, OWN, Choices
from taskflow.cli.data import add_json, show_data
from taskflow.cli.model import build_model
from taskflow.cli.types import Commands
from taskflow.cli.validate import validate
from taskflow.comm.transport import connect
from taskflow.core.columns import Array
from taskflow.core.text import printable
from taskflow.cost.measure import measure_machine
from taskflow.cost.measure_gpu import measure_host_link
from taskflow.cost.model import CostModel
from taskflow.lowering import lower
from taskflow.machine import Device, MachineModel
from taskflow.machine.machinefile import preset_names
from taskflow.machine.nccl_tests import with_nccl_tests
from taskflow.machine.topology import of_name
from taskflow.strategy.rules import single_device

SIMPLE_MACHINES: dict[str, Callable[[int], MachineModel]] = {
    "uniform": MachineModel.uniform,
    "local": MachineModel.local,
}


def add_parser(commands: Commands) -> None:
    """Register `taskflow machine` with the subparsers of the command line."""
    parser = commands.add_parser(
        "machine",
        help="show, measure or write a machine model",
        description="Show a machine model as a table, or write it to a file. Under `taskflow run -n RANKS -m taskflow "
        "machine --measure` every rank is a device and the links are timed between ranks.",
    )
    names = ", ".join(preset_names())
    parser.add_argument("machine", nargs="?", help=f"a TOML file, one of {names}, or torus:8x8")
    parser.add_argument(
        "--nodes", type=int, help="hosts of a preset (default: 1), or of a file of equal ones"
    )
    parser.add_argument(
        "--devices", type=int, help="only the first so many devices; with --measure: that many"
    )
    parser.add_argument(
        "--measure", action="store_true", help="measure the GPUs at hand, or else the processor"
    )
    parser.add_argument(
        "--kernels",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="with --measure: time the kernels of these graphs, MODULE:FUNCTION or FILE.json, on one device, by each "
        "way where a library and an own kernel do the same",
    )
    parser.add_argument(
        "--costs", metavar="FILE", help="with --kernels: the cost file that keeps them"
    )
    parser.add_argument(
        "--validate", action="store_true", help="hold the presets to published measurements"
    )
    parser.add_argument(
        "--all", action="store_true", help="with --validate: every published figure, by set"
    )
    parser.add_argument(
        "--nccl-tests",
        nargs="+",
        default=[],
        metavar="FILE",
        help="what all_reduce_perf and the like printed: times of the library's collectives",
    )
    parser.add_argument("--out", metavar="FILE", help="write a machine file")
    add_json(parser, "devices and links, or the rows of --validate,")
    parser.set_defaults(act=_run)


def find_machine(name: str, nodes: int | None = None, devices: int | None = None) -> MachineModel:
    """A simple machine, one of a file, where `name` ends in .toml, a topology, or a preset of `nodes` hosts.

    Its first `devices`; a topology is named as in `torus:8x8`.

    Raises:
        ValueError: there is none, what is wrong in its file, or it has fewer devices.
    """
    if name in SIMPLE_MACHINES:
        if nodes is not None:
            raise ValueError(f"machine '{name}': --nodes is for presets")
        return SIMPLE_MACHINES[name](devices or 4)
    if name.endswith(".toml") or ":" in name:
        is_file = name.endswith(".toml")
        if nodes is not None and not is_file:
            raise ValueError(
                f"machine topology '{name}': says itself how many hosts there are; --nodes is for presets and files"
            )
        machine = MachineModel.load(name, nodes) if is_file else of_name(name)
    else:
        machine = MachineModel.preset(name, 1 if nodes is None else nodes)
    return machine if devices is None else machine.take(devices)


def describe_machine(machine: MachineModel) -> str:
    """Tables of the devices, the links and the transfers of a machine; equal ones are one line."""
    devices = Counter(map(_device_text, machine.devices))
    lines = [
        f"{printable(machine.name)}: {len(machine.devices)} devices on {len(machine.hosts)} hosts, "
        f"{len(machine.links)} links"
    ]
    lines += ["", f"devices  {'kind':8s} {'GiB':>9s} {'GB/s':>9s} {'launch us':>9s}  peak Tflop/s"]
    lines += [f"{count:7d}  {text}" for text, count in devices.items()]
    lines += [
        "",
        f"  pairs  {'transfers between devices':25s} {'GB/s':>9s} {'us':>9s} {'links':>6s}",
    ]
    return "\n".join(lines + _transfer_lines(machine) + _library_lines(machine)) + "\n"


def _device_text(device: Device) -> str:
    rates = {"float32": device.flops_per_second, **device.rates}
    peaks = ", ".join(f"{rate / 1e12:.4g} {dtype}" for dtype, rate in rates.items())
    return (
        f"{device.kind:8s} {device.memory_bytes / 2**30:9.1f} {device.memory_bandwidth / 1e9:9.1f}"
        f" {device.overhead_seconds * 1e6:9.2f}  {peaks}"
    )


def _library_lines(machine: MachineModel) -> list[str]:
    """What the library's collectives take, at the least and the most bytes that were measured."""
    lines = (
        ["", f"devices  {'collectives of the library':32s} {'us':>11s} {'GB/s':>9s}"]
        if machine.library
        else []
    )
    for times in machine.library:
        name = f"{times.collective}, hosts: {times.hosts}"
        rate = times.bytes[-1] / times.seconds[-1]
        lines.append(
            f"{times.devices:7d}  {name:32s} {times.seconds[0] * 1e6:11.2f} {rate / 1e9:9.2f}"
        )
    return lines


def _transfer_lines(machine: MachineModel) -> list[str]:
    """How many ordered pairs of devices have which bandwidth, latency and number of links."""
    lines = []
    for (remote, rate, wait, hop), count in zip(
        *np.unique(_transfers(machine), axis=0, return_counts=True), strict=True
    ):
        where = "from host to host" if remote else "within a host"
        lines.append(f"{count:7d}  {where:25s} {rate / 1e9:9.3f} {wait * 1e6:9.2f} {hop:6.0f}")
    return lines


def _transfers(machine: MachineModel) -> Array:
    """(pairs, 4): whether between hosts, bytes a second, seconds and links of every ordered pair of devices."""
    host = np.array([d.host for d in machine.devices])
    apart = ~np.eye(len(host), dtype=bool)
    return np.stack(
        [
            (host[:, None] != host)[apart],
            machine.bandwidth[apart],
            machine.latency_seconds[apart].round(12),
            (machine.routes >= 0).sum(axis=2)[apart],
        ],
        axis=1,
    )


def _run(options: argparse.Namespace) -> int:
    if options.measure + options.validate + bool(options.machine) != 1:
        raise ValueError("machine: name a preset or a file, or ask for --measure or --validate")
    if bool(options.kernels) != bool(options.costs) or (options.kernels and not options.measure):
        raise ValueError("machine: --measure --kernels MODEL --costs FILE go together")
    if options.validate:
        return 0 if validate(options.all, options.json) else 1
    if options.measure:
        machine = measure_machine(MachineModel.local(options.devices))
        _report(machine, options)
        if options.kernels:
            sys.stdout.write(measure_kernels(machine, options.kernels, options.costs))
        if machine.devices[0].kind == "cuda" and not (options.out or options.json):
            _report_host_link()
        return 0
    machine = find_machine(options.machine, options.nodes, options.devices)
    _report(with_nccl_tests(machine, options.nccl_tests), options)
    return 0


def measure_kernels(machine: MachineModel, models: Sequence[str], file: str) -> str:
    """Time the kernels of graphs on the first device into a cost file; what can be chosen, as lines."""
    costs = CostModel.measured(machine, file)
    for model in models:
        graph = build_model(model, [])
        costs.seconds(lower(graph, single_device(graph, machine), machine))
    is_gpu = machine.devices[0].kind == "cuda"
    choices = costs.choices(make_backend().name(0)) if is_gpu else None
    return "\n".join(_choice_lines(choices or Choices())) + "\n"


def _choice_lines(choices: Choices) -> list[str]:
    if not choices.seconds:
        return ["", "kernels: there are no two for one thing"]
    lines = ["", f"{'':8s} {'library us':>11s} {'own us':>9s}"]
    for key, by in sorted(choices.seconds.items()):
        lines.append(f"{choices.way(key):8s} {by[LIBRARY] * 1e6:11.1f} {by[OWN] * 1e6:9.1f}  {key}")
    return lines


def _report_host_link() -> None:
    link = measure_host_link(make_backend())
    sys.stdout.write(
        f"\nhost to GPU {link.to_device_bandwidth / 1e9:.1f} GB/s after {link.to_device_seconds * 1e6:.1f} us, "
        f"GPU to host {link.to_host_bandwidth / 1e9:.1f} GB/s after {link.to_host_seconds * 1e6:.1f} us\n"
    )


def _report(machine: MachineModel, options: argparse.Namespace) -> None:
    """Once: by rank 0."""
    if connect().rank:
        return
    if options.out:
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        machine.save(options.out)
    if options.json:
        hosts = len(machine.hosts)
        show_data(
            "machine",
            {
                "name": machine.name,
                "hosts": hosts,
                "devices": machine.devices,
                "links": machine.links,
            },
        )
    elif not options.out:
        sys.stdout.write(describe_machine(machine))
