"""Open MPI 4 and 5 as found: Debian's 4.1, which `.ci/openmpi4` puts into a folder, and the wheel's 5.0."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from taskflow.comm import launch
from tests.hidden import path_without

ROOT = Path(__file__).parents[1]
MPIRUN_4 = ROOT / ".cache" / "openmpi4" / "mpirun"
OWN_LIBRARY = [
    "env",
    *(f"-u{name}" for name in ("OPAL_PREFIX", "OPAL_LIBDIR", "LD_LIBRARY_PATH", "MPI4PY_LIBMPI")),
]
JOBS = {
    "4": [MPIRUN_4, "-n", "2"],
    "5": [launch.find_mpirun(), "-n", "2"],
    "launcher 4, library 5": [MPIRUN_4, "-n", "2", *OWN_LIBRARY],
}
ABOUT = (
    "from taskflow.comm.transport import connect; t = connect(); from mpi4py import MPI; ranks = t.gather(t.rank)\n"
    "t.rank or print(MPI.Get_library_version()[:11], ranks)\n"
)


def run(job, *arguments, timeout=240, **variables):
    if not Path(job[0]).exists():
        pytest.skip("no Open MPI 4 here: .ci/openmpi4 brings it")
    with launch.session_folder() as session:
        environment = launch.launch_environment(os.environ, 2) | session | variables
        command = [*job, sys.executable, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout
        )


def test_no_setting_asks_for_what_only_one_version_has():
    """Open MPI 4 has no layer `sm`, 5 no `vader`, and neither starts when asked for one that it lacks."""
    layers = {
        name: value for name, value in launch.settings().items() if name.startswith("OMPI_MCA_")
    }
    named = {
        name
        for name, value in layers.items()
        if not value.startswith("^") and not value.isdecimal()
    }
    assert named == {"OMPI_MCA_pml", "OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_plm_rsh_agent"}
    assert layers["OMPI_MCA_pml"] == "ob1"  # both have it
    assert (
        layers["OMPI_MCA_plm_rsh_agent"] == "ssh:rsh:false"
    )  # the default of both, and what is there everywhere


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(("job", "library"), [("4", 4), ("5", 5), ("launcher 4, library 5", 5)])
def test_ranks_find_each_other(job, library):
    done = run(JOBS[job], "-c", ABOUT)
    assert (done.returncode, done.stdout.strip()) == (0, f"Open MPI v{library} [0, 1]"), done.stderr


REMOTE = ("ssh",), ("ssh", "rsh"), ("ssh", "rsh", "sh", "hostname")


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("missing", REMOTE, ids=" ".join)
@pytest.mark.parametrize("job", ["4", "5"])
def test_ranks_of_this_host_need_nothing_to_reach_others(job, missing, tmp_path):
    done = run(JOBS[job], "-c", ABOUT, PATH=path_without(tmp_path, *missing))
    assert (done.returncode, done.stdout.strip()) == (0, f"Open MPI v{job} [0, 1]"), done.stderr


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("job", ["4", "5"])
def test_without_ssh_another_host_is_a_failure(job, tmp_path):
    """Not a job that waits for ranks of a host which nothing has reached."""
    command = [JOBS[job][0], "--host", "elsewhere.invalid:2", "-n", "2"]
    done = run(command, "-c", ABOUT, PATH=path_without(tmp_path, "ssh", "rsh"))
    assert done.returncode != 0 and not done.stdout.strip()


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    "job", ["4", "launcher 4, library 5"]
)  # with "5" it is what test_console.py runs
def test_the_example_trains(job):
    done = run(JOBS[job], "examples/05_mpirun.py")
    assert done.returncode == 0, done.stderr
    assert "measured step time" in done.stdout


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("job", ["4", "5"])
def test_more_ranks_than_cores_are_welcome(job):
    ranks = launch.count_cores() + 1
    done = run([*JOBS[job][:2], str(ranks)], "-c", ABOUT)
    assert done.stdout.strip().endswith(str(list(range(ranks)))), done.stderr
