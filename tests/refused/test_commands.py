"""Command lines that cannot be: one line on standard error, exit status 2, never a traceback."""

import json
import sys
from pathlib import Path

import pytest

from taskflow import MachineModel, Plan, Strategy, single_device
from taskflow.cli import main
from taskflow.cli.model import build_model
from tests import commands

FOUR = MachineModel.uniform(4)
BUILD = "model_of_refused:build"
FILES = {
    "model_of_refused.py": commands.MODEL,
    "broken_of_refused.py": "def build(:\n",
    "needs_of_refused.py": "import no_such_package\n",
    "json.py": "def build():\n    pass\n",
    "m.toml": 'name = "one"\n[[device]]\n',
}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """The current folder, with models, and with strategies and plans of them."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, text in FILES.items():
            Path(name).write_text(text)
        patch.delitem(sys.modules, "model_of_refused", raising=False)  # of another folder
        wide = single_device(build_model(BUILD, ["width=5"]), FOUR)
        wide.save("wide.json")
        Strategy(single_device(build_model(BUILD, []), FOUR, device=3)).save("far.json")
        Plan(wide, 2).save("wide_plan.json")
        Plan(Strategy(), 2, "by_ordinal", recomputed=["tanh"], homes=["fc.weight"]).save(
            "plan.json"
        )
        yield folder


def syntax_message():
    """As this Python words it."""
    try:
        compile("def build(:\n", "", "exec")
    except SyntaxError as error:
        return error.msg
    raise AssertionError


RULES = (
    "one of single_device, data_parallel, proportional, even_work, fully_sharded, model_parallel, "
    "one_weird_trick, operator_placement, placed_tables"
)
CASES = "--scale, --sensitivities, --pareto, --json and several --devices print cases"
WIDER = "strategy: operator 'fc': axis 'o' is 4 in the graph and 5 in the strategy"
# What is simulated, and its message.
MODELS = [
    ("model", "model 'model': is MODULE:FUNCTION or FILE.json"),
    ("no_such.module:build", "model 'no_such.module:build': there is no module 'no_such'"),
    ("ops.models.no:build", "model 'ops.models.no:build': there is no module 'ops.models.no'"),
    ("no.py:build", "model 'no.py:build': there is no file 'no.py'"),
    (
        "json.py:build",
        f"model 'json.py:build': the module 'json' is another file, {json.__file__}; rename one of them",
    ),
    (
        "broken_of_refused:build",
        f"model 'broken_of_refused:build': SyntaxError: {syntax_message()} (./broken_of_refused.py, line 1)",
    ),
    (
        "needs_of_refused:build",
        "model 'needs_of_refused:build': ModuleNotFoundError: No module named 'no_such_package' "
        "(./needs_of_refused.py, line 1)",
    ),
    (
        "model_of_refused:LIMIT",
        "model 'model_of_refused:LIMIT': the module has no function 'LIMIT', it has build, deep, "
        "nothing, fails, refuses",
    ),
    ("model_of_refused:nothing", "model 'model_of_refused:nothing': gives a NoneType, not a Graph"),
    (
        "model_of_refused:fails",
        "model 'model_of_refused:fails': RuntimeError: no data (./model_of_refused.py, line 29)",
    ),
    (
        "model_of_refused:refuses",
        "model 'model_of_refused:refuses': ValueError: region 'x': extents are positive, not (0,) "
        "(./model_of_refused.py, line 34)",
    ),
]
BESIDE = [
    ("--schedule gpipe", "the plan sets schedule itself, to by_ordinal"),
    ("--recompute auto", "the plan sets recomputed itself, to tanh"),
    ("--homes", "the plan sets homes itself, to fc.weight"),
]
# A command line, its MODEL left out, and its message; no two lines are alike, so a line names its case.
REFUSED = [
    (
        "simulate --arg bach=3",
        f"model '{BUILD}': got an unexpected keyword argument 'bach'; it takes (batch=8, width=4, name='fc')",
    ),
    ("simulate --arg batch", "--arg is name=value, not 'batch'"),
    ("simulate --machine no.toml", "machine file 'no.toml': there is no such file"),
    ("simulate --nodes 2", "machine 'uniform': --nodes is for presets"),
    ("simulate --strategy no.json", f"strategy 'no.json': is neither a file nor {RULES}"),
    ("simulate --strategy wide.json", WIDER),
    (
        "simulate --strategy far.json --devices 2",
        "operator 'fc': device 3 is not among the machine's 2 devices",
    ),
    (
        "simulate --costs wide.json",
        "cost file 'wide.json': its format is not 'taskflow-costs'",
    ),
    *(
        (f"{command} --strategy plan.json {option}", f"{option}: {said}; leave one of both out")
        for command in ("simulate", "explain", "check")
        for option, said in BESIDE
    ),
    *((f"{each} --strategy wide_plan.json", WIDER) for each in ("simulate", "explain", "check")),
    (
        "trace --strategy plan.json --parts 2 --out t",
        "--parts 2 makes a strategy of its own: leave out --strategy plan.json",
    ),
    ("search --start no.json", f"strategy 'no.json': is neither a file nor {RULES}"),
    ("search --json --out s.json --scale flops=2", f"--out writes one plan; {CASES}"),
    ("search --devices 2,4 --task-dot t.dot", f"--task-dot writes one plan; {CASES}"),
    (
        "search --scale speed=2",
        "scale 'speed': is one of network, links, latency, flops, memory_bandwidth, overhead, memory, "
        "device:NUMBER or link:END-END",
    ),
    ("explain --machine m.toml --devices 2", "machine 'one': has 1 devices, not 2"),
    (
        "explain --json --dot s.dot",
        "explain: --json prints one text; leave out --dot and --task-dot",
    ),
    ("report", "report: give the page a file (--out plan.html), or ask for its data (--json)"),
    (
        "report --json --search 5 --strategy model_parallel",
        "report: --search finds a plan itself; leave out --strategy and --parts",
    ),
    ("report --json --against no.json", f"strategy 'no.json': is neither a file nor {RULES}"),
]
PARSED = [
    ("--proposals 0", "argument --proposals: is a positive number, not '0'"),
    ("--seconds -1", "argument --seconds: is a positive number of seconds, not '-1'"),
    ("--seed x", "argument --seed: is a number, not 'x'"),
    ("--devices 0", "argument --devices: are positive numbers with commas between, not '0'"),
    ("--scale flops", "argument --scale: is NAME=FACTOR, several with commas between, not 'flops'"),
    ("--out no/s.json", "argument --out: there is no folder 'no'"),
    ("--dot .", "argument --dot: '.' is a folder"),
]


@pytest.mark.parametrize(("model", "message"), MODELS, ids=[model for model, _ in MODELS])
def test_a_model(model, message, folder, capsys):
    said = commands.refusal(capsys, "simulate", model).replace(str(folder), ".")
    assert said == message


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=[line for line, _ in REFUSED])
def test_refused(line, message, capsys):
    command, *options = line.split()
    assert commands.refusal(capsys, command, BUILD, *options) == message


@pytest.mark.parametrize(("options", "message"), PARSED)
def test_before_a_long_search(options, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["search", BUILD, *options.split()])
    assert capsys.readouterr().err.splitlines()[-1] == f"taskflow search: error: {message}"
