"""A Slurm of two nodes on this machine: network namespaces as hosts, a controller, two daemons, which end with it."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.hosts import INTERFACE, two_hosts
from benchmarks.hosts import why_not as why_no_hosts
from taskflow.core.system import outside_job

PROGRAMS = "slurmctld", "slurmd", "srun", "sbatch", "salloc", "sinfo"
SECONDS_TO_BEGIN = 30
CONF = """ClusterName=taskflow
SlurmctldHost={first}(10.77.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=30
NodeName={first} NodeAddr=10.77.0.1 CPUs=2 State=UNKNOWN
NodeName={second} NodeAddr=10.77.0.2 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={first},{second} Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """What is missing; empty where nothing is."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {', '.join(missing)} (slurm-wlm)" if missing else why_no_hosts()


class Cluster:
    """Runs commands on the first node."""

    def __init__(self, agent: str, node: str, folder: Path) -> None:
        self.agent, self.node, self.folder = agent, node, folder

    def start(self, node: str, command: str) -> subprocess.Popen[str]:
        """A shell command on a node, with this Slurm and the interface between the nodes."""
        settings = f"export SLURM_CONF={self.folder}/slurm.conf TASKFLOW_INTERFACE={INTERFACE}"
        settings += f" OMPI_MCA_btl_tcp_if_include={INTERFACE}"
        return subprocess.Popen(
            [self.agent, node, f"{settings}; {command}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=outside_job(os.environ),
        )

    def run(self, command: str, seconds: float = 240) -> tuple[int, str]:
        """Exit status, and all that is said."""
        process = self.start(self.node, command)
        said, _ = process.communicate(timeout=seconds)
        return process.returncode, said

    def batch(self, script: str, options: str = "") -> tuple[int, str]:
        """The exit status of a script of `sbatch`, and what it said."""
        path, out = self.folder / "job.sh", self.folder / "job.out"
        path.write_text(f"#!/bin/sh\n{script}\n")
        out.unlink(missing_ok=True)
        status, said = self.run(f"sbatch --wait -N2 -n2 --output={out} {options} {path}")
        return status, said + (out.read_text() if out.exists() else "")


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Two nodes of two cores."""
    with two_hosts() as pair:
        first, second = pair.names
        for name in ("state", f"tmp.{first}", f"tmp.{second}"):
            (folder / name).mkdir()
        conf = CONF.format(first=first, second=second, folder=folder)
        (folder / "slurm.conf").write_text(conf)
        # Of version 1, which asks for nothing to be mounted
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        made = Cluster(pair.agent, first, folder)
        daemons = [made.start(first, "exec slurmctld -D > /dev/null 2>&1")]
        daemons += [made.start(n, f"exec slurmd -D -N {n} > /dev/null 2>&1") for n in pair.names]
        try:
            end = time.monotonic() + SECONDS_TO_BEGIN
            while made.run("sinfo -h -t idle -o %D")[1].strip() != "2":
                assert time.monotonic() < end, logs(folder)
                time.sleep(0.5)
            yield made
        finally:
            for daemon in daemons[::-1]:
                daemon.terminate()
            for daemon in daemons:
                daemon.communicate(timeout=30)


def logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))


def has_pmix(made: Cluster) -> bool:
    """Whether this Slurm has its plugin for PMIx, and that its library."""
    return made.run("srun -N2 -n2 --mpi=pmix true", 60)[0] == 0
