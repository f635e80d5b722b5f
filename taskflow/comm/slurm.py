"""Jobs of Slurm: what an allocation says of hosts, ranks, cores and GPUs.

`srun` starts ranks itself, and its variables say which (`taskflow.core.system`). Inside of an allocation, that is in a
script of `sbatch` or a shell of `salloc`, `taskflow run` starts mpirun, which finds the nodes by itself (the `slurm`
components of PRRTE) and starts its daemons by `srun`; what is left to say is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from taskflow.core.system import numbers_by_node

_JOB = "SLURM_JOB_NUM_NODES"


class Allocation(NamedTuple):
    """The nodes of a job.

    Attributes:
        nodes: their number.
        ranks: as many as tasks were asked for (`--ntasks`, `--ntasks-per-node`), else one a GPU, else one a core.
        threads: cores of a rank (`--cpus-per-task`); None: not said.
    """

    nodes: int
    ranks: int
    threads: int | None

    @staticmethod
    def of(environment: Mapping[str, str]) -> Allocation | None:
        """That of this process; None where there is none.

        Raises:
            ValueError: a variable of Slurm is no number.
        """
        if _JOB not in environment:
            return None
        nodes = _whole(environment, _JOB) or 1
        ranks = _whole(environment, "SLURM_NTASKS")
        ranks = ranks or nodes * (_whole(environment, "SLURM_NTASKS_PER_NODE") or 0)
        ranks = ranks or nodes * (_whole(environment, "SLURM_GPUS_ON_NODE") or 0)
        ranks = ranks or sum(numbers_by_node(environment.get("SLURM_JOB_CPUS_PER_NODE", "")))
        return Allocation(nodes, ranks or nodes, _whole(environment, "SLURM_CPUS_PER_TASK"))

    def settings(self) -> dict[str, str]:
        """Environment of mpirun: nodes are filled one after the other, with more ranks than tasks if it must be."""
        return {"PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe"}


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    """A variable as a number above 0; None where it is not set."""
    text = environment.get(name, "")
    if text and not (text.isascii() and text.isdecimal() and int(text)):
        raise ValueError(f"{name}: is a whole number from 1, not '{text}'")
    return int(text) if text else None
