"""The benchmark of GPUs on a fake device: every part runs to its end and says whether what is asked for is met."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskflow.backend import timing

PATH = Path(__file__).parents[1] / "benchmarks/gpu.py"


@pytest.fixture(scope="module")
def gpu():
    spec = importlib.util.spec_from_file_location("gpu_benchmark", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_benchmark"] = module
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:  # times of a fake mean nothing: a few calls will do
        patch.setattr(timing, "_MOST_CALLS", 3)
        yield module


LINES = {
    "facts": ["fake GPU", "GiB free"],
    "correctness": ["mlp", "asked 1e-04: yes"],
    "gemm": ["32^3 bfloat16", "32^3 float32", "32^3 tf32"],
    "cudnn": ["convolutions", "attention", "attention.dx", "conv11.dweight", "all"],
    "steps mlp": [
        "mlp, 64-128-128-128-10, batch 32, float32",
        "batch 32, tf32",
        "batch 32, bfloat16",
        "taskflow",
    ],
    "steps gpt": ["batch 32, bfloat16"],
    "host": ["tiny gpt", "1 graphs and 0 issued parts"],
    "overlap": ["hidden"],
    "nccl": ["all_reduce of 64 float32 in a graph, one rank", "asked its bits: yes"],
    "predict": ["median error", "of 5 models"],
    "curves": ["CNN of the demo", "GPT, 2 layers of 128", "bfloat16"],
}


@pytest.mark.slow
@pytest.mark.parametrize("part", LINES)
def test_a_part_runs(gpu, part, capsys):
    gpu.run_part(part, gpu.Setting(is_fake=True))
    said = capsys.readouterr().out
    assert all(line in said for line in LINES[part]), said


def test_two_commands_run_all_parts_within_their_time(gpu):
    commands = gpu.commands_of(None)
    assert sorted(part for names in commands for part in names) == sorted(gpu.PARTS)
    assert [gpu.commands_of([group]) for group in gpu.GROUPS] == [[names] for names in commands]
    assert all(
        sum(gpu.PARTS[part][1] for part in names) <= gpu.WHOLE_SECONDS < 600 for names in commands
    )
    assert gpu.commands_of(["ranks", "gemm"]) == [["gemm", "ranks"]]


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_train(gpu, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "CARRIERS", ["shared"])
    gpu.run_part("ranks", gpu.Setting(is_fake=True))
    said = capsys.readouterr().out
    assert said.count("asked 1e-04: yes") == 2, said  # two strategies


@pytest.mark.slow
def test_parts_that_fail_or_hang_do_not_stop_the_others(gpu, tmp_path):
    program = tmp_path / "part.py"
    program.write_text(
        "import sys, time; print(sys.argv[1], flush=True); time.sleep(9 * (sys.argv[1] == 'hang')); 1 / 0"
    )
    command = [sys.executable, str(program)]
    failed, hung = (
        list(gpu.lines_of([*command, "fail"], 20)),
        list(gpu.lines_of([*command, "hang"], 3)),
    )
    assert (
        failed[0] == "fail"
        and "ZeroDivisionError" in failed[-2]
        and failed[-1].startswith("FAILED: ")
    )
    assert hung[0] == "hang" and hung[-1].endswith("hang takes more than 3 s")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_first_hour_goes_on_after_a_failure_and_leaves_its_file(tmp_path, number):
    """By an interpreter that fails for some commands; tools of NVIDIA are not there."""
    python, script = tmp_path / "python", PATH.with_name("gpu_hour.sh")
    python.write_text(
        '#!/bin/sh\ncase "$*" in *tests/gpu*|*--parts*) exit 3;; *) echo "runs $*";; esac\n'
    )
    python.chmod(0o755)
    done = subprocess.run(
        [script, str(number)],
        env=os.environ | {"OUT": str(tmp_path), "PYTHON": str(python)},
        capture_output=True,
    )
    said = (tmp_path / f"gpu_hour_{number}.txt").read_text()
    assert done.returncode == 1 and said.endswith(f"{tmp_path}/gpu_hour_{number}.txt\n")
    ends = re.findall(r"^== ends with (\d+) after", said, re.MULTILINE)
    assert ends[0] == "0" and ends.count("3") == {1: 3, 2: 1, 3: 1, 4: 3}[number], said
    assert sum(map(int, re.findall(r" of (\d+) s$", said, re.MULTILINE))) < 660


def test_every_model_has_a_counterpart_in_torch(gpu):
    torch = pytest.importorskip("torch")
    import gpu_torch

    assert gpu_torch.MODULES.keys() == gpu.CASES.keys()
    small = {"layers": 1, "hidden": 8, "heads": 2, "vocabulary": 7, "sequence": 4}
    words = torch.zeros(2, 4, dtype=torch.int64)
    assert torch.isfinite(gpu_torch.GPT(**small)({"x": words, "t": words}))
    assert {f"steps {name}" for name in gpu.CASES} <= gpu.PARTS.keys()
