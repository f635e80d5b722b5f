"""Ctrl-C in a search: a first one ends it with the best so far, a second one at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taskflow import CostModel, MachineModel, SearchInterrupted, lower, search, simulate
from taskflow.cli import main
from taskflow.comm import launch
from taskflow.schedule.plan import Plan
from tests import commands
from tests.lowered import network

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "programs" / "search.py"
FOUR = MachineModel.uniform(4)
COSTS = CostModel.analytic(FOUR)


@pytest.fixture(autouse=True)
def handled():
    """Ctrl-C raises: in the background of a shell, where tests may run, it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_at(*proposals):
    """A `progress` that presses Ctrl-C."""

    def progress(done, best):
        if done in proposals:
            os.kill(os.getpid(), signal.SIGINT)

    return progress


@pytest.mark.parametrize("until_local", [False, True])
def test_a_first_one_gives_the_best_so_far(until_local):
    graph = network()
    with pytest.raises(SearchInterrupted) as caught:
        search(
            graph, FOUR, COSTS, proposals=10**6, progress=interrupt_at(20), until_local=until_local
        )
    found = caught.value.result
    assert 20 <= found.proposals < 30
    assert found.seconds == simulate(lower(graph, found.strategy, FOUR), COSTS).seconds
    assert found.seconds <= min(found.baseline_seconds.values())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_ends_at_once():
    with pytest.raises(KeyboardInterrupt) as caught:
        search(
            network(),
            FOUR,
            COSTS,
            proposals=10**6,
            progress=lambda *_: interrupt_at(0, 1)(0, 0) or interrupt_at(0)(0, 0),
        )
    assert not isinstance(caught.value, SearchInterrupted)


def test_who_handles_it_goes_on_doing_so():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        found = search(network(), FOUR, COSTS, proposals=600, progress=interrupt_at(5))
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen and found.proposals >= 30


def test_the_command_writes_it(tmp_path, capsys, monkeypatch):
    (tmp_path / "model_of_interrupt.py").write_text(commands.MODEL)
    monkeypatch.chdir(tmp_path)

    def interrupted(*arguments, progress, **options):
        return search(*arguments, progress=interrupt_at(10), **options)

    monkeypatch.setattr("taskflow.cli.search.search", interrupted)
    model = f"{tmp_path}/model_of_interrupt.py:build"
    assert main(["search", model, "--seconds", "600", "--out", "s.json"]) == 130
    out, err = capsys.readouterr()
    assert (
        "interrupted, the best so far: " in out and out.endswith("written: s.json\n") and err == ""
    )
    assert "fc" in Plan.load("s.json").strategy


LAUNCHERS = {
    "mpirun": [launch.find_mpirun(), "-n", "2", sys.executable],
    "taskflow run": [sys.executable, "-m", "taskflow", "run", "-n", "2"],
}


@pytest.mark.mpi
@pytest.mark.waits
@pytest.mark.parametrize(
    ("launcher", "number", "what"),
    [
        ("mpirun", signal.SIGUSR1, "command"),  # after SIGINT, mpirun leaves its ranks 0.25 s
        ("taskflow run", signal.SIGINT, "trainer"),
    ],
)
def test_on_ranks_it_is_written_too(launcher, number, what, tmp_path):
    environment, pipe = launch.launch_environment(os.environ, 2), subprocess.PIPE
    command = [*LAUNCHERS[launcher], SCRIPT, tmp_path, what]
    ready = [tmp_path / f"{rank}.ready" for rank in range(2)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as job:
        deadline = time.monotonic() + 60
        while not all(each.exists() for each in ready) and time.monotonic() < deadline:
            time.sleep(
                0.05
            )  # until they search, in other processes: there is nothing else to wait on
        job.send_signal(number)
        out, err = job.communicate(timeout=30)
    assert job.returncode == 130, out + err
    assert any(name.startswith("fc") for name in Plan.load(tmp_path / "s.json").strategy)
    assert what == "trainer" or out.count("interrupted, the best so far: ") == 1
