"""Hosts: where the ranks of a job are started, by which command, and which network interface they use.

mpirun starts its daemons on other hosts itself; it is told of hosts, command and interface by its own options and
settings (Open MPI 5 and 4). What it would only report after minutes, or not at all, is tried before: whether a host can
be reached, has this Python, and has the interface.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from taskflow.core.system import INTERFACE

AGENT = "ssh -o BatchMode=yes -o ConnectTimeout=10"
REACH_SECONDS = 30.0  # for a host to answer
_ENTRY = re.compile(r"([\w.@][\w.@-]*)(?::([1-9]\d*))?")
_NO_INTERFACE = 3
_PROBE = (
    "import socket, sys\ntry: socket.if_nametoindex(sys.argv[1]) if sys.argv[1] else None\n"
    f"except OSError: sys.exit({_NO_INTERFACE})"
)
_PASSED_ON = (
    "PYTHONPATH",
    "TASKFLOW_",
    "NUMBA_",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
)  # how what a rank needs begins


def interface_settings(interface: str) -> dict[str, str]:
    """Environment of mpirun for ranks that use this interface between hosts; nothing where it is empty."""
    names = (
        "PRTE_MCA_prte_if_include",
        "OMPI_MCA_oob_tcp_if_include",
        "OMPI_MCA_btl_tcp_if_include",
        INTERFACE,
    )
    table = dict.fromkeys(names, interface)
    table["OMPI_MCA_btl"] = "^ofi,openib,uct"  # TCP and shared memory; no probing for others
    return table if interface else {}


@dataclass(frozen=True)
class Hosts:
    """Hosts of one job.

    Attributes:
        slots: host -> its number of ranks, in the order of ranks.
        interface: what ranks of several hosts use, `eth0` say; empty: all that MPI finds.
        agent: the command that, followed by a host and a command line for its shell, runs that there.
    """

    slots: Mapping[str, int]
    interface: str = ""
    agent: str = AGENT

    @staticmethod
    def parse(text: str, interface: str = "", agent: str = AGENT) -> Hosts:
        """Of `a:2,b:2`: two ranks on each of two hosts; a name alone is one rank.

        Raises:
            ValueError: which entry is wrong.
        """
        slots: dict[str, int] = {}
        for entry in text.split(","):
            match = _ENTRY.fullmatch(entry.strip())
            if not match:
                raise ValueError(f"hosts: 'NAME' or 'NAME:RANKS', not '{entry}'")
            name, count = match.groups()
            if name in slots:
                raise ValueError(f"hosts: '{name}' is named twice")
            slots[name] = int(count or 1)
        return Hosts(slots, interface, agent)

    @property
    def ranks(self) -> int:
        """Of all hosts."""
        return sum(self.slots.values())

    def settings(self) -> dict[str, str]:
        """Environment of mpirun, for Open MPI 5 and 4."""
        table = {"PRTE_MCA_plm_ssh_agent": self.agent, "OMPI_MCA_plm_rsh_agent": self.agent}
        table["PRTE_MCA_rmaps_default_mapping_policy"] = (
            "slot"  # the first host is filled, not oversubscribed
        )
        return table | interface_settings(self.interface)

    def options(self, environment: Mapping[str, str]) -> list[str]:
        """What mpirun is told: the hosts, and which variables of its environment all ranks get."""
        named = sorted(name for name in environment if name.startswith(_PASSED_ON))
        hosts = ",".join(f"{name}:{count}" for name, count in self.slots.items())
        return ["--host", hosts, *(word for name in named for word in ("-x", name))]

    def check(self) -> None:
        """Return if ranks can be started on all hosts.

        Raises:
            ValueError: a host cannot be reached, or lacks this Python or the interface; or there is no such agent.
        """
        with ThreadPoolExecutor(len(self.slots)) as pool:
            for problem in pool.map(self._problem, self.slots):
                if problem:
                    raise ValueError(problem)

    def _problem(self, host: str) -> str:
        """What is wrong with a host; empty where nothing is."""
        probe = [sys.executable, "-c", _PROBE, self.interface]
        is_here = host in ("localhost", os.uname().nodename)
        command = probe if is_here else [*shlex.split(self.agent), host, shlex.join(probe)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                errors="replace",
                timeout=REACH_SECONDS,
            )
        except FileNotFoundError:
            return f"hosts: there is no command '{command[0]}' to start ranks on '{host}' with; see --agent"
        except subprocess.TimeoutExpired:
            return f"hosts: '{host}' does not answer `{self.agent}` within {REACH_SECONDS:g} s"
        if done.returncode == _NO_INTERFACE:
            return f"hosts: '{host}' has no network interface '{self.interface}'"
        said = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
        where = (
            "has no"
            if done.returncode in (126, 127)
            else f"cannot be reached by `{self.agent}`, or has no"
        )
        return f"hosts: '{host}' {where} {sys.executable}: {said}" if done.returncode else ""
