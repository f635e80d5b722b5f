"""`taskflow run`: a script on several ranks."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import signal
import sys
from pathlib import Path

from taskflow.cli.types import Commands, natural, positive
from taskflow.comm.hosts import AGENT, Hosts, interface_settings
from taskflow.comm.launch import launch_environment, rank_command, run_job
from taskflow.comm.slurm import Allocation
from taskflow.core.system import PATIENCE, PATIENCE_SECONDS, RESTART, count_cores

_NO_FAILURE = 0, *(128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "run",
        help="run a script on several ranks",
        description="Run a Python script on several ranks. The exit status is the script's. The first Ctrl-C or "
        "SIGTERM, and any SIGHUP, lets a Trainer finish its step and save a checkpoint; a second one ends all ranks at "
        "once. When a rank dies, stops or leaves, or a task of a step does not end, all end, and it is said where.",
    )
    parser.add_argument(
        "-n",
        dest="ranks",
        type=positive,
        help="number of ranks (default: one per core; in a job of Slurm one per task, or per GPU)",
    )
    parser.add_argument(
        "--threads", type=positive, help="BLAS threads of each rank (default: cores // ranks)"
    )
    parser.add_argument(
        "--hosts",
        metavar="HOST:RANKS,...",
        help="start ranks on these hosts, which have this Python and these folders",
    )
    parser.add_argument(
        "--interface",
        default="",
        help="the network interface between hosts, eth0 say (default: any)",
    )
    parser.add_argument(
        "--agent", default=AGENT, help=f"the command that reaches a host (default: {AGENT})"
    )
    parser.add_argument(
        "--mpirun", default="", metavar="OPTIONS", help="further options of mpirun, as one word"
    )
    parser.add_argument(
        "--patience",
        type=float,
        metavar="SECONDS",
        help=f"end all when a rank is stopped, or a task takes, for so long (default: {PATIENCE_SECONDS:g}; 0: never)",
    )
    parser.add_argument(
        "--restarts",
        type=natural,
        default=0,
        help="start again so often when the ranks fail (default: 0)",
    )
    parser.add_argument(
        "--min-ranks",
        type=positive,
        help="start again on a rank less, down to so many (default: -n)",
    )
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="the script is the name of a module"
    )
    parser.add_argument("script", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    parser.set_defaults(act=_run)


def _hosts(options: argparse.Namespace, job: Allocation | None) -> Hosts | None:
    """The hosts that are asked for, tried."""
    if options.hosts is None:
        if (options.interface and not job) or options.agent != AGENT:
            raise ValueError("run: --interface and --agent are for --hosts")
        return None
    hosts = Hosts.parse(options.hosts, options.interface, options.agent)
    if options.ranks and options.ranks > hosts.ranks:
        raise ValueError(
            f"run: -n {options.ranks} is more than the {hosts.ranks} ranks of --hosts {options.hosts}"
        )
    hosts.check()
    return hosts


def _run(options: argparse.Namespace) -> int:
    if options.patience is not None and not 0 <= options.patience < math.inf:
        raise ValueError(f"run: --patience is a number of seconds, not {options.patience}")
    if not options.is_module and not Path(options.script).is_file():
        raise ValueError(f"run: there is no file '{options.script}'")
    job = None if options.hosts else Allocation.of(os.environ)
    hosts = _hosts(options, job)
    ranks = options.ranks or (hosts.ranks if hosts else job.ranks if job else count_cores())
    threads = options.threads or (job.threads if job else None)
    further = shlex.split(options.mpirun)
    is_one_host = hosts is None and not any("host" in word for word in further)
    is_one_host = is_one_host and (job is None or job.nodes == 1)
    script = ["-m", options.script] if options.is_module else [options.script]
    patience = {} if options.patience is None else {PATIENCE: str(options.patience)}
    for restart in range(options.restarts + 1):
        fullest = max(hosts.slots.values()) if hosts else -(-ranks // (job.nodes if job else 1))
        environment = launch_environment(os.environ, fullest, threads, is_one_host) | patience
        environment |= {RESTART: str(restart)} | (hosts.settings() if hosts else {})
        if job:
            environment |= job.settings() | interface_settings(options.interface)
        on_hosts = hosts.options(environment) if hosts else []
        command = rank_command(ranks, [*script, *options.arguments], [*on_hosts, *further])
        status, is_asked = run_job(command, environment, is_one_host)
        if status in _NO_FAILURE or is_asked or restart == options.restarts:
            break
        ranks = max(ranks - 1, min(options.min_ranks or ranks, ranks))
        sys.stderr.write(
            f"taskflow: status {status}; restart {restart + 1} of {options.restarts}, on {ranks} ranks\n"
        )
    return status
