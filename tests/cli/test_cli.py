"""The subcommands search, simulate, check, explain and trace: what they print and write is what the library gives."""

import json
import re
import sys
from dataclasses import replace

import pytest

from taskflow import (
    CostModel,
    Graph,
    MachineModel,
    ParallelConfig,
    Plan,
    Strategy,
    data_parallel,
    explain,
    fully_sharded,
    homes,
    lower,
    model_parallel,
    recompute,
    reorder,
    search,
    simulate,
    stages,
)
from taskflow.cli import main, make_parser
from taskflow.cli.machine import find_machine
from taskflow.cli.model import build_model
from taskflow.core.text import describe_memory
from taskflow.report import console
from taskflow.report.describe import describe_bytes, describe_seconds
from taskflow.report.dot import strategy_dot, task_graph_dot
from taskflow.schedule import chimera, interleaved, zb_h1, zb_v
from taskflow.schedule.orders import NAMED
from taskflow.schedule.pipeline import pipeline_of
from tests import commands

MACHINE = MachineModel.uniform(2)
COSTS = CostModel.analytic(MACHINE)


@pytest.fixture(scope="session")  # once in a process: a module of this name is one file
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model_of_test_cli.py"
    path.write_text(commands.MODEL)
    return path


@pytest.fixture
def model(file, tmp_path, monkeypatch):
    """`MODULE:FUNCTION`; the current folder is an empty one, and nothing takes so long that progress is shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "LINE_SECONDS", float("inf"))
    return f"{file}:build"


@pytest.fixture
def graph(model):
    return build_model(model, [])


def run(capsys, *arguments):
    assert main([*map(str, arguments), "--devices", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_search(model, graph, capsys, tmp_path):
    files = ["--out", "s.json", "--dot", "s.dot", "--task-dot", "t.dot"]
    out = run(capsys, "search", model, "--proposals", 60, "--seed", 3, *files)
    found = search(graph, MACHINE, COSTS, proposals=60, seed=3)
    starts = [line.split("  ")[0] for line in out.splitlines() if "µs" in line or "ms" in line]
    assert "data parallel" in starts and set(found.baseline_seconds) <= {*starts}
    assert out.endswith(f"{found}\nwritten: s.json\nwritten: s.dot\nwritten: t.dot\n")
    assert Plan.load("s.json") == found.plan == Plan(found.strategy, schedule=found.plan.schedule)
    assert (tmp_path / "s.dot").read_text() == strategy_dot(graph, found.strategy, 2)
    assert (tmp_path / "t.dot").read_text() == task_graph_dot(
        found.plan.apply(graph, MACHINE, COSTS)[1]
    )


def test_search_by_the_default_budget(model, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "taskflow.cli.search.search", lambda *a, **k: seen.append(k) or search(*a, proposals=1)
    )
    run(capsys, "search", model)
    run(capsys, "search", model, "--seconds", "0.5")
    assert seen[0]["proposals"] is seen[0]["seconds"] is None
    assert seen[1]["seconds"] == 0.5


def test_search_from_a_strategy_of_the_user(model, graph, capsys):
    mine = data_parallel(graph, MACHINE)
    mine["fc"] = ParallelConfig({"i": 2}, (1, 0))
    mine.save("mine.json")
    out = run(
        capsys,
        "search",
        model,
        "--start",
        "mine.json",
        "--proposals",
        3,
        "--until-local",
    )
    lines = {line.split("  ")[0].strip(): line for line in out.splitlines()}
    assert lines["mine.json"].endswith(
        describe_seconds(simulate(lower(graph, mine, MACHINE), COSTS).seconds)
    )
    assert "no change of one operator is faster" in out


def test_a_search_may_be_stopped(model, capsys, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("taskflow.cli.search.search", interrupted)
    assert main(["search", model, "--devices", "2"]) == 130
    assert capsys.readouterr() == ("", "")


def test_check(model, graph, capsys, monkeypatch):
    Strategy(dict(model_parallel(graph, MACHINE))).save("s.json")
    task_graph = lower(graph, Strategy.load("s.json"), MACHINE)
    line = run(capsys, "check", model, "--strategy", "s.json")
    assert re.fullmatch(rf"proven in \d+\.\d\d s: {len(task_graph)} rows, .* and no race\n", line)
    wrong = lambda *given, **options: replace(lower(*given, **options), uses_tf32=True)
    monkeypatch.setattr("taskflow.schedule.plan.lower", wrong)
    assert main(["check", model, "--devices", "2"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "taskflow: plan, rule operator: uses_tf32 is True, the graph's precision differs\n",
    )


def test_pipelines(model, graph, capsys, tmp_path):
    """A pipeline by its micro-batches, in the order of a policy, of a file, and of a search; with its diagram."""
    options = ("simulate", model, "--parts", "2", "--schedule")
    rows = lower(graph, stages(graph, MACHINE, parts=2), MACHINE)
    found = zb_h1.schedule(pipeline_of(rows))
    found.save(tmp_path / "zb.json")
    by_name, by_file = (
        run(capsys, *options, name).splitlines() for name in ("zb_h1", str(tmp_path / "zb.json"))
    )
    assert by_name == by_file
    assert re.fullmatch(r"0 [-.01abAB]{100}", by_name[-3]) and re.fullmatch(
        r"1 [-.01abAB]{100}", by_name[-2]
    )
    seconds = simulate(reorder(rows, COSTS, zb_h1), COSTS).seconds
    assert by_name[-1].startswith(f"  {describe_seconds(seconds)}; digits: forward")
    assert run(capsys, *options, "searched").splitlines()[-1].endswith("by micro-batch")
    assert run(capsys, "check", *options[1:], "gpipe").startswith("proven in")
    known = f"{', '.join(NAMED)}, searched"
    for given, message in {
        ("--stages", "2"): "--stages 2: give the micro-batches of the pipeline, too (--parts)",
        ("--parts", "2", "--strategy", "model_parallel"): (
            "--parts 2 makes a strategy of its own: leave out --strategy model_parallel"
        ),
        (
            "--parts",
            "2",
            "--schedule",
            "zb_v",
            "--stages",
            "2",
        ): "stages: 2 stages on 4 groups of devices",
        (
            "--parts",
            "2",
            "--schedule",
            "no",
        ): f"schedule 'no': is neither a file nor one of {known}",
    }.items():
        assert main(["simulate", model, "--devices", "2", *given]) == 2
        assert capsys.readouterr().err == f"taskflow: {message}\n"


def test_a_plan_file(model, graph, capsys, tmp_path):
    """Wherever a strategy file is taken, and with what it does not set beside it."""
    fields = {"recomputed": ["tanh"], "homes": ["fc.weight"]}
    changed = Plan(Strategy(), **fields).transform(graph)
    pipeline = stages(changed, MACHINE, 2)
    plan = Plan(
        fully_sharded(changed, MACHINE, pipeline),
        2,
        "gpipe",
        **fields,
        collectives={"all-reduce": "ring"},
    )
    plan.save("p.json")
    again, rows = plan.apply(graph, MACHINE, COSTS)
    step, command = simulate(rows, COSTS), (model, "--strategy", "p.json")
    out = run(capsys, "simulate", *command, "--dot", "s.dot", "--task-dot", "t.dot").splitlines()
    assert out[1].endswith(describe_seconds(step.seconds)) and out[-3].startswith(
        f"  {describe_seconds(step.seconds)}"
    )
    assert out[6].endswith(describe_memory(max(step.peak_bytes)))
    assert (tmp_path / "s.dot").read_text() == strategy_dot(again, plan.strategy, 2)
    assert (tmp_path / "t.dot").read_text() == task_graph_dot(plan.apply(graph, MACHINE, COSTS)[1])
    assert run(capsys, "check", *command).startswith("proven in ")
    assert (
        run(capsys, "trace", *command, "--out", "v.json")
        == f"written: v.json ({len(rows)} tasks)\n"
    )
    out = run(capsys, "explain", *command)
    assert out == f"{explain(graph, plan, MACHINE, COSTS)}\n"
    assert "schedule gpipe: 2 micro-batches, 2 stages; computed again: tanh" in out
    Plan(plan.strategy, homes=plan.homes).save("p.json")
    beside = run(capsys, "simulate", *command, "--recompute", "tanh", "--schedule", "critical_path")
    rows = replace_plan(plan).apply(graph, MACHINE, COSTS)[1]
    assert f"\n  {describe_seconds(simulate(rows, COSTS).seconds)}; " in beside


def replace_plan(plan):
    """In another order, without micro-batches."""
    return replace(plan, parts=1, schedule="critical_path", collectives={})


PLACED = {
    (zb_v,): [(0,), (1,), (1,), (0,)],
    (zb_v, "--stages", "4"): [(0,), (1,), (1,), (0,)],
    (interleaved, "--stages", "4"): [(0,), (1,), (0,), (1,)],
    (chimera,): [(0, 1), (1, 0)],
}


@pytest.mark.parametrize(
    "given", PLACED, ids=lambda given: "".join(getattr(each, "name", each) for each in given)
)
def test_stages_where_a_policy_wants_them(model, capsys, given):
    """And a trace of the same rows; a V has two stages a device."""
    model, (policy, *options) = model.replace(":build", ":deep"), given
    graph = build_model(model, [])
    plan = stages(graph, MACHINE, len(PLACED[given]), 2, devices=PLACED[given])
    rows = reorder(lower(graph, plan, MACHINE), COSTS, policy)
    command = (model, "--parts", "2", "--schedule", policy.name, *options)
    seconds = describe_seconds(simulate(rows, COSTS).seconds)
    assert (
        run(capsys, "simulate", *command)
        .splitlines()[-1]
        .startswith(f"  {seconds}; digits: forward")
    )
    assert (
        run(capsys, "trace", *command, "--out", "v.json")
        == f"written: v.json ({len(rows)} tasks)\n"
    )


def test_recomputation(model, graph, capsys):
    rows = (
        lower(each, data_parallel(each, MACHINE), MACHINE) for each in (graph, recompute(graph))
    )
    peak, again = (simulate(each, COSTS).peak_bytes.max() for each in rows)
    for options, size in (((), peak), (("--recompute", "auto"), again)):
        assert f"memory, fullest device         {describe_memory(size)}" in run(
            capsys, "simulate", model, *options
        )
    assert main(["simulate", model, "--devices", "2", "--recompute", "no,such"]) == 2
    assert (
        capsys.readouterr().err
        == "taskflow: operator 'no': the graph has no operator of this name\n"
    )


def test_fully_sharded(model, graph, capsys):
    sharded = homes(graph)
    strategies = data_parallel(graph, MACHINE), fully_sharded(sharded, MACHINE)
    rows = (lower(*each, MACHINE) for each in zip((graph, sharded), strategies, strict=True))
    plain, less = (simulate(each, COSTS).peak_bytes.max() for each in rows)
    assert less < plain
    for options, size in (((), plain), (("--homes",), less)):
        found = run(capsys, "simulate", model, "--strategy", "fully_sharded", *options)
        assert f"memory, fullest device         {describe_memory(size)}" in found


def test_simulate(model, graph, capsys):
    Strategy(dict(model_parallel(graph, MACHINE))).save("s.json")
    for name, strategy in (
        ("data_parallel", data_parallel(graph, MACHINE)),
        ("s.json", Strategy.load("s.json")),
    ):
        step = simulate(lower(graph, strategy, MACHINE), COSTS)
        lines = run(capsys, "simulate", model, "--strategy", name).splitlines()
        assert [line[:31].rstrip() for line in lines] == [
            "a step",
            "time",
            "compute, busiest device",
            "communication, busiest device",
            "exposed communication",
            "bytes moved",
            "memory, fullest device",
        ]
        values = [line[31:] for line in lines]
        assert (values[1], values[5], values[6]) == (
            describe_seconds(step.seconds),
            describe_bytes(step.bytes_moved),
            describe_memory(max(step.peak_bytes)),
        )


def test_explain(model, graph, capsys, tmp_path):
    out = run(capsys, "explain", model, "--strategy", "model_parallel", "--dot", "s.dot")
    strategy = model_parallel(graph, MACHINE)
    assert out == f"{explain(graph, strategy, MACHINE, COSTS)}\nwritten: s.dot\n"
    assert (tmp_path / "s.dot").read_text() == strategy_dot(graph, strategy, 2)
    assert "alternative" not in run(capsys, "explain", model, "--alternatives", "0")


def without_advice(text):
    return [part for part in text.split("\n\n") if not part.startswith("Next: ")]


def test_explain_a_plan(model, graph, capsys):
    again = recompute(graph)
    plan = stages(again, MACHINE, parts=2)
    for options, order in ((("--schedule", "zb_h1"), zb_h1), ((), "program")):
        out = run(capsys, "explain", model, "--parts", "2", "--recompute", "auto", *options)
        found = f"{explain(again, plan, MACHINE, COSTS, order=order)}\n"
        assert without_advice(out) == without_advice(found)  # of a plan that computes nothing again
        assert (
            f"schedule {'zb_h1' if options else 'program'}: 2 micro-batches, 2 stages; computed again: "
            in out
        )
    assert main(["explain", model, "--stages", "2"]) == 2
    assert (
        capsys.readouterr().err
        == "taskflow: --stages 2: give the micro-batches of the pipeline, too (--parts)\n"
    )


def test_trace(model, graph, capsys, tmp_path):
    out = run(capsys, "trace", model, "--out", "trace.json")
    task_graph = lower(graph, data_parallel(graph, MACHINE), MACHINE)
    assert out == f"written: trace.json ({len(task_graph)} tasks)\n"
    simulate(task_graph, COSTS).save_trace("expected.json")
    assert json.loads((tmp_path / "trace.json").read_text()) == json.loads(
        (tmp_path / "expected.json").read_text()
    )


def test_a_terminal_gets_a_bar_and_drawn_tables(model, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["search", model, "--devices", "2", "--proposals", "20"]) == 0
    out, err = capsys.readouterr()
    assert " proposals" in err and "│" in out


def test_measured_costs_are_kept_in_a_file(model, capsys, tmp_path):
    run(capsys, "simulate", model, "--costs", "costs.json")
    kept = (tmp_path / "costs.json").read_text()
    assert len(json.loads(kept)["kernels"]) > 3
    run(capsys, "simulate", model, "--costs", "costs.json")
    assert (tmp_path / "costs.json").read_text() == kept


def test_arguments_of_the_model(model):
    graph = build_model(model, ["batch=16", "name=dense"])
    assert graph.inputs[0].shape == (16, 6) and graph.operators[0].name == "dense"


def test_a_model_in_a_package_may_import_relatives(tmp_path):
    package = tmp_path / "package_of_test_cli"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sizes.py").write_text("BATCH = 12\n")
    (package / "net.py").write_text(
        "from taskflow import Graph\nfrom .sizes import BATCH\n\n"
        "def build():\n    graph = Graph()\n    graph.input('x', (BATCH, 2))\n    return graph\n"
    )
    for name in (f"{package}/net.py:build", "package_of_test_cli.net:build"):
        assert build_model(name, []).inputs[0].shape == (12, 2)


def test_the_current_folder_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here_of_test_cli.py").write_text(
        "from taskflow import Graph\n\ndef build():\n    return Graph()\n"
    )
    assert isinstance(build_model("here_of_test_cli:build", []), Graph)


MACHINE_FILE = """
name = "pair"
[[device]]
kind = "emulated"
count = 3
[[link]]
ends = [0, "switch"]
bandwidth = 1e9
[[link]]
ends = [1, "switch"]
bandwidth = 1e9
[[link]]
ends = [2, "switch"]
bandwidth = 1e9
"""


def test_machines(tmp_path):
    (tmp_path / "m.toml").write_text(MACHINE_FILE)
    assert len(find_machine("uniform", None, None).devices) == 4
    assert [find_machine(name, None, 3).name for name in ("uniform", "local")] == [
        "uniform",
        "local",
    ]
    three, two = (find_machine(str(tmp_path / "m.toml"), None, count) for count in (None, 2))
    assert [len(m.devices) for m in (three, two)] == [3, 2]
    assert [link.ends for link in two.links] == [
        (0, "switch"),
        ("switch", 0),
        (1, "switch"),
        ("switch", 1),
    ]
    assert (
        two.bandwidth[0, 1] == three.bandwidth[0, 1]
        and two.latency_seconds[0, 1] == three.latency_seconds[0, 1]
    )


def test_a_model_of_the_examples(capsys):
    out = run(
        capsys, "simulate", "ops.models.mlp:build", "--arg", "hidden=(16, 8)", "--arg", "inputs=4"
    )
    assert out.startswith("a step")


def test_without_arguments_it_shows_what_one_needs_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Five commands that are right, of different subcommands."""
    assert main([]) == 0
    printed = capsys.readouterr().out
    shown = [line.split() for line in printed.splitlines() if line.startswith("taskflow ")][:-1]
    options = [make_parser().parse_args(words[1:]) for words in shown]
    assert len({each.act for each in options}) == len(shown) == 5
