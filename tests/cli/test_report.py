"""`taskflow report`, and `--json` of every command: what they print and write is what the library gives."""

import json
import re

import pytest

from taskflow import (
    CostModel,
    MachineModel,
    Plan,
    Strategy,
    data_parallel,
    explain,
    lower,
    model_parallel,
    simulate,
)
from taskflow.cli import main
from taskflow.cli.model import build_model
from taskflow.report import console
from taskflow.report.page import ReportInputs, report_data
from tests import commands

MACHINE = MachineModel.uniform(2)
COSTS = CostModel.analytic(MACHINE)


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model_of_report.py"
    path.write_text(commands.MODEL)
    return path


@pytest.fixture
def model(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "LINE_SECONDS", float("inf"))
    return f"{file}:build"


def printed(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["version"] == 1
    return json.loads(out)


def test_a_report(model, capsys, tmp_path):
    Strategy(dict(model_parallel(build_model(model, []), MACHINE))).save("s.json")
    arguments = ["report", model, "--devices", "2", "--strategy", "s.json", "--out", "plan.html"]
    found = printed(capsys, *arguments)
    graph = build_model(model, [])
    plan, other = (
        Plan(model_parallel(graph, MACHINE)),
        ("data parallel", Plan(data_parallel(graph, MACHINE))),
    )
    data = report_data(ReportInputs(model, graph, MACHINE, COSTS, plan, "s", other))
    assert found == {"format": "taskflow-report", "version": 1, **json.loads(json.dumps(data))}
    text = (tmp_path / "plan.html").read_text()
    assert '"name":"s","role":"plan"' in text and '"name":"data parallel","role":"compared"' in text
    assert main([*arguments, "--title", "mine"]) == 0
    assert capsys.readouterr().out.startswith("written: plan.html (")
    assert "<title>mine</title>" in (tmp_path / "plan.html").read_text()


def test_a_report_of_a_search_and_of_a_pipeline(model, capsys):
    found = printed(
        capsys, "report", model, "--devices", "2", "--search", "10", "--against", "none"
    )
    assert found["choices"]["search"]["proposals"] > 5 and len(found["steps"]) == 1
    options = ("--parts", "2", "--schedule", "gpipe", "--no-what-if", "--no-baselines")
    found = printed(capsys, "report", model.replace(":build", ":deep"), "--devices", "2", *options)
    assert found["steps"][0]["name"] == "pipeline of 2 micro-batches" and found["what_if"] is None
    assert len(found["choices"]["plans"]) == 1 and found["diagram"]


def test_the_same_plan_is_compared_with_nothing(model, capsys):
    found = printed(capsys, "report", model, "--devices", "2", "--no-what-if", "--no-baselines")
    assert [step["name"] for step in found["steps"]] == ["data parallel"]


def test_json_of_a_check(model, capsys, monkeypatch):
    found = printed(capsys, "check", model, "--devices", "2")
    graph = build_model(model, [])
    assert found["holds"] and found["rows"] == len(
        lower(graph, data_parallel(graph, MACHINE), MACHINE)
    )

    def refuse(*_):
        raise check.PlanError("a race")

    from taskflow.cli import check

    monkeypatch.setattr(check, "check_plan", refuse)
    assert main(["check", model, "--devices", "2", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["holds"], found["refusal"]) == (False, "a race")


def test_json_of_an_explanation(model, capsys):
    found = printed(capsys, "explain", model, "--devices", "2", "--strategy", "model_parallel")
    graph = build_model(model, [])
    explained = explain(graph, model_parallel(graph, MACHINE), MACHINE, COSTS)
    assert found["step"]["seconds"] == explained.step.seconds and found["machine"] == "uniform"
    assert [op["name"] for op in found["operators"]] == [op.name for op in explained.operators]
    assert found["operators"][0]["config"] == str(explained.operators[0].config)


def test_json_of_a_trace_a_simulation_and_a_search(model, capsys, tmp_path):
    graph = build_model(model, [])
    seconds = simulate(lower(graph, data_parallel(graph, MACHINE), MACHINE), COSTS).seconds
    found = printed(capsys, "trace", model, "--devices", "2", "--out", "t.json")
    assert found["seconds"] == seconds and found["written"] == "t.json"
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert printed(capsys, "simulate", model, "--devices", "2")["cases"][0]["seconds"] == seconds
    (case,) = printed(
        capsys, "search", model, "--devices", "2", "--proposals", "10", "--out", "p.json"
    )["cases"]
    found = Plan.load("p.json").apply(graph, MACHINE, COSTS)[1]
    assert simulate(found, COSTS).seconds == case["seconds"]


def test_json_of_a_machine(capsys, tmp_path):
    found = printed(capsys, "machine", "h100", "--nodes", "2", "--out", str(tmp_path / "m.toml"))
    machine = MachineModel.preset("h100", 2)
    assert (found["hosts"], len(found["devices"]), len(found["links"])) == (
        2,
        16,
        len(machine.links),
    )
    assert found["devices"][0]["memory_bytes"] == machine.devices[0].memory_bytes
    assert MachineModel.load(tmp_path / "m.toml").links == machine.links


def test_every_command_but_run_prints_json(capsys):
    from taskflow.cli import SUBCOMMANDS

    with pytest.raises(SystemExit):
        main(["--help"])
    names = re.findall(r"^    (\w+)", capsys.readouterr().out, re.MULTILINE)
    assert len(names) >= len(SUBCOMMANDS)
    for name in {*names} - {"run", "completion"}:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert "--json" in capsys.readouterr().out, name
