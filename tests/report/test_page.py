"""The data of a report: its figures are those of the timeline, the breakdown and the searches that they come from."""

import json
import re

import numpy as np
import pytest

from ops.models import gpt
from taskflow import (
    CostModel,
    Graph,
    MachineModel,
    Plan,
    data_parallel,
    lower,
    model_parallel,
    scale_machine,
    search,
    simulate,
    stages,
)
from taskflow.report.page import ReportInputs, report_data, save_page
from taskflow.report.page.choices import NETWORK, what_if_columns
from taskflow.report.page.html import SCRIPTS, page_text
from taskflow.report.page.links import link_columns
from taskflow.report.page.memory import memory_columns
from taskflow.report.page.model import _layers, _ordered, entry_labels
from taskflow.report.page.shown import LANES, choose_tasks, lanes_of
from taskflow.report.page.steps import SORTS, TICKS, differences
from taskflow.report.page.usage import _mean_count, _union, usage_columns
from taskflow.tasks.streams import STREAM_NAMES
from tests import tiny
from tests.lowered import network
from tests.tasks.test_trace import chain, on_cluster

MACHINE = MachineModel.preset("p100", nodes=2)
COSTS = CostModel.analytic(MACHINE)
ALONE = {"with_baselines": False, "with_what_if": False}


@pytest.fixture(scope="module")
def graph():
    return gpt.build(batch=8, sequence=32, layers=2, hidden=64, heads=2, vocabulary=100)


@pytest.fixture(scope="module")
def data(graph):
    plan, other = Plan(model_parallel(graph, MACHINE)), Plan(data_parallel(graph, MACHINE))
    return report_data(ReportInputs("t", graph, MACHINE, COSTS, plan, "mine", ("other", other)))


def timeline_of(graph, rule):
    return simulate(lower(graph, rule(graph, MACHINE), MACHINE), COSTS)


def unpack(differences):
    return np.cumsum(differences)


def test_a_step_has_the_rows_of_its_timeline(graph, data):
    step, timeline = data["steps"][0], timeline_of(graph, model_parallel)
    assert step["seconds"] == timeline.seconds and step["rows"] == len(timeline.task_graph)
    assert (
        step["bytes_moved"] == timeline.bytes_moved
        and step["peak_bytes"] == timeline.peak_bytes.tolist()
    )
    tasks, order = step["tasks"], np.lexsort((np.arange(len(timeline.start)), timeline.start))
    tick = timeline.seconds / TICKS
    np.testing.assert_allclose(unpack(tasks["start"]) * tick, timeline.start[order], atol=tick)
    np.testing.assert_allclose(
        np.array(tasks["length"]) * tick, (timeline.end - timeline.start)[order], atol=tick
    )
    names = [step["names"]["text"][k].split()[-1] for k in tasks["name"]]
    assert names == [timeline.task_graph.name(row) for row in order.tolist()]
    assert [order[k] for k in step["path"]] == timeline.critical_path()
    awaited = timeline.awaited()
    for place, back in enumerate(tasks["after"]):
        before = awaited[order[place]]
        assert (order[place - back] == before) if back else (before < 0 or order[place] == before)


def test_lanes_hold_every_task_once(data):
    for step in data["steps"]:
        lanes = step["lanes"]
        found = [unpack(each) for each in lanes["tasks"]]
        assert set(np.concatenate(found).tolist()) == set(range(len(step["tasks"]["start"])))
        assert len({*zip(lanes["device"], lanes["stream"], strict=True)}) == len(found)
        assert all(np.all(np.diff(each) > 0) for each in found)
        points = {
            k for k, name in enumerate(step["tasks"]["name"]) if step["names"]["sort"][name] < 4
        }
        for device, stream, each in zip(lanes["device"], lanes["stream"], found, strict=True):
            if stream == "compute":
                assert points.issuperset(each.tolist())
                assert {step["tasks"]["device"][k] for k in each.tolist()} == {device}


def test_few_tasks_are_those_of_telling_devices():
    timeline = on_cluster(data_parallel)
    whole, some = choose_tasks(timeline, 10**6), choose_tasks(timeline, 60)
    assert len(whole.rows) == len(timeline.task_graph) and whole.devices.tolist() == list(range(8))
    assert 0 < len(some.devices) < 8 and len(some.lane_task) <= 60
    path = timeline.critical_path()
    assert timeline.task_graph.device[path[len(path) // 2]] in some.devices
    assert set((some.lanes // LANES).tolist()) == set(some.devices.tolist())
    fewest = choose_tasks(timeline, 5)
    assert len(fewest.devices) == 1 and len(fewest.lane_task) == 5
    longest = np.sort((timeline.end - timeline.start)[fewest.rows])
    row, lane = lanes_of(timeline.task_graph)
    own = row[lane // LANES == fewest.devices[0]]
    assert longest[0] >= np.sort((timeline.end - timeline.start)[own])[-5] - 1e-15


def test_links_are_lanes_of_devices_that_send_by_them():
    timeline = on_cluster(data_parallel, 1, "h100")
    _, lane = lanes_of(timeline.task_graph)
    assert {STREAM_NAMES[k] for k in (lane % LANES).tolist()} >= {"compute", "sending", "receiving"}


def test_memory_is_that_in_use(data, graph):
    step, timeline = data["steps"][0], timeline_of(graph, model_parallel)
    found = memory_columns(timeline)
    assert step["memory"] == found
    for device, peak in enumerate(timeline.peak_bytes.tolist()):
        assert found["peak_in_use_bytes"][device] <= peak
        assert max(found["in_use_kib"][device]) == found["peak_in_use_bytes"][device] >> 10
        alive = found["alive"][device]
        assert sum(alive["bytes"]) + alive["others_bytes"] == found["peak_in_use_bytes"][device]
        assert sum(alive["by_class"].values()) == found["peak_in_use_bytes"][device]
        assert alive["bytes"] == sorted(alive["bytes"], reverse=True)
    classes = found["alive"][0]["by_class"]
    parameters = sum(r.size_bytes for r in graph.parameters)
    assert 0 < classes["parameter"] <= parameters and classes["activation"] > 0
    assert classes["state"] >= classes["parameter"]  # Adam keeps two


def test_memory_of_many_devices_is_that_of_the_fullest(monkeypatch):
    timeline = on_cluster(lambda graph, machine: stages(graph, machine, 2, 2))
    whole = memory_columns(timeline)
    monkeypatch.setattr("taskflow.report.page.memory.MOST_DEVICES", 3)
    some = memory_columns(timeline)
    assert len(some["devices"]) == 3 and some["devices"] == sorted(some["devices"])
    assert some["peak_in_use_bytes"] == [
        whole["peak_in_use_bytes"][device] for device in some["devices"]
    ]
    assert max(whole["peak_in_use_bytes"]) in some["peak_in_use_bytes"]


def test_usage_adds_up(data, graph):
    step, timeline = data["steps"][0], timeline_of(graph, model_parallel)
    usage, busy = step["usage"], timeline.busy_seconds()
    assert usage["compute_seconds"] == pytest.approx([busy[device] for device in range(8)])
    width = timeline.seconds / len(usage["computing"])
    assert sum(usage["computing"]) * width == pytest.approx(sum(usage["compute_seconds"]), rel=1e-2)
    for compute, moving in zip(
        usage["compute_seconds"], usage["communication_seconds"], strict=True
    ):
        assert moving >= 0 and compute + moving <= timeline.seconds * (1 + 1e-9)


def test_an_idle_device_computes_nothing():
    usage = usage_columns(chain())
    assert usage["compute_seconds"][0] == pytest.approx(16e-6)
    assert usage["communication_seconds"][0] == pytest.approx(8e-6 + 18e-3, rel=1e-3)


def test_unions_and_counts_by_hand():
    starts, ends = np.array([0.0, 1.0, 5.0, 5.5]), np.array([2.0, 1.5, 6.0, 7.0])
    start, end = _union(starts, ends)
    assert start.tolist() == [0.0, 5.0] and end.tolist() == [2.0, 7.0]
    assert _mean_count(starts, ends, np.array([0.0, 1.0, 2.0, 6.0, 8.0])).tolist() == [
        1.0,
        1.5,
        0.375,
        0.5,
    ]
    empty = np.zeros(0)
    assert _union(empty, empty)[0].tolist() == [] and _mean_count(
        empty, empty, np.array([0.0, 1.0])
    ).tolist() == [0.0]


def test_links_carry_what_crosses_them(data, graph):
    timeline = timeline_of(graph, model_parallel)
    found = data["steps"][0]["links"]
    assert found == link_columns(timeline)
    assert sum(found["bytes"]) == sum(timeline.link_bytes().values())
    by_name = {c["name"]: c for c in found["classes"]}
    assert (
        by_name.keys() == {"within hosts", "between hosts"}
        and by_name["between hosts"]["bytes"] > 0
    )
    for each in found["classes"]:
        assert 0 <= each["busiest_share"] <= 1 and each["bytes"] >= each["busiest_bytes"]
    assert len(data["machine"]["ends"]) == len(MACHINE.links) == len(found["bytes"])


def test_vertices_are_the_entries_and_hold_what_they_take(data, graph):
    strategy = model_parallel(graph, MACHINE)
    model, labels = data["model"], entry_labels(graph, strategy)
    assert [v["name"] for v in model["vertices"]] == list(
        dict.fromkeys(labels[n] for n in strategy)
    )
    assert sum(v["count"] for v in model["vertices"]) == len(strategy)
    assert sum(v["bytes_moved"] for v in model["vertices"]) <= data["steps"][0]["bytes_moved"]
    folded = next(v for v in model["vertices"] if v["count"] > 1)
    assert re.search(r"layer0,1", folded["name"]) and folded["soap"]
    assert {v["compared_split"] for v in model["vertices"]} != {
        v["split"] for v in model["vertices"]
    }
    assert sorted(vertex for layer in model["layers"] for vertex in layer) == list(
        range(len(model["vertices"]))
    )
    depth = {v: k for k, layer in enumerate(model["layers"]) for v in layer}
    for a, b, size in model["edges"]:
        assert size > 0 and (depth[a] < depth[b] or a > b)


def test_layers_by_hand():
    edges = [(0, 1, 8), (0, 2, 8), (1, 3, 8), (2, 3, 8), (0, 3, 8), (3, 0, 8)]
    layers = _layers(4, [(a, b) for a, b, _ in edges if a < b])
    assert layers == [[0], [1, 2], [3]] and _ordered(layers, edges) == [[0], [1, 2], [3]]
    assert _ordered([[0, 1], [2, 3]], [(1, 2, 1), (0, 3, 1)]) == [[0, 1], [3, 2]]


def test_baselines_and_what_none_beats(data, graph):
    plans = {plan["name"]: plan for plan in data["choices"]["plans"]}
    timeline = timeline_of(graph, data_parallel)
    assert plans["data parallel"]["seconds"] == timeline.seconds
    assert plans["data parallel"]["bytes_moved"] == timeline.bytes_moved
    assert plans["mine"]["seconds"] == data["steps"][0]["seconds"] and len(plans) > 8
    figures = [
        tuple(p[n] for n in ("seconds", "bytes_moved", "peak_bytes")) for p in plans.values()
    ]
    for plan, own in zip(plans.values(), figures, strict=True):
        is_beaten = any(
            all(a <= b for a, b in zip(other, own, strict=True)) and other != own
            for other in figures
        )
        assert not (plan["is_best"] and is_beaten)
    assert min(plans.values(), key=lambda p: p["seconds"])["is_best"]


def test_what_if_simulates_every_machine(data, graph):
    found = data["what_if"]
    assert found["of_network"] == "network" and found["network"] == NETWORK
    seconds = {(n, f): s for n, f, s in found["plans"][0]["points"]}
    assert seconds[1.0, 1.0] == data["steps"][0]["seconds"] and len(seconds) == 18
    machine = scale_machine(MACHINE, {"network": 4.0, "flops": 2.0})
    costs = COSTS.on(machine)
    rows = lower(graph, model_parallel(graph, MACHINE), machine)
    assert seconds[4.0, 2.0] == simulate(rows, costs).seconds < seconds[1.0, 1.0]
    assert [name["name"] for name in found["plans"]] == ["mine", "other"] and len(
        found["plans"][1]["points"]
    ) == 6
    assert found["sensitivities"]["network"] < 0


def test_measured_costs_and_one_device_have_less_to_ask(graph):
    machine = MachineModel.uniform(1)
    costs, plan = CostModel.analytic(machine), Plan(data_parallel(graph, machine))
    found = what_if_columns(graph, machine, costs, {"plan": plan}, lambda *_: None)
    assert found["of_network"] == "" and [p[:2] for p in found["plans"][0]["points"]] == [
        [1, 1],
        [1, 0.5],
        [1, 2],
    ]
    local = MachineModel.local(devices=1, kind="cpu")
    assert (
        what_if_columns(graph, local, CostModel.measured(local), {"plan": plan}, lambda *_: None)
        is None
    )


def test_a_search_is_shown(graph):
    found = search(graph, MACHINE, COSTS, proposals=20, seed=0)
    data = report_data(
        ReportInputs(
            "t", graph, MACHINE, COSTS, found.plan, "found", found=found, with_what_if=False
        )
    )
    course = data["choices"]["search"]
    assert course["proposals"] == found.proposals and course["text"] == str(found)
    assert course["history"] == [[k, s] for k, s in found.history]
    plans = {plan["name"]: plan for plan in data["choices"]["plans"]}
    assert set(found.baseline_seconds) <= plans.keys() and data["what_if"] is None
    assert sum("bytes_moved" in plan for plan in plans.values()) > 3


def test_a_pipeline_has_micro_batches_and_a_diagram():
    graph = network(batch=32)
    plan = Plan(stages(graph, MACHINE, 2, 4), schedule="gpipe")
    data = report_data(ReportInputs("t", graph, MACHINE, COSTS, plan, "gpipe", **ALONE))
    assert max(data["steps"][0]["tasks"]["part"]) == 3
    assert data["diagram"].count("\n") >= 2 and data["plan"] == "schedule gpipe"


def test_a_model_without_optimizer():
    graph = Graph()
    graph.output("y", tiny.tanh(graph.input("x", (8, 4))))
    data = report_data(
        ReportInputs("t", graph, MACHINE, COSTS, Plan(data_parallel(graph, MACHINE)), "p", **ALONE)
    )
    assert [vertex["name"] for vertex in data["model"]["vertices"]] == ["tanh"]
    assert {*data["steps"][0]["memory"]["alive"][0]["by_class"]} == {"input", "activation"}


def test_columns_that_ascend_are_differences():
    assert differences(np.array([3, 5, 5, 9])) == [3, 2, 0, 4]
    assert differences(np.zeros(0, np.int64)) == []
    assert len(SORTS) == 6


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_file_holds_its_data_and_loads_nothing(data, tmp_path):
    size = save_page(path := tmp_path / "p.html", {**data, "title": "</script><b>&"})
    text = path.read_text(encoding="utf-8")
    assert size == path.stat().st_size
    (kept,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL
    )
    assert json.loads(kept) == {**json.loads(json.dumps(data)), "title": "</script><b>&"}
    assert "<title>&lt;/script&gt;&lt;b&gt;&amp;</title>" in text
    assert "default-src &#x27;none&#x27;" in text
    assert re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=.(?!data:)", text) == []
    assert text.count("<script") == 2 and "<!--" not in text.partition("</head>")[0]


def test_scripts_are_short_and_vendored_ones_are_named():
    from pathlib import Path

    import taskflow.report.page as page

    assets = Path(page.__file__).with_name("assets")
    own = [name for name in SCRIPTS if "/" not in name]
    assert {path.name for path in assets.glob("*.js")} == set(own)
    for name in own:
        text = (assets / name).read_text(encoding="utf-8")
        assert text.startswith("//") and len(text.splitlines()) <= 400, name
    assert "v1.6.32" in (assets / "vendor" / "uPlot.iife.min.js").read_text(encoding="utf-8")[:80]
    assert (
        "MIT" in (assets / "vendor" / "LICENSE.uPlot").read_text(encoding="utf-8")
        and "1.6.32" in page.__doc__
    )


def test_a_name_that_looks_like_a_mark_of_the_template_is_left_alone(data):
    text = page_text({**data, "title": "<!--SCRIPTS-->"})
    assert text.count("function renderAll") == 1
