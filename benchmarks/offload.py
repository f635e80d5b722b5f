"""Offload: what the memory of hosts is worth to a search, how well its copies are predicted, and that numbers stay.

    python benchmarks/offload.py                      6.7B on 8 GPUs of 24 GB, 13B on 8 of 40 GB: one sequence a device
    python benchmarks/offload.py --by-hand            of both rows a plan with and one without, as an expert writes them
    python benchmarks/offload.py --laws 200           random plans, each on CPU devices, equal to one device in float64
    mpirun -n 4 python benchmarks/offload.py --emulated        the same ratios at 1/64 of the width, run in real time

Each row is searched twice with equal proposals, with the move `change_offload` and without it. Machines: eight L4 of a
host, whose copies between devices and to the host share one PCIe 4.0 x16 of each, as in GCP's g2-standard-96 (384 GB,
of which 24 are left to the host; Cascade Lake, whose memory all copies share); eight A100 on NVSwitch, two of which
share a PCIe switch, as in an NVIDIA DGX A100 (320 GB of GPUs, 1 TB). A PCIe link reaches 0.75 of what it is sold with,
as in the preset of the L4.
Models: widths and layers of GPT-3 (Brown et al., 2020, table 2.1), Adam, bfloat16 with float32 parameters.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from emulated_plans import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from predict import make_feeds

import taskflow
from taskflow.comm.transport import connect
from taskflow.graph.offload import offloaded
from taskflow.machine import Link
from taskflow.machine.hostmemory import HostMemory
from taskflow.searching.fold import block_interiors
from taskflow.searching.moves import MOVES
from taskflow.searching.moves.away import change_offload

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests import laws
from tests.strategies import graphs, hosted, whole_plans

GIB = 1 << 30
DEVICES = 8
EMULATED_FLOPS = 2e9  # of a device: so slow that several share a core
DRAM = 281.6e9  # bytes/s of two sockets of six channels of DDR4-2933, of which half is each way's
PCIE = {"bandwidth": 32e9, "latency_seconds": 1.25e-6, "efficiency": 0.75}


class Row(NamedTuple):
    """A model on a machine; see the module."""

    name: str
    layers: int
    hidden: int
    sequence: int
    preset: str
    device_gib: int
    host_gib: int
    sharing: int  # devices behind one link to the host


ROWS = (
    Row("6.7B, 8 x 24 GB", 32, 4096, 32768, "l4", 24, 360, 8),
    Row("13B, 8 x 40 GB", 40, 5120, 32768, "a100", 40, 960, 2),
)


def machine_of(row: Row) -> taskflow.MachineModel:
    """Eight devices of a preset with less memory, and their host's memory."""
    preset = taskflow.MachineModel.preset(row.preset)
    device = replace(preset.devices[0], memory_bytes=row.device_gib * GIB)
    links = [link for link in preset.links if "nvswitch@0" in link.ends]
    switches = range(DEVICES // row.sharing)
    ways: list[tuple[int | str, str]] = [(d, f"pcie{d // row.sharing}") for d in range(DEVICES)]
    for ends in (*ways, *((f"pcie{k}", "host") for k in switches)):
        is_last = row.sharing == DEVICES and ends[1] == "host"
        facts = PCIE | {"bandwidth": DRAM / 2} if is_last else PCIE
        links += [Link(ends, **facts), Link(ends[::-1], **facts)]
    memory = HostMemory(0, "host", row.host_gib * GIB)
    parts = {"devices": (device,) * DEVICES, "links": tuple(links), "memories": (memory,)}
    return replace(preset, **parts, name=f"8 x {row.preset}")


def gpt(layers: int, hidden: int, sequence: int, batch: int, **options: Any) -> taskflow.Graph:
    """With flash attention."""
    sizes = {"layers": layers, "hidden": hidden, "heads": max(hidden // 128, 2)}
    build = import_module("ops.models.gpt").build
    graph: taskflow.Graph = build(batch, sequence, **sizes, dropout=0.0, fused=True, **options)
    return graph


def searched(
    graph: taskflow.Graph, machine: taskflow.MachineModel, proposals: int, offloads: bool
) -> taskflow.SearchResult | str:
    """What a search finds, or why there is nothing."""
    moves = [move for move in MOVES if offloads or move is not change_offload]
    costs = taskflow.CostModel.analytic(machine)
    try:
        return taskflow.search(graph, machine, costs, proposals, moves=moves)
    except ValueError as error:
        return str(error)


def describe(label: str, found: taskflow.SearchResult | str, begin: float) -> None:
    """A line of a search."""
    took = f"[{time.process_time() - begin:.0f} CPU s]"
    print(f"  {label:8s} {found} {took}", flush=True)


def by_hand(rows: Sequence[Row]) -> None:
    """Parameters sharded over samples, what layers pass on and the cores of attention on hosts, all else made again.

    Without hosts the samples one by one, four at a time, each split over all devices, but for the cores made again.
    """
    for row in rows:
        machine = machine_of(row)
        options = {"dtype": "mixed_bfloat16", "vocabulary_multiple": 64}
        graph = gpt(row.layers, row.hidden, row.sequence, DEVICES, **options)
        inside = block_interiors(graph)
        values = [op.name for op in graph.operators if not op.is_backward]
        away = tuple(n for n in values if n.endswith((".scores", ".add1", ".add2")))
        again = tuple(name for name in inside if name not in away)
        also = tuple(name for name in inside if not name.endswith(".scores"))
        wide = taskflow.grid(graph, machine, sharded="parameters", recomputed=again)
        narrow = {"tensor": DEVICES, "parts": 4, "rest": "sequence", "sharded": "parameters"}
        plans = {
            "with": replace(wide, offloaded=away, schedule="forward_first"),
            "without": taskflow.grid(graph, machine, recomputed=also, **narrow),
        }
        print(f"{row.name}, {row.sequence} tokens a sequence, by hand")
        costs = taskflow.CostModel.analytic(machine)
        for label, plan in plans.items():
            show(label, plan.predict(graph, machine, costs))


def show(label: str, timeline: taskflow.Timeline) -> None:
    """What a plan takes."""
    kept = 0 if timeline.host_bytes is None else timeline.host_bytes.sum() / GIB
    most = timeline.peak_bytes.max() / GIB
    memory = f"{most:.2f} GiB of a device, {kept:.1f} GiB of the host"
    print(f"  {label:8s} {timeline.seconds:.3f} s, {memory} {timeline.shortage}", flush=True)


def full_size(rows: Sequence[Row], proposals: int) -> None:
    """Search every row with the move and without it."""
    for row in rows:
        machine = machine_of(row)
        options = {"dtype": "mixed_bfloat16", "vocabulary_multiple": 64}
        graph = gpt(row.layers, row.hidden, row.sequence, DEVICES, **options)
        print(f"{row.name}, {row.sequence} tokens a sequence, {proposals} proposals", flush=True)
        seconds = []
        for label, offloads in (("with", True), ("without", False)):
            begin = time.process_time()
            found = searched(graph, machine, proposals, offloads)
            describe(label, found, begin)
            if isinstance(found, str):
                continue
            seconds.append(found.seconds)
            costs = taskflow.CostModel.analytic(machine)
            timeline = found.plan.predict(graph, machine, costs)
            show("", timeline)
        if len(seconds) == 2:
            print(f"  {seconds[1] / seconds[0]:.3f} x as fast as without", flush=True)


def check_laws(count: int) -> None:
    """Random graphs under random plans that keep something in the memory of hosts, each against one device."""
    done: list[bool] = []

    @settings(max_examples=8 * count, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        model = data.draw(graphs())
        machine, plan = data.draw(whole_plans(model.graph))
        if len(done) == count or not offloaded(plan.transform(model.graph)):
            return
        expected = laws.one_device(model, hosted(taskflow.MachineModel.uniform(1)), 2)
        with TemporaryDirectory() as folder:
            path = Path(folder, "plan.json")
            done.append(laws.any_plan_is_one_device(model, machine, plan, expected, path))

    begin = time.process_time()
    check()
    took = f"[{time.process_time() - begin:.0f} CPU s]"
    print(f"{len(done)} random plans that offload, proven and equal to one device within 1e-10")
    print(f"(of {done.count(False)} the order is refused) {took}")


def emulated(rows: Sequence[Row], rounds: int) -> None:
    """Rows at an eighth of their width, 1/64 of the parameters, with as much of each rate, run in real time."""
    size = connect().size
    for row in rows:
        hidden = row.hidden // 8
        graph = gpt(2, hidden, 64, size, vocabulary=512)
        wide = machine_of(row)
        rate = EMULATED_FLOPS / (wide.devices[0].rate("bfloat16") * row.hidden / hidden)
        there = wide.host_ways.bandwidth[0, 0] * (row.hidden / hidden) ** 2 * rate
        device = taskflow.Device(
            "emulated", 0, 8 * GIB, EMULATED_FLOPS, EMULATED_FLOPS, overhead_seconds=2e-3
        )
        machine = taskflow.MachineModel.uniform(size, device, 4 * there, 1e-3)
        machine = machine.with_host_memory(GIB, there, 1e-3)
        costs = taskflow.CostModel.analytic(machine)
        names = [op.name for op in graph.operators if not op.is_backward and not op.writes]
        states = [r.name for r in graph.regions.values() if r.role == "state" and r.shape]
        changed = taskflow.homes(graph)
        strategy = taskflow.fully_sharded(changed, machine)
        parameters = [region.name for region in graph.parameters]
        feeds = make_feeds(graph, 512)
        for label, away in (
            ("nothing", ()),
            ("activations of a layer", [n for n in names if n.startswith("layer0")]),
            ("activations", names),
            ("state", states),
            ("all", [*names, *states, *parameters]),
        ):
            plan = taskflow.Plan(strategy, homes=parameters, offloaded=tuple(away))
            run = Run(graph, plan, costs, feeds)
            for _ in range(rounds):
                run.turn()
            ratio = run.measured / run.predicted
            if not connect().rank:
                figures = f"{run.predicted:.3f} s predicted, {run.measured:.3f} s measured"
                print(f"{row.name} / 64, away: {label:24s} {figures}, {ratio:.3f}", flush=True)


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--proposals", type=int, default=2000)
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(len(ROWS))))
    parser.add_argument("--sequence", type=int)
    parser.add_argument("--laws", type=int, metavar="PLANS")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.laws:
        return check_laws(options.laws)
    rows = [ROWS[k] for k in options.rows]
    if options.sequence:
        rows = [row._replace(sequence=options.sequence) for row in rows]
    if options.by_hand:
        return by_hand(rows)
    if options.emulated:
        return emulated(rows, options.rounds)
    return full_size(rows, options.proposals)


if __name__ == "__main__":
    main()
