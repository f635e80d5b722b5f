"""Command lines that cannot be: one line on standard error, exit status 2, never a traceback."""

import json

import pytest

from taskflow import MachineModel, Plan, Strategy, single_device
from taskflow.cli import main
from taskflow.cli.model import build_model
from tests import commands

RULES = (
    "one of single_device, data_parallel, proportional, fully_sharded, model_parallel, one_weird_trick, "
    "operator_placement, placed_tables"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "model_of_refused.py").write_text(commands.MODEL)
    (folder / "broken_of_refused.py").write_text("def build(:\n")
    (folder / "needs_of_refused.py").write_text("import no_such_package\n")
    (folder / "json.py").write_text("def build():\n    pass\n")
    return folder


@pytest.fixture(autouse=True)
def _in_the_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


MODELS = {
    "no function": ("model", "model 'model': is MODULE:FUNCTION"),
    "no module": (
        "no_such.module:build",
        "model 'no_such.module:build': there is no module 'no_such'",
    ),
    "no submodule": (
        "ops.models.no:build",
        "model 'ops.models.no:build': there is no module 'ops.models.no'",
    ),
    "no file": ("no.py:build", "model 'no.py:build': there is no file 'no.py'"),
    "another file": (
        "json.py:build",
        "model 'json.py:build': the module 'json' is another file, {json}; rename one of them",
    ),
    "syntax": (
        "broken_of_refused:build",
        "model 'broken_of_refused:build': SyntaxError: {syntax} ({folder}/broken_of_refused.py, line 1)",
    ),
    "its import": (
        "needs_of_refused:build",
        "model 'needs_of_refused:build': ModuleNotFoundError: No module named 'no_such_package' "
        "({folder}/needs_of_refused.py, line 1)",
    ),
    "name": (
        "model_of_refused:LIMIT",
        "model 'model_of_refused:LIMIT': the module has no function 'LIMIT', it has build, deep, nothing, fails, "
        "refuses",
    ),
    "no graph": (
        "model_of_refused:nothing",
        "model 'model_of_refused:nothing': gives a NoneType, not a Graph",
    ),
    "it fails": (
        "model_of_refused:fails",
        "model 'model_of_refused:fails': RuntimeError: no data ({folder}/model_of_refused.py, line 29)",
    ),
    "it is refused": (
        "model_of_refused:refuses",
        "model 'model_of_refused:refuses': ValueError: region 'x': extents are positive, not (0,) "
        "({folder}/model_of_refused.py, line 34)",
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model(case, folder, capsys):
    model, message = MODELS[case]
    expected = message.format(folder=folder, json=json.__file__, syntax=_syntax_message())
    assert commands.refusal(capsys, "simulate", model) == expected


def _syntax_message():
    """As this Python words it."""
    try:
        compile("def build(:\n", "", "exec")
    except SyntaxError as error:
        return error.msg
    raise AssertionError


BUILD = "model_of_refused:build"

OPTIONS = {
    "argument name": (
        ["--arg", "bach=3"],
        f"model '{BUILD}': got an unexpected keyword argument 'bach'; it takes (batch=8, width=4, name='fc')",
    ),
    "argument": (["--arg", "batch"], "--arg is name=value, not 'batch'"),
    "machine file": (["--machine", "no.toml"], "machine file 'no.toml': there is no such file"),
    "nodes": (["--nodes", "2"], "machine 'uniform': --nodes is for presets"),
    "strategy": (["--strategy", "no.json"], f"strategy 'no.json': is neither a file nor {RULES}"),
    "other strategy": (
        ["--strategy", "wide.json"],
        "strategy: operator 'fc': axis 'o' is 4 in the graph and 5 in the strategy",
    ),
    "devices of strategy": (
        ["--strategy", "far.json", "--devices", "2"],
        "operator 'fc': device 3 is not among the machine's 2 devices",
    ),
    "costs": (
        ["--costs", "wide.json"],
        "cost file 'wide.json': its format is not 'taskflow-costs'",
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_option(case, capsys):
    machine = MachineModel.uniform(4)
    single_device(build_model(BUILD, ["width=5"]), machine).save("wide.json")
    Strategy(single_device(build_model(BUILD, []), machine, device=3)).save("far.json")
    arguments, message = OPTIONS[case]
    assert commands.refusal(capsys, "simulate", BUILD, *arguments) == message


BESIDE = {
    "schedule": (
        ["--schedule", "gpipe"],
        "--schedule gpipe: the plan sets schedule itself, to by_ordinal",
    ),
    "recompute": (
        ["--recompute", "auto"],
        "--recompute auto: the plan sets recomputed itself, to tanh",
    ),
    "homes": (["--homes"], "--homes: the plan sets homes itself, to fc.weight"),
}


@pytest.mark.parametrize("command", ["simulate", "explain", "check"])
@pytest.mark.parametrize("case", BESIDE)
def test_what_a_plan_file_sets_itself(case, command, capsys):
    plan = Plan(Strategy(), 2, "by_ordinal", recomputed=["tanh"], homes=["fc.weight"])
    plan.save("plan.json")
    arguments, message = BESIDE[case]
    found = commands.refusal(capsys, command, BUILD, "--strategy", "plan.json", *arguments)
    assert found == f"{message}; leave one of both out"


def test_micro_batches_beside_a_plan_file(capsys):
    message = "--parts 2 makes a strategy of its own: leave out --strategy plan.json"
    assert (
        commands.refusal(
            capsys, "trace", BUILD, "--strategy", "plan.json", "--parts", 2, "--out", "t"
        )
        == message
    )


def test_a_plan_file_for_another_model(capsys):
    Plan(single_device(build_model(BUILD, ["width=5"]), MachineModel.uniform(4)), 2).save(
        "wide_plan.json"
    )
    message = "strategy: operator 'fc': axis 'o' is 4 in the graph and 5 in the strategy"
    for command in ("simulate", "explain", "check"):
        assert commands.refusal(capsys, command, BUILD, "--strategy", "wide_plan.json") == message


def test_a_plan_as_a_start_of_a_search(capsys):
    Plan(single_device(build_model(BUILD, []), MachineModel.uniform(4)), 2, "gpipe").save(
        "timed.json"
    )
    more = "2 micro-batches; schedule gpipe"
    message = f"start 'timed.json': a search starts from strategies; this plan has more: {more}"
    assert commands.refusal(capsys, "search", BUILD, "--start", "timed.json") == message


SWEPT = {
    "a file": (
        ["--json", "--out", "s.json", "--scale", "flops=2"],
        "--out writes one plan; --scale, --sensitivities, --pareto, --json and several --devices print cases",
    ),
    "a drawing": (
        ["--devices", "2,4", "--task-dot", "t.dot"],
        "--task-dot writes one plan; --scale, --sensitivities, --pareto, --json and several --devices print cases",
    ),
    "a scale": (
        ["--scale", "speed=2"],
        "scale 'speed': is one of network, links, latency, flops, memory_bandwidth, overhead, memory",
    ),
}


@pytest.mark.parametrize("case", SWEPT)
def test_several_cases(case, capsys):
    arguments, message = SWEPT[case]
    assert commands.refusal(capsys, "search", BUILD, *arguments) == message


def test_a_start_of_a_search(capsys):
    message = f"strategy 'no.json': is neither a file nor {RULES}"
    assert commands.refusal(capsys, "search", BUILD, "--start", "no.json") == message


def test_more_devices_than_the_machine_has(capsys, tmp_path):
    (tmp_path / "m.toml").write_text('name = "one"\n[[device]]\n')
    message = "machine 'one': has 1 devices, not 2"
    assert (
        commands.refusal(capsys, "explain", BUILD, "--machine", tmp_path / "m.toml", "--devices", 2)
        == message
    )


PARSED = {
    "proposals": (["--proposals", "0"], "argument --proposals: is a positive number, not '0'"),
    "seconds": (
        ["--seconds", "-1"],
        "argument --seconds: is a positive number of seconds, not '-1'",
    ),
    "seed": (["--seed", "x"], "argument --seed: is a number, not 'x'"),
    "devices": (
        ["--devices", "0"],
        "argument --devices: are positive numbers with commas between, not '0'",
    ),
    "scale": (
        ["--scale", "flops"],
        "argument --scale: is NAME=FACTOR, several with commas between, not 'flops'",
    ),
    "folder": (["--out", "no/s.json"], "argument --out: there is no folder 'no'"),
    "a folder": (["--dot", "."], "argument --dot: '.' is a folder"),
}


@pytest.mark.parametrize("case", PARSED)
def test_before_a_long_search(case, capsys):
    arguments, message = PARSED[case]
    with pytest.raises(SystemExit, match="2"):
        main(["search", BUILD, *arguments])
    assert capsys.readouterr().err.splitlines()[-1] == f"taskflow search: error: {message}"


REPORTED = {
    "no file": ([], "report: give the page a file (--out plan.html), or ask for its data (--json)"),
    "two plans": (
        ["--json", "--search", "5", "--strategy", "model_parallel"],
        "report: --search finds a plan itself; leave out --strategy and --parts",
    ),
    "nothing of that name": (
        ["--json", "--against", "no.json"],
        f"strategy 'no.json': is neither a file nor {RULES}",
    ),
}


@pytest.mark.parametrize("case", REPORTED)
def test_a_report(case, capsys):
    arguments, message = REPORTED[case]
    assert commands.refusal(capsys, "report", BUILD, *arguments) == message


def test_json_and_drawings(capsys):
    message = "explain: --json prints one text; leave out --dot and --task-dot"
    assert commands.refusal(capsys, "explain", BUILD, "--json", "--dot", "s.dot") == message
