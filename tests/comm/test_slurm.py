"""Under a real Slurm of two nodes: `srun`, `sbatch` and `taskflow run` have the numbers of mpirun; what dies, and a
time limit, leave a run that goes on bit for bit.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.hosts import INTERFACE
from taskflow.comm.slurm import Allocation
from taskflow.core.system import numbers_by_node, outside_job, step_tasks_here
from tests.comm.slurm import Cluster, cluster, has_pmix, why_not
from tests.conftest import ROOT

TRAIN = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
import taskflow
from ops.models import digits
from sklearn.datasets import load_digits

out, folder, epochs, pause, dies = sys.argv[1], Path(sys.argv[2]), *map(float, sys.argv[3:])
data = load_digits()
x, t = (data.images / 16.0).astype(np.float32)[:256, None], data.target.astype(np.int32)[:256]
machine = taskflow.MachineModel.uniform(2)
trainer = taskflow.Trainer(digits.cnn(64, width=8), machine=machine, strategy=taskflow.data_parallel)
rank = trainer.transport.rank

def after(moment):
    time.sleep(pause)
    if rank == 1 and moment.step == dies and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)

batches = taskflow.Batches({"x": x, "t": t}, 64)
trainer.fit(batches, int(epochs), checkpoint=folder, every=2, callbacks=[after])
weights = {r.name: trainer.step.read(r.name) for r in trainer.graph.parameters}
if not rank:
    np.savez(out, **weights)
    print("hosts", list(trainer.transport.hosts))
"""
EPOCHS = 3


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := why_not():
        pytest.skip(f"Slurm: {why}")
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(TRAIN)
    return path


def trains(script: Path, folder: Path, pause: float = 0.0, dies: int = -1) -> str:
    """Script and arguments."""
    folder.mkdir(exist_ok=True)
    return f"{script} {folder / 'weights.npz'} {folder} {EPOCHS} {pause} {dies}"


def weights(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "weights.npz") as found:
        return dict(found)


@pytest.fixture(scope="module")
def undisturbed(script: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """By mpirun, on this host."""
    folder = tmp_path_factory.mktemp("mpirun")
    command = f"{sys.executable} -m taskflow run -n 2 {trains(script, folder)}"
    environment = outside_job(os.environ)
    subprocess.run(command.split(), check=True, cwd=ROOT, capture_output=True, env=environment)
    return weights(folder)


def assert_equal_bits(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name


RUN = f"{sys.executable} -m taskflow run"


@pytest.mark.waits
def test_a_script_of_sbatch(slurm, script, undisturbed, tmp_path) -> None:
    """`taskflow run` in it knows how many ranks there are, and where."""
    status, said = slurm.batch(
        f"cd {ROOT}; exec {RUN} --interface {INTERFACE} {trains(script, tmp_path)}"
    )
    assert status == 0 and "hosts [0, 1]" in said, said
    assert_equal_bits(weights(tmp_path), undisturbed)


@pytest.mark.waits
def test_srun(slurm, script, undisturbed, tmp_path) -> None:
    if not has_pmix(slurm):
        pytest.skip("Slurm: its plugin for PMIx does not load (libpmix-dev)")
    command = f"cd {ROOT}; srun -N2 -n2 --mpi=pmix {sys.executable} {trains(script, tmp_path)}"
    status, said = slurm.run(command)
    assert status == 0 and "hosts [0, 1]" in said, said
    assert_equal_bits(weights(tmp_path), undisturbed)


@pytest.mark.waits
def test_srun_without_mpi_is_refused(slurm, script, tmp_path) -> None:
    command = f"cd {ROOT}; srun -N2 -n2 {sys.executable} {trains(script, tmp_path)}"
    status, said = slurm.run(command)
    assert status and "2 processes were started, but MPI joins none of them" in said, said
    assert "srun --mpi=pmix" in said


@pytest.mark.waits
def test_a_rank_that_dies_is_named_and_a_restart_goes_on(slurm, script, undisturbed, tmp_path):
    options = f"--interface {INTERFACE} --restarts 1"
    status, said = slurm.batch(
        f"cd {ROOT}; exec {RUN} {options} {trains(script, tmp_path, dies=5)}"
    )
    assert status == 0 and "taskflow: rank 1" in said and "died" in said, said
    assert "restart 1 of 1" in said
    assert_equal_bits(weights(tmp_path), undisturbed)


@pytest.mark.waits
def test_a_rank_of_srun_that_dies_ends_all(slurm, script, undisturbed, tmp_path) -> None:
    if not has_pmix(slurm):
        pytest.skip("Slurm: its plugin for PMIx does not load (libpmix-dev)")
    arguments = trains(script, tmp_path, dies=5)
    command = f"cd {ROOT}; srun -N2 -n2 --mpi=pmix {sys.executable} {arguments}"
    status, said = slurm.run(command)
    assert status and "task 1: Killed" in said, said  # Slurm may end our guards before they speak
    status, said = slurm.run(command)  # as a script does, or Slurm's --requeue
    assert status == 0, said
    assert_equal_bits(weights(tmp_path), undisturbed)


@pytest.mark.waits
def test_a_time_limit_saves_and_the_next_job_goes_on(slurm, script, undisturbed, tmp_path) -> None:
    """At the limit of a minute Slurm sends SIGTERM, and SIGKILL 30 s later."""
    if not has_pmix(slurm):
        pytest.skip("Slurm: its plugin for PMIx does not load (libpmix-dev)")
    arguments = trains(script, tmp_path, pause=20.0)
    job = f"cd {ROOT}; srun --mpi=pmix {sys.executable} {arguments}"
    status, said = slurm.batch(job, "--time=1")
    assert status and "DUE TO TIME LIMIT" in said, said
    assert not (tmp_path / "weights.npz").exists()
    status, said = slurm.batch(job.replace(" 20.0 ", " 0.0 "))
    assert status == 0, said
    assert_equal_bits(weights(tmp_path), undisturbed)


SCRIPT = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_JOB_CPUS_PER_NODE": "8(x2),4",
}


@pytest.mark.parametrize(
    ("more", "ranks", "threads"),
    [
        ({}, 20, None),
        ({"SLURM_GPUS_ON_NODE": "4"}, 12, None),
        ({"SLURM_NTASKS": "6", "SLURM_CPUS_PER_TASK": "2", "SLURM_GPUS_ON_NODE": "4"}, 6, 2),
        ({"SLURM_NTASKS_PER_NODE": "2"}, 6, None),
    ],
)
def test_an_allocation_says_how_many_ranks(more, ranks, threads) -> None:
    assert Allocation.of(SCRIPT | more) == Allocation(3, ranks, threads)


def test_outside_of_a_job_there_is_no_allocation() -> None:
    assert Allocation.of({"SLURM_CONF": "/etc/slurm.conf"}) is None
    with pytest.raises(ValueError, match="SLURM_NTASKS: is a whole number from 1, not 'many'"):
        Allocation.of(SCRIPT | {"SLURM_NTASKS": "many"})


def test_a_step_says_how_many_tasks_are_here() -> None:
    assert numbers_by_node("2(x3),1") == [2, 2, 2, 1] and numbers_by_node("") == []
    step = {"SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "3"}
    assert step_tasks_here(step) == 1 and step_tasks_here({}) is None
