"""Whatever befalls one rank in the middle of a step, all ranks end soon, and it is said where and why."""

import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAIN = ROOT / "tests" / "programs" / "train.py"
SECONDS = 10  # the promise

pytestmark = [pytest.mark.mpi, pytest.mark.waits]


def run(*arguments, launcher=("-m", "taskflow", "run", "-n", "2")):
    """Exit status and what was said."""
    done = subprocess.run(
        [sys.executable, *launcher, TRAIN, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def hear_hangups():
    """Also where the tests were started by `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def seconds_since_accident(folder):
    return time.time() - (folder / "accident").stat().st_mtime


def test_an_error_on_one_rank_ends_all(tmp_path):
    """What the run goes on from is there; that it does: `test_killed_the_run_starts_again...` below."""
    status, text = run(tmp_path, "--every", 3, "--accident", "raise")
    seconds = seconds_since_accident(tmp_path)
    assert status != 0
    assert "RuntimeError: no such image\nin step 7 on rank 1, run of task" in text
    assert seconds < SECONDS
    assert [p.name for p in sorted(tmp_path.glob("step-*"))] == ["step-00000003", "step-00000006"]


def test_leaving_under_plain_mpirun_ends_all(mpirun, tmp_path):
    done = mpirun(2, TRAIN, tmp_path, "--every", "3", "--accident", "leave")
    seconds = seconds_since_accident(tmp_path)
    assert done.returncode != 0
    assert "taskflow: rank 1 leaves with 'out of data' in step 7, run of task " in done.stderr
    assert "and ends all ranks" in done.stderr
    assert seconds < SECONDS
    assert [p.name for p in sorted(tmp_path.glob("step-*"))] == ["step-00000003", "step-00000006"]


def test_a_rank_that_hangs_is_named_and_ended(tmp_path):
    status, text = run(
        tmp_path,
        "--accident",
        "hang",
        launcher=("-m", "taskflow", "run", "-n", "2", "--patience", "1"),
    )
    seconds = seconds_since_accident(tmp_path)
    assert status != 0
    said = (
        r"rank 1 \(.*\) has not moved for 1 s in step 7, run of task \d+: feed x.*; all ranks end"
    )
    assert re.search(said, text), text
    assert seconds < SECONDS


def test_a_signal_to_one_rank_stops_all_after_the_same_step(tmp_path):
    status, text = run(tmp_path, "--epochs", 1000, "--accident", "stop")
    assert status == 128 + signal.SIGTERM, text
    newest = max(int(p.name.removeprefix("step-")) for p in tmp_path.glob("step-*"))
    assert 7 <= newest < 200
    assert len(list(tmp_path.glob("*/rank-0001.safetensors"))) >= 1


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_to_the_launcher_stops_all_ranks(number, tmp_path):
    command = [
        sys.executable,
        "-m",
        "taskflow",
        "run",
        "-n",
        "2",
        TRAIN,
        tmp_path,
        "--epochs",
        "100000",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=ROOT, preexec_fn=hear_hangups, **pipes) as job:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("step-*")) and time.monotonic() < deadline:
            time.sleep(
                0.05
            )  # until the training is under way in another process: there is nothing else to wait on
        job.send_signal(number)
        text, _ = job.communicate(timeout=30)
    assert job.returncode == 128 + number, text
    assert 1 <= len(list(tmp_path.glob("step-*"))) <= 3


def test_killed_the_run_starts_again_and_ends_with_the_same_bits():
    """Again and again: `python benchmarks/kills.py`."""
    kills = ROOT / "benchmarks" / "kills.py"
    command = [
        sys.executable,
        kills,
        "--kills",
        "1",
        "--epochs",
        "3",
        "--every",
        "3",
        "--seed",
        "1",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_of_each_injected_death():
    """All of them: `python benchmarks/deaths.py`."""
    command = [sys.executable, ROOT / "benchmarks" / "deaths.py", "--few", "--patience", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 deaths: 9 of 9 ended in time" in done.stdout


def test_a_checkpoint_of_three_ranks_loads_on_two_and_on_one(tmp_path, monkeypatch, capsys):
    digests = set()
    for ranks, rule in ((3, "data_parallel"), (2, "model_parallel")):
        launcher = ["-m", "taskflow", "run", "-n", str(ranks)]
        status, text = run(tmp_path, "--rule", rule, launcher=launcher)
        assert status == 0, text
        digests.add(re.search(r"digest (\w+) after step 20", text).group(1))
    monkeypatch.setattr(sys, "argv", [str(TRAIN), str(tmp_path), "--rule", "single_device"])
    runpy.run_path(str(TRAIN), run_name="__main__")
    digests.add(re.search(r"digest (\w+) after step 20", capsys.readouterr().out).group(1))
    assert len(digests) == 1
