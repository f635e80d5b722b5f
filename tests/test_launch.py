"""The launcher: environment, command line, exit statuses."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from taskflow import cli
from taskflow.cli import run as run_command
from taskflow.comm import launch

ROOT = Path(__file__).parents[1]


def test_the_table_is_what_a_shell_reads():
    script = f"set -a; . {shlex.quote(str(ROOT / 'taskflow' / 'comm' / 'mpi.env'))}; env -0"
    shell = subprocess.run(
        ["sh", "-c", script], env={}, capture_output=True, text=True, check=True
    ).stdout
    variables = dict(line.split("=", 1) for line in shell.split("\0") if line)
    assert launch.settings().items() <= variables.items()


def test_blas_threads_share_the_cores(monkeypatch):
    monkeypatch.setattr(launch, "count_cores", lambda: 8)
    threads = {
        ranks: launch.launch_environment({}, ranks)["OMP_NUM_THREADS"] for ranks in (1, 2, 3, 8, 9)
    }
    assert threads == {1: "8", 2: "4", 3: "2", 8: "1", 9: "1"}


def test_what_the_user_has_set_stays():
    outside = {"OMP_NUM_THREADS": "5", "OMPI_MCA_pml": "ucx", "HOME": "/"}
    environment = launch.launch_environment(outside, 2)
    assert environment.items() >= outside.items()
    assert launch.launch_environment(outside, 2, threads=3)["OMP_NUM_THREADS"] == "3"


@pytest.mark.mpi
@pytest.mark.parametrize("variables", [{}, {"HOME": ""}, {"HOME": "/nowhere"}], ids=str)
def test_ranks_need_no_home(variables):
    outside = {name: value for name, value in os.environ.items() if name != "HOME"} | variables
    command = [launch.find_mpirun(), "-n", "1", sys.executable, "-c", "from mpi4py import MPI"]
    assert launch.run_job(command, launch.launch_environment(outside, 1)) == (0, False)


def test_a_rank_may_launch_ranks():
    inside = {
        "PMIX_RANK": "0",
        "OMPI_COMM_WORLD_SIZE": "2",
        "PRTE_LAUNCHED": "1",
        "OMP_NUM_THREADS": "1",
    }
    environment = launch.launch_environment(inside, 2)
    assert not {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "PRTE_LAUNCHED"} & environment.keys()


def test_networks_are_allowed_between_hosts():
    assert "OMPI_MCA_btl" not in launch.launch_environment({}, 2, is_one_host=False)
    assert "OMPI_MCA_btl" in launch.launch_environment({}, 2)
    one_host = {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "2"}
    assert "tcp" in launch.rank_settings(one_host)["OMPI_MCA_btl"]
    assert "OMPI_MCA_btl" not in launch.rank_settings(one_host | {"OMPI_COMM_WORLD_SIZE": "4"})
    assert "OMPI_MCA_pml" not in launch.rank_settings(one_host | {"OMPI_MCA_pml": "ucx"})


def test_little_shared_memory_is_left_to_others(monkeypatch, tmp_path):
    """Open MPI shares 16 MiB of a rank there, and aborts without."""
    folder, ranks = "OMPI_MCA_btl_sm_backing_directory", {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    rooms = iter([40 << 20, 16 << 20, 16 << 20])
    monkeypatch.setattr(launch, "_room_bytes", lambda path: next(rooms))
    assert folder not in launch.rank_settings(ranks)
    assert launch.rank_settings(ranks)[folder] == tempfile.gettempdir()
    assert folder not in launch.rank_settings(ranks | {folder: "/elsewhere"})
    monkeypatch.undo()
    assert launch._room_bytes(tmp_path / "none") == 0 < launch._room_bytes(tmp_path)


def test_mpirun_beside_this_python_comes_first(monkeypatch, tmp_path):
    assert launch.find_mpirun() == str(Path(sys.executable).parent / "mpirun")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mpirun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere"))
    assert launch.find_mpirun() == str(tmp_path / "elsewhere" / "mpirun")


def test_the_rest_is_passed_through(monkeypatch):
    seen = []
    monkeypatch.setattr(
        run_command,
        "run_job",
        lambda command, environment, is_one_host: seen.append(command[1:]) or (7, False),
    )
    python, script = sys.executable, str(ROOT / "examples" / "digits.py")
    assert (
        cli.main(
            ["run", "-n", "3", "--mpirun", "--tag-output --host a:2", script, "-n", "5", "--", "-x"]
        )
        == 7
    )
    assert cli.main(["run", "-n", "2", "-m", "pytest", "-q", "tests"]) == 7
    assert seen == [
        [
            "-n",
            "3",
            "--tag-output",
            "--host",
            "a:2",
            python,
            "-m",
            "taskflow.comm.rank",
            script,
            "-n",
            "5",
            "--",
            "-x",
        ],
        ["-n", "2", python, "-m", "taskflow.comm.rank", "-m", "pytest", "-q", "tests"],
    ]


@pytest.mark.parametrize(
    ("statuses", "asked", "ranks"),
    [
        ([137, 1, 0], False, ["4", "3", "2"]),
        ([137, 137, 137, 137], False, ["4", "3", "2", "2"]),
        ([137], True, ["4"]),
        ([143], False, ["4"]),
    ],
)
def test_what_failed_is_started_again_on_a_rank_less(monkeypatch, statuses, asked, ranks):
    seen, left = [], list(statuses)

    def run_job(command, environment, is_one_host):
        seen.append((command[2], environment["TASKFLOW_RESTART"], environment["TASKFLOW_PATIENCE"]))
        return left.pop(0), asked

    monkeypatch.setattr(run_command, "run_job", run_job)
    options = ["-n", "4", "--restarts", "3", "--min-ranks", "2", "--patience", "7"]
    assert cli.main(["run", *options, str(ROOT / "examples" / "digits.py")]) == statuses[-1]
    assert seen == [(count, str(number), "7.0") for number, count in enumerate(ranks)]


@pytest.mark.mpi
@pytest.mark.slow
def test_a_script_runs_as_under_python(tmp_path):
    """By the console script; whose status 0 is seen wherever ranks train."""
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    (tmp_path / "script.py").write_text(
        "import os, sys, beside\n"
        "assert __name__ == '__main__' and __file__ == sys.argv[0], (__name__, __file__, sys.argv)\n"
        "import __main__; assert __main__.beside is beside\n"
        "open(sys.argv[1] + os.environ['OMPI_COMM_WORLD_RANK'], 'w').write(beside.NAME)\n"
        "from mpi4py import MPI; assert MPI.COMM_WORLD.allreduce(1) == 2\n"
        "sys.exit(int(sys.argv[2]))\n"
    )
    program, script = Path(sys.executable).parent / "taskflow", tmp_path / "script.py"
    command = [program, "run", "-n", "2", script, tmp_path / "out", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert [(tmp_path / f"out{rank}").read_text() for rank in (0, 1)] == ["beside", "beside"]


def test_the_version_is_shown(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("taskflow ")


@pytest.mark.mpi
def test_what_a_killed_mpirun_of_the_same_number_left_behind_is_no_hindrance(tmp_path):
    plant = "cd $TMPDIR; mkdir -m 700 ompi.$$; touch ompi.$$/pmix.$(hostname).tool.$$"
    command = ["sh", "-c", f"{plant}; exec {shlex.quote(launch.find_mpirun())} -n 1 true"]
    environment = launch.launch_environment(os.environ, 1) | {"TMPDIR": str(tmp_path)}
    assert launch.run_job(command, environment) == (0, False)
