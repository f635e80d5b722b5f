"""The subcommand export, and `--from`: what they print is what the library gives."""

import json
import re
from pathlib import Path

import pytest

from ops.models import gpt
from taskflow import CostModel, MachineModel, export_plan, import_job
from taskflow.cli import main
from tests.commands import refusal

SIZES = {"batch": 8, "sequence": 16, "layers": 2, "hidden": 32, "heads": 4, "vocabulary": 64}
MODEL = ["ops.models.gpt:build", "--arg", "dropout=0"]
FLAGS = (
    "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --vocab-size 64 "
    "--global-batch-size 8 --micro-batch-size 1 --tensor-model-parallel-size ${T} --nnodes 1 "
    "--nproc-per-node 4 --some-kernel"
)


def gibibytes(text):
    number, unit = re.search(r"fullest device +([\d.,]+) ([MG])iB", text).groups()
    return float(number.replace(",", "")) / (1 if unit == "G" else 1024)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run.sh").write_text("T=2\npython pretrain_gpt.py " + FLAGS)


def test_the_job_of_a_file_is_simulated_and_exported(capsys):
    """The machine has as many devices as the job."""
    given = [*MODEL, "--from", "run.sh", "--machine", "h100"]
    graph = gpt.build(**SIZES, dropout=0)
    machine = MachineModel.preset("h100").take(4)
    costs = CostModel.analytic(machine)
    job = import_job("run.sh", graph, machine)
    assert job.unread == ("--some-kernel",)
    assert main(["simulate", *given]) == 0
    said = capsys.readouterr().out
    assert said.startswith("run.sh: not read: --some-kernel\n")
    assert main(["simulate", *given, "--system", "deepspeed"]) == 0
    more = machine.devices[0].communicator_bytes + 2_000_000_000
    own, theirs = (gibibytes(text) for text in (said, capsys.readouterr().out))
    assert theirs - own == pytest.approx(more / 2**30, abs=2e-3)
    assert main(["export", *given, "--to", "deepspeed", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = export_plan(graph, job.plan, machine, costs, "deepspeed")
    assert (found["text"], found["unsaid"]) == (wanted.text, [])
    assert main(["export", *given, "--to", "json", "--out", "plan.json"]) == 0
    assert json.loads(Path("plan.json").read_text()) == job.plan.to_table()


def test_a_strategy_file_is_a_start_of_a_search(capsys):
    Path("flexflow.txt").write_text("1\nlayer0.fc1\n0\n3\n2 1 2\n4\n0 1 2 3\n")
    given = ["--arg", "batch=8", "--arg", "layers=1", "--arg", "hidden=32", "--arg", "heads=4"]
    given += ["--arg", "sequence=16", "--arg", "vocabulary=64", "--from", "flexflow.txt"]
    assert main(["search", *MODEL, *given, "--proposals", "2", "--devices", "4"]) == 0
    assert "\nflexflow.txt " in capsys.readouterr().out


def test_parameters_lie_where_they_are_used(capsys):
    given = [*MODEL, "--from", "run.sh", "--machine", "h100", "--to", "dtensor"]
    assert main(["export", *given, "--set", "T=4"]) == 0
    found = json.loads(capsys.readouterr().out)["parameters"]
    placed = {"first": 0, "mesh": [4], "strides": [1]}
    assert found["layer0.fc1.weight"] == {**placed, "placements": ["Shard(0)"]}
    assert found["layer0.fc2.weight"] == {**placed, "placements": ["Shard(1)"]}
    assert found["layer0.norm1.weight"] == {**placed, "placements": ["Replicate()"]}


REFUSED = {
    "--from no.sh": "'no.sh': there is no such file",
    "--from run.sh --set T": "--set is NAME=VALUE, not 'T'",
    "--set T=1": "--set T=1: is for a script of --from",
    "--from run.sh --set T=3": "Megatron-LM: 4 devices do not divide into 3",
    "--from run.sh --set T=x": "'run.sh': --tensor-model-parallel-size is a number from 1, not 'x'",
    "--from run.sh --arg batch=16": "Megatron-LM: the batch of a step is 8, the model has 16; build it with 8",
    "--from wrong.json": "DeepSpeed file 'wrong.json': is no configuration of DeepSpeed",
    "--from wrong.py": "torchtitan file 'wrong.py': name one of its functions, FILE:one for example",
    "--from wrong.py:three": "torchtitan file 'wrong.py': has no function 'three', it has one, two",
    "--from wrong.py:two": "torchtitan file 'wrong.py': tensor_parallel_degree is 'ranks()', which only a run knows",
    "--from short.txt": "FlexFlow file 'short.txt': ends early",
    "--from other.txt": "FlexFlow file 'other.txt': 'nobody' is no operator that a strategy of the model names",
}


def test_nearest_is_for_systems_that_cannot_say_all(capsys):
    given = [*MODEL, "--machine", "h100", "--to", "json", "--nearest"]
    assert refusal(capsys, "export", *given) == "--nearest: json says every plan"


@pytest.mark.parametrize("options", REFUSED)
def test_what_a_job_cannot_be(capsys, options):
    config = (
        "def {}() -> 'Trainer.Config':\n    return ParallelismConfig(tensor_parallel_degree={})\n"
    )
    Path("wrong.py").write_text(config.format("one", 1) + config.format("two", "ranks()"))
    Path("wrong.json").write_text("{}")
    Path("short.txt").write_text("1\nloss\n0\n2\n1\n")
    Path("other.txt").write_text("1\nnobody\n0\n1\n1\n1\n0\n")
    said = refusal(capsys, "simulate", *MODEL, "--machine", "h100", *options.split())
    assert said == REFUSED[options]


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        (
            "a.json",
            '{"zero_optimization": {"stage": 4}}',
            "'zero_optimization.stage' is 4: expected 'int' <= 3",
        ),
        ("a.json", '{"train_batch_size": true}', "'train_batch_size' is true: expected"),
        (
            "a.toml",
            '[parallelism]\ntensor_parallel_degree = "2"',
            "'tensor_parallel_degree' is \"2\": expected 'int'",
        ),
        ("a.toml", "[job]\nname = 1", "it configures neither parallelism nor training"),
        (
            "a.py",
            "x = ParallelismConfig(context_parallel_degree=0)",
            "'context_parallel_degree' is 0: expected",
        ),
        ("a.py", "x = (", "is no Python: '(' was never closed, line 1"),
        ("a.sh", "echo hello", "there are no flags of Megatron-LM in it"),
        (
            "a.sh",
            "run.py --context-parallel-size 0",
            "--context-parallel-size is a number from 1, not '0'",
        ),
    ],
)
def test_what_a_file_cannot_say(capsys, file, text, why):
    Path(file).write_text(text)
    assert why in refusal(capsys, "simulate", *MODEL, "--machine", "h100", "--from", file)
