"""The benchmark of GPUs on a fake device: every part runs to its end; a run keeps what parts have said, well or not."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from taskflow.backend import timing

FOLDER = Path(__file__).parents[1] / "benchmarks"


def imported(name):
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gpu():
    module = imported("gpu")
    with pytest.MonkeyPatch.context() as patch:  # times of a fake mean nothing: a few calls will do
        patch.setattr(timing, "_MOST_CALLS", 3)
        yield module


@pytest.fixture(scope="module")
def minutes():
    return imported("gpu_minutes")


LINES = {
    "facts": ["fake GPU", "GiB free"],
    "correctness": ["mlp", "asked 1e-04: yes"],
    "gemm": ["32^3 bfloat16", "32^3 float32", "32^3 tf32"],
    "choices": ["convolutions", "attention", "no library"],
    "steps mlp": [
        "mlp, 64-128-128-128-10, batch 32, float32",
        "batch 32, bfloat16",
        "1 graphs and 0 issued parts",
        "batch hidden",
        "predicted",
        "without fc#",
        '"what": "step"',
    ],
    "nccl": ["all_reduce of 64 float32 in a graph, one rank", "asked its bits: yes"],
    "curves": ["CNN of the demo", "GPT, 2 layers of 128", "bfloat16"],
    "demo": ["accuracy"],
}


@pytest.mark.slow
@pytest.mark.parametrize("part", LINES)
def test_a_part_runs(gpu, part, capsys):
    gpu.PARTS[part](gpu.Setting(is_fake=True))
    said = capsys.readouterr().out
    assert all(line in said for line in LINES[part]), said


def test_every_model_has_a_counterpart_in_torch(gpu):
    torch = pytest.importorskip("torch")
    import gpu_torch

    assert gpu_torch.MODULES.keys() == gpu.CASES.keys()
    small = {"layers": 1, "hidden": 8, "heads": 2, "vocabulary": 7, "sequence": 4}
    words = torch.zeros(2, 4, dtype=torch.int64)
    assert torch.isfinite(gpu_torch.GPT(**small)({"x": words, "t": words}))
    assert {f"steps {name}" for name in gpu.CASES} <= gpu.PARTS.keys()


def test_what_is_shipped_is_made_of_the_result_files():
    choices = imported("gpu_choices")
    shipped = FOLDER.parent / "taskflow/backend/choices.toml"
    assert choices.text() == shipped.read_text() and "NVIDIA H200" in choices.text()


SCRIPTS = {
    "good": 'print(\'{"model": "m", "value": 1}\'); print(\'asked 1: yes\')',
    "missed": "print('asked 1: NO')",
    "broken": "print('tests/gpu/test_laws.py::test_a[x-1] (call)'); 1 / 0",
    "hung": "import time; print('begun', flush=True); time.sleep(60)",
    "absent": "",
}


def test_parts_that_fail_or_hang_leave_the_others_and_are_run_again(minutes, tmp_path, monkeypatch):
    parts = [
        minutes.Part(
            name, (sys.executable, "-c", script), 1.5, "no-such-tool" if not script else ""
        )
        for name, script in SCRIPTS.items()
    ]
    monkeypatch.setattr(minutes, "correct", lambda stand_in: minutes.Run(9, (tuple(parts),)))
    monkeypatch.setattr(sys, "argv", ["", "correct", "--stand-in", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        minutes.main()
    found = json.loads((tmp_path / "gpu_correct.json").read_text())
    by_name = {part["part"]: part for part in found["parts"]}
    assert end.value.code and found["left_out"] == ["absent"]
    assert {name: part["status"] for name, part in by_name.items()} == {
        "good": "well",
        "missed": "failed",
        "broken": "failed",
        "hung": "out of time",
        "absent": "left out",
    }
    assert by_name["good"]["figures"] == [{"model": "m", "value": 1}]
    text = (tmp_path / "gpu_correct.txt").read_text()
    assert "begun" in text and "ZeroDivisionError" in text and text.endswith("left out: absent\n")
    again = minutes.run_named(["correct"], True, tmp_path, True)[1].stages[0]
    commands = {part.name: part.command for part in again}
    assert commands.keys() == {"missed", "broken", "hung"}
    assert commands["broken"][-1] == "tests/gpu/test_laws.py::test_a[x-1]"


def test_runs_keep_to_fifteen_minutes_and_eight_files(minutes, gpu, tmp_path):
    (tmp_path / "gpu_correct.json").write_text('{"parts": []}')
    asked = [
        (["correct"], False),
        (["correct"], True),
        (["fast", "1"], False),
        (["fast", "2"], False),
    ]
    runs = dict(minutes.run_named(words, again, tmp_path, False) for words, again in asked)
    assert [run.seconds for run in runs.values()] == [180, 90, 120, 120]
    assert 2 * len(runs) <= 8
    names = {part.name for run in runs.values() for stage in run.stages for part in stage}
    assert {f"steps {name}" for name in gpu.CASES} <= names
    with pytest.raises(ValueError, match="there is no run 'fast 3'"):
        minutes.run_named(["fast", "3"], False, tmp_path, False)
