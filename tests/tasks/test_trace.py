"""Traces: the rules of the Trace Event Format, and Perfetto's own trace processor where its binary is at hand.

The rules are those of "Trace Event Format" (Google, 2016) and of Perfetto's importer: complete events of one thread
nest, a flow begins and ends within events, a counter has numbers.
"""

import json
import shutil
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from taskflow import (
    CostModel,
    Device,
    Executor,
    Graph,
    MachineModel,
    ParallelConfig,
    Strategy,
    data_parallel,
    lower,
    simulate,
    stages,
)
from taskflow.tasks.memory import reserved_bytes
from tests.lowered import network
from tests.lowering.test_collective import gathered

SLACK = 1e-3  # microseconds: the times of a trace are rounded to doubles


def copy(ctx, x, y):
    y[...] = x


def chain():
    """a on device 0, then b on device 1: feed, a, copy, b, and the output's copy back."""
    graph = Graph()
    a = graph.launch("a", "b -> b", [graph.input("x", (1000,), "float64")], kernel=copy)
    graph.output("y", graph.launch("b", "b -> b", [a], kernel=copy))
    strategy = Strategy({"a": ParallelConfig({}, (0,)), "b": ParallelConfig({}, (1,))})
    device = Device("emulated", memory_bandwidth=1e9, overhead_seconds=0.0)
    machine = MachineModel.uniform(2, device, bandwidth=1e6, latency_seconds=1e-3)
    return simulate(lower(graph, strategy, machine), CostModel.analytic(machine))


def on_cluster(plan, nodes=2, name="p100"):
    graph, machine = network(batch=32), MachineModel.preset(name, nodes)
    return simulate(lower(graph, plan(graph, machine), machine), CostModel.analytic(machine))


def measured():
    graph, machine = network(batch=32), MachineModel.local(devices=2, kind="cpu")
    with Executor(lower(graph, data_parallel(graph, machine), machine), record=True) as step:
        step({r.name: np.zeros(r.shape, r.dtype) for r in graph.inputs})
        return step.timeline


TIMELINES = {
    "chain": chain,
    "two hosts": lambda: on_cluster(data_parallel),
    "pipeline": lambda: on_cluster(lambda graph, machine: stages(graph, machine, 2, 4)),
    "links alone": lambda: on_cluster(data_parallel, 1, "h100"),
    "measured": measured,
}


@pytest.fixture(params=TIMELINES)
def timeline(request):
    return TIMELINES[request.param]()


def events_of(timeline, path):
    timeline.save_trace(path)
    return json.loads(path.read_text())["traceEvents"]


def test_events_have_what_the_format_asks_for(timeline, tmp_path):
    events = events_of(timeline, tmp_path / "t.json")
    assert {event["ph"] for event in events} <= set("MXCsf")
    for event in events:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert (
                event["dur"] >= 0
                and event["cat"]
                and {"row", "device", "bytes"} <= event["args"].keys()
            )
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xsf"} <= threads
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert (
        len(processes) == len(timeline.task_graph.machine.devices) + 1
        and processes[0] == "device 0"
    )


def test_events_of_a_thread_nest(timeline, tmp_path):
    by_thread = defaultdict(list)
    for event in events_of(timeline, tmp_path / "t.json"):
        if event["ph"] == "X":
            by_thread[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_thread.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - SLACK


def test_every_row_and_its_flow_are_there(timeline, tmp_path):
    events = events_of(timeline, tmp_path / "t.json")
    spans = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[event["args"]["row"]].append(event)
    known = np.flatnonzero(~np.isnan(timeline.start)).tolist()
    assert sorted(spans) == known
    begins, ends = ({e["id"]: e for e in events if e["ph"] == ph} for ph in "sf")
    assert begins.keys() == ends.keys()
    awaited = timeline.awaited()
    for row, begin in begins.items():
        assert begin["cat"] == ends[row]["cat"] == "flow" and ends[row]["bp"] == "e"
        for flow, within in ((begin, int(awaited[row])), (ends[row], row)):
            (event,) = (
                e for e in spans[within] if (e["pid"], e["tid"]) == (flow["pid"], flow["tid"])
            )
            assert event["ts"] - SLACK <= flow["ts"] <= event["ts"] + event["dur"] + SLACK
    if len(timeline.task_graph.devices_used) > 1:
        assert begins


def test_counters_are_the_bytes_in_use(timeline, tmp_path):
    counted = [e for e in events_of(timeline, tmp_path / "t.json") if e["ph"] == "C"]
    most = defaultdict(int)
    for event in counted:
        assert event["name"] == "bytes in use" and isinstance(event["args"]["bytes"], int)
        most[event["pid"]] = max(most[event["pid"]], event["args"]["bytes"])
    in_instances = timeline.peak_bytes - reserved_bytes(timeline.task_graph)
    for device, peak in enumerate(in_instances.tolist()):
        assert most[device] <= peak
        assert not peak or most[device] >= 0.3 * peak


def test_categories_are_phases_and_moves(tmp_path):
    events = events_of(on_cluster(data_parallel), tmp_path / "t.json")
    assert {e["cat"] for e in events if e["ph"] == "X"} >= {
        "forward",
        "backward",
        "weight",
        "update",
        "feed",
    }
    (first, *_) = (e for e in events if e["ph"] == "X" and e["cat"] == "forward")
    assert first["args"]["flops"] > 0 and first["name"].startswith("point ")


def test_a_trace_names_its_streams(tmp_path):
    events = events_of(chain(), tmp_path / "trace.json")
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    assert names[0, 0] == "compute" and names[2, 12] == "link 0->1"
    assert sum(e["dur"] for e in spans if e["tid"] == 12) == pytest.approx(9e3)


def test_a_collective_is_on_every_stream_of_its_ring(tmp_path):
    task_graph = gathered(6, 6)
    events = events_of(
        simulate(task_graph, CostModel.analytic(task_graph.machine)), tmp_path / "trace.json"
    )
    assert sum("all-gather" in e["name"] for e in events) == 12


def test_transfers_that_share_a_link_are_on_threads_of_their_own(tmp_path):
    """In a pipeline over two hosts several transfers cross a link at once: see `test_events_of_a_thread_nest`."""
    events = events_of(TIMELINES["pipeline"](), tmp_path / "t.json")
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert len(names) > len(
        {name.removesuffix(" (2)") for name in names if not name.endswith("(3)")}
    )
    places = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"]
    assert len(places) == len(set(places)) == len({thread for _, thread in places})


def test_perfetto_reads_it(tmp_path):
    api = pytest.importorskip(
        "perfetto.trace_processor", reason="perfetto is not installed: make browser"
    )
    shell = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if shell is None:
        pytest.skip(
            "perfetto's binary, trace_processor_shell, is not at hand: its package fetches it from the network"
        )
    timeline = on_cluster(data_parallel)
    timeline.save_trace(path := tmp_path / "t.json")
    with api.TraceProcessor(
        trace=str(path), config=api.TraceProcessorConfig(bin_path=shell)
    ) as processor:
        (row,) = processor.query("select count(*) as n from slice")
        assert row.n == sum(
            len(timeline.task_graph.streams_of(k)) for k in range(len(timeline.task_graph))
        )
        (row,) = processor.query("select count(*) as n from flow")
        assert row.n > 0
        (row,) = processor.query("select count(*) as n from counter")
        assert row.n > 0
        (row,) = processor.query(
            "select coalesce(sum(value), 0) as n from stats where severity = 'error'"
        )
        assert row.n == 0
