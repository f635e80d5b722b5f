"""`taskflow search` and `simulate` with several machines: tables for people, and JSON of exactly that."""

import json

import pytest

from taskflow import (
    CostModel,
    MachineModel,
    lower,
    reorder,
    scale_machine,
    search,
    simulate,
    stages,
    what_if,
)
from taskflow.cli import main, sweep
from taskflow.cli.model import build_model
from taskflow.report import console
from taskflow.report.describe import describe_bytes, describe_seconds
from taskflow.schedule import one_f_one_b
from taskflow.searching import SearchInterrupted
from tests import commands

MACHINE = MachineModel.uniform(4)
COSTS = CostModel.analytic(MACHINE)


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model_of_test_sweep.py"
    path.write_text(commands.MODEL)
    return path


@pytest.fixture
def model(file, monkeypatch):
    """The file of a model, beside which the command runs; nothing takes so long that progress is shown."""
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(console, "LINE_SECONDS", float("inf"))
    return str(file)


def run(capsys, *arguments):
    assert main([*map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def short(graph, machine, costs):
    return search(graph, machine, costs, proposals=10)


SWEEP = "--devices", "2,4", "--scale", "flops=2,latency=0.5", "--proposals", "10"


def test_json_is_what_the_library_gives(model, capsys):
    given = json.loads(run(capsys, "search", f"{model}:build", *SWEEP, "--sensitivities", "--json"))
    graph = build_model(f"{model}:build", [])
    scales = [{"flops": 2.0, "latency": 0.5}]
    cases = list(what_if(graph, MACHINE, COSTS, short, devices=[2, 4], scales=scales))
    assert (given["format"], given["version"], len(given["cases"])) == ("taskflow-what-if", 1, 4)
    for row, case in zip(given["cases"], cases, strict=True):
        assert row["pareto"][0]["name"] == case.pareto[0].name and row.pop("pareto")
        assert row == {
            "devices": case.devices,
            "scales": case.scales,
            "best_start": case.start,
            "seconds": case.seconds,
            "bytes_moved": case.bytes_moved,
            "peak_bytes": case.peak_bytes,
            "speedup": case.speedup,
            "sensitivities": case.sensitivities,
            "refusal": None,
            "joules": None,
        }


def test_a_plain_search_in_json(model, capsys):
    (case,) = json.loads(run(capsys, "search", f"{model}:build", "--proposals", 10, "--json"))[
        "cases"
    ]
    found = short(build_model(f"{model}:build", []), MACHINE, COSTS)
    assert (case["devices"], case["scales"], case["seconds"]) == (4, {}, found.seconds)
    assert [each["seconds"] for each in case["pareto"]] == [each.seconds for each in found.pareto]


def test_what_fits_nowhere_is_null(model, capsys):
    text = run(
        capsys, "search", f"{model}:build", "--scale", "memory=1e-8", "--proposals", 2, "--json"
    )
    case = json.loads(text)["cases"][1]
    assert [
        case[name] for name in ("best_start", "seconds", "bytes_moved", "peak_bytes", "speedup")
    ] == [None] * 5
    assert case["refusal"].startswith("search: no start fits into memory")


def test_tables_for_people(model, capsys):
    out = run(capsys, "search", f"{model}:build", *SWEEP, "--sensitivities", "--pareto")
    graph = build_model(f"{model}:build", [])
    found, parts = short(graph, MACHINE, COSTS), [part.splitlines() for part in out.split("\n\n")]
    row = next(
        line.split("  ") for line in parts[0] if line.startswith("4 ") and "as it is" in line
    )
    assert {found.best_start, describe_seconds(found.seconds), "fits"} <= {
        cell.strip() for cell in row
    }
    assert parts[1][0] == "% of a step for 1 % more of" and parts[1][1].split() == [
        *("devices", "scaled", "links", "latency", "flops", "memory_bandwidth", "overhead")
    ]
    lines = [line for line in parts[2] if line.startswith("4 ") and "as it is" in line]
    assert (
        len(lines) == len(found.pareto) and describe_bytes(found.pareto[-1].peak_bytes) in lines[-1]
    )
    assert "no other plan" not in run(capsys, "search", f"{model}:build", *SWEEP)


def test_simulate_a_rule_and_a_pipeline(model, capsys):
    graph = build_model(f"{model}:deep", [])
    fast = scale_machine(MACHINE, {"overhead": 0.5})
    cases = json.loads(
        run(capsys, "simulate", f"{model}:deep", "--scale", "overhead=0.5", "--json")
    )["cases"]
    assert [case["best_start"] for case in cases] == [None, None] and cases[1]["speedup"] > 1
    options = "--parts", 2, "--schedule", "one_f_one_b", "--scale", "overhead=0.5", "--json"
    cases = json.loads(run(capsys, "simulate", f"{model}:deep", *options))["cases"]
    costs = CostModel.analytic(fast)
    rows = reorder(lower(graph, stages(graph, fast, parts=2), fast), costs, one_f_one_b)
    assert cases[1]["seconds"] == simulate(rows, costs).seconds


def test_the_best_so_far_of_an_interrupted_sweep(model, capsys, monkeypatch):
    def interrupted(graph, machine, costs, **options):
        raise SearchInterrupted(short(graph, machine, costs))

    monkeypatch.setattr("taskflow.cli.search.search", interrupted)
    assert main(["search", f"{model}:build", "--devices", "2,4", "--json"]) == 130
    assert [case["devices"] for case in json.loads(capsys.readouterr().out)["cases"]] == [2]


def test_only_one_rank_prints(model, capsys, monkeypatch):
    monkeypatch.setattr(sweep, "world_rank", lambda: 1)
    assert run(capsys, "simulate", f"{model}:build", "--json") == ""


PACKED = """
import taskflow
def build(lengths):
    graph = taskflow.Graph()
    x = graph.input("x", (sum(lengths), 8), "float64")
    end = [sum(lengths[: k + 1]) for k, n in enumerate(lengths) for _ in range(n)]
    begin = [sum(lengths[:k]) for k, n in enumerate(lengths) for _ in range(n)]
    windows = {"t": taskflow.Image("s", begin, end)}
    copy = lambda ctx, x, y: None
    graph.launch("op", "t ^d -> s ^d", [x], kernel=copy, windows=windows, flops={"t": 1e6})
    return graph
"""


def test_steps_of_batches_of_documents(tmp_path, monkeypatch, capsys):
    (tmp_path / "packed_documents.py").write_text(PACKED)
    (tmp_path / "lengths.txt").write_text("30 10, 10 10\n\n15 15 15 15\n")
    monkeypatch.chdir(tmp_path)
    model = ("packed_documents:build", "--devices", "2", "--lengths", "lengths.txt")
    rows = [line.split() for line in run(capsys, "simulate", *model).splitlines()]
    assert rows[0][:4] == ["steps", "of", "2", "batches"]
    assert float(rows[-1][-1]) == pytest.approx((900 + 2 * 225) / (600 + 2 * 225), rel=0.02)
    for text, said in (("a 3", "'a' is no length"), ("\n0 0\n", "has a line of lengths")):
        (tmp_path / "lengths.txt").write_text(text)
        assert main(["simulate", *model]) == 2 and said in capsys.readouterr().err


def test_models_beside_each_other(capsys):
    models = "ops/models/mlp.py:build", "ops/models/lenet.py:build"
    text = run(capsys, "simulate", *models, "--beside", "--devices", "2")
    rows = {line[:24].strip(): line.split() for line in text.splitlines()}
    total, bound = (float(rows[name][-1]) for name in ("one after the other", "no order is below"))
    together = [float(row[-1]) for name, row in rows.items() if name.startswith("together")]
    assert total == 1 and len(together) == 5 and bound <= min(together) + 5e-4
    for more in (["--parts", "2"], ["--strategy", "x.json"]):
        assert main(["simulate", *models, "--beside", *more]) == 2
        assert "--beside: " in capsys.readouterr().err
    assert main(["simulate", *models]) == 2 and "give two models" in capsys.readouterr().err
