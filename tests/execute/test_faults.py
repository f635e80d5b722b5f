"""Whatever befalls one rank in the middle of a step, all ranks end soon, and it is said where and why."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAIN = ROOT / "tests" / "programs" / "train.py"
SECONDS = 10  # the promise

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


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


def digest(folder, *arguments):
    status, text = run(folder, *arguments)
    assert status == 0, text
    return re.search(r"digest (\w+) after step (\d+)", text).groups()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return digest(tmp_path_factory.mktemp("undisturbed"))


SAID = {
    "raise": "RuntimeError: no such image\nin step 7 on rank 1, run of task",
    "leave": "taskflow: rank 1 leaves with 'out of data' in step 7, run of task ",
}


@pytest.mark.parametrize("accident", SAID)
def test_an_accident_on_one_rank_ends_all_and_the_run_goes_on(accident, undisturbed, tmp_path):
    status, text = run(tmp_path, "--every", 3, "--accident", accident)
    seconds = seconds_since_accident(tmp_path)
    assert status != 0
    assert SAID[accident] in text
    assert seconds < SECONDS
    assert [p.name for p in sorted(tmp_path.glob("step-*"))] == ["step-00000003", "step-00000006"]
    if accident == "raise":
        assert digest(tmp_path, "--every", 3) == undisturbed


def test_an_accident_under_plain_mpirun_ends_all(mpirun, tmp_path):
    """Leaving does, too: `test_leaving_alone_ends_all` in tests/test_ending.py."""
    done = mpirun(2, TRAIN, tmp_path, "--accident", "raise")
    seconds = seconds_since_accident(tmp_path)
    assert done.returncode != 0
    assert SAID["raise"] in done.stderr
    assert "and ends all ranks" in done.stderr
    assert seconds < SECONDS


def test_a_rank_that_hangs_is_named_and_ended(tmp_path):
    status, text = run(tmp_path, "--accident", "hang", launcher=("-m", "taskflow", "run", "-n", "2", "--patience", "1"))
    seconds = seconds_since_accident(tmp_path)
    assert status != 0
    said = r"rank 1 \(.*\) has not moved for 1 s in step 7, run of task \d+: feed x.*; all ranks end"
    assert re.search(said, text), text
    assert seconds < SECONDS


def test_a_signal_to_one_rank_stops_all_after_the_same_step(undisturbed, tmp_path):
    status, text = run(tmp_path, "--epochs", 1000, "--accident", "stop")
    assert status == 128 + signal.SIGTERM, text
    newest = max(int(p.name.removeprefix("step-")) for p in tmp_path.glob("step-*"))
    assert 7 <= newest < 200
    assert len(list(tmp_path.glob("*/rank-0001.safetensors"))) >= 1


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_to_the_launcher_stops_all_ranks(number, tmp_path):
    command = [sys.executable, "-m", "taskflow", "run", "-n", "2", TRAIN, tmp_path, "--epochs", "100000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=ROOT, preexec_fn=hear_hangups, **pipes) as job:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("step-*")) and time.monotonic() < deadline:
            time.sleep(0.05)  # until the training is under way in another process: there is nothing else to wait on
        job.send_signal(number)
        text, _ = job.communicate(timeout=30)
    assert job.returncode == 128 + number, text
    saved = sorted(tmp_path.glob("step-*"))
    assert 1 <= len(saved) <= 3
    if number == signal.SIGTERM:
        digest(tmp_path, "--epochs", int(saved[-1].name.removeprefix("step-")) // 5 + 1)


def test_killed_again_and_again_the_run_ends_with_the_same_bits():
    kills = ROOT / "benchmarks" / "kills.py"
    command = [sys.executable, kills, "--kills", "2", "--epochs", "6", "--every", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_twenty_of_the_injected_deaths():
    """All of them: `python benchmarks/deaths.py`."""
    command = [sys.executable, ROOT / "benchmarks" / "deaths.py", "--few", "--patience", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 deaths: 20 of 20 ended in time" in done.stdout


def test_a_checkpoint_of_four_ranks_loads_on_one_two_and_three(tmp_path):
    train = ["-m", "taskflow", "run", "-n"]
    digests = set()
    for ranks, rule in ((4, "data_parallel"), (1, "single_device"), (2, "model_parallel"), (3, "one_weird_trick")):
        status, text = run(tmp_path, "--rule", rule, launcher=[*train, str(ranks)])
        assert status == 0, text
        digests.add(re.search(r"digest (\w+) after step 20", text).group(1))
    assert len(digests) == 1
