"""Injected deaths: `python benchmarks/deaths.py`. What befalls rank 1 in which phase, and how all ranks end.

Each of the accidents (killed, stopped, hung up on, failing, leaving, in a kernel without end that holds Python's lock,
out of memory) in each phase (import, search, construction, step, checkpoint, between two fits, exit), under plain
mpirun and under `taskflow run`, on 2 and on 4 ranks. The job must end within 10 s (where patience is what ends it:
patience + 10 s) with a bad status, its output must name rank 1 and the phase, and nothing may be left: no process, no
file in /dev/shm or the folder for temporary files. Then jobs in which one rank takes its time, which must not be ended.
Exits with 1 if anything was not as it must be. `--few` runs one of each accident. Before a phase there is only what it
needs: most of the time goes by with starts.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHASES = ("import", "search", "construction", "step", "checkpoint", "between fits", "exit")
LAUNCHERS, RANKS = ("mpirun", "taskflow run"), (2, 4)
LIMIT_SECONDS, TIMEOUT_SECONDS = 10.0, 120.0
FIRST, STRIDE = 3, 5  # of the few, so that they have every phase, too
STEP = 3  # of the accident
WRONG = "misnamed", "with status 0", "without a checkpoint", "left-over"
FORK = multiprocessing.get_context("fork")
ALONE = re.compile(r"0000\.0$")  # files of MPI in a process that no launcher has started: another's
MARK = "TASKFLOW_DEATHS"  # in the environment of all processes of one job


def hold_lock(seconds: float) -> None:
    """Do nothing for so long, and let no other thread of Python do anything."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def fail(error: BaseException) -> None:
    raise error


ACCIDENTS: dict[str, Callable[[], object]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "SIGHUP": lambda: os.kill(os.getpid(), signal.SIGHUP),
    "exception": lambda: fail(RuntimeError("no such image")),
    "sys.exit(0)": lambda: sys.exit(0),
    "sys.exit(x)": lambda: sys.exit("x"),
    "os._exit": lambda: os._exit(0),
    "endless kernel": lambda: hold_lock(1000),
    "MemoryError": lambda: fail(MemoryError()),
}
LATER = ("SIGSTOP", "endless kernel")  # what patience ends
IGNORED = (
    "exception",
    "sys.exit(0)",
    "sys.exit(x)",
    "MemoryError",
)  # by Python, in what it calls at exit
SLOW = {  # what takes its time, in multiples of patience: where, how long
    "search": 3.0,
    "construction": 3.0,
    "compiling in a step": 3.0,
    "between fits": 3.0,
    "step": 0.9,
}


HOOK: list[Callable[[str], None]] = []  # the kernel is the same on every rank


# -- a rank ------------------------------------------------------------------------------------------------------------


def odd(ctx, x, y):
    """A kernel, in which there is an accident."""
    if ctx.step == STEP:
        HOOK[0]("step")
        HOOK[0]("compiling in a step")
    y[...] = x


def run_rank(phase: str, accident: Callable[[], object], folder: Path) -> None:
    """What comes before the phase, as short as can be, and the phase, with an accident on rank 1; rank 0 goes on."""
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")

    def happen(here: str) -> None:
        nonlocal phase
        if here == phase and rank == "1":
            phase = ""  # once
            (folder / "accident").touch()
            accident()

    import taskflow

    happen("import")
    from taskflow.comm.transport import connect

    if phase == "import":
        connect().barrier()
    sys.path.insert(0, str(ROOT))
    from tests import tiny

    HOOK.append(happen)
    graph = taskflow.Graph()
    h = tiny.linear(tiny.linear(graph.input("x", (16, 8), "float64"), 8), 4)
    h = graph.launch("odd", "b c -> b c", [h], kernel=odd, backward=lambda op, g: (g,))
    tiny.sgd(tiny.mean_square(h), momentum=0)
    machine = taskflow.MachineModel.uniform(connect().size)
    costs = taskflow.CostModel.analytic(machine)
    if phase == "search":
        taskflow.search(
            graph, machine, costs, proposals=50, progress=lambda *about: happen("search")
        )
    train(taskflow, graph, machine, costs, happen, folder)


def train(taskflow, graph, machine, costs, happen: Callable[[str], None], folder: Path) -> None:
    """Two fits."""
    import numpy as np

    from taskflow.execute import executor

    plan, sync = executor.plan_memory, os.fsync
    executor.plan_memory = lambda *args, **named: (happen("construction"), plan(*args, **named))[1]
    os.fsync = lambda handle: (happen("checkpoint"), sync(handle))[1]
    trainer = taskflow.Trainer(graph, machine=machine, strategy=taskflow.data_parallel, costs=costs)
    batches = taskflow.Batches({"x": np.random.default_rng(0).random((80, 8))}, 16)
    for epochs in (1, 2):
        trainer.fit(batches, epochs, checkpoint=folder / "run", every=4)
        happen("between fits")
    import atexit

    atexit.register(happen, "exit")


def compile_long(seconds: float) -> None:
    """What numba does while it compiles."""
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        hold_lock(seconds)


# -- the jobs ----------------------------------------------------------------------------------------------------------


def mapped() -> set[str]:
    """The files in /dev/shm that living processes use: those of other jobs."""
    found = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            found += maps.read_text()
    return set(re.findall(r" /dev/shm/(\S+)", found))


def launch(
    launcher: str, ranks: int, script: list[str], environment: dict[str, str], output: Path
) -> None:
    """Be the launcher, in a process of its own."""
    from taskflow import cli
    from taskflow.comm.launch import find_mpirun

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if launcher == "mpirun":
        os.execv(find_mpirun(), ["mpirun", "-n", str(ranks), sys.executable, *script])
    sys.exit(cli.main(["run", "-n", str(ranks), *script]))


class Outcome:
    """How a job ended."""

    def __init__(self, launcher: str, ranks: int, patience: float, *arguments: str) -> None:
        self.mark, shared = uuid.uuid4().hex, set(os.listdir("/dev/shm"))
        with tempfile.TemporaryDirectory(prefix="deaths-") as base:
            temporary, output, happened = (
                Path(base, "tmp"),
                Path(base, "output"),
                Path(base, "accident"),
            )
            temporary.mkdir()
            environment = self._environment(ranks) | {
                "TMPDIR": str(temporary),
                "TASKFLOW_PATIENCE": str(patience),
            }
            script = [__file__, "--rank", base, *arguments]
            job = FORK.Process(target=launch, args=(launcher, ranks, script, environment, output))
            job.start()
            job.join(TIMEOUT_SECONDS)
            while job.exitcode is None:
                for process in self._alive():
                    os.kill(process, signal.SIGKILL)
                job.join(1.0)
            self.text, self.status = output.read_text(errors="replace"), job.exitcode
            self.seconds = (
                time.time() - happened.stat().st_mtime if happened.exists() else float("inf")
            )
            end = time.monotonic() + 2.0
            while (left := self._left(temporary, shared)) and time.monotonic() < end:
                time.sleep(0.05)
            self.left = left
            self.checkpoints = len(list(Path(base, "run").glob("step-*")))

    def _environment(self, ranks: int) -> dict[str, str]:
        """With compiled modules kept: two ranks a job import the package."""
        from taskflow.comm.launch import launch_environment

        outside = {
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        return launch_environment(outside, ranks) | {MARK: self.mark}

    def _left(self, temporary: Path, shared: set[str]) -> list[str]:
        cache = f"taskflow-{os.getuid()}"  # of compiled code, for the next job
        found = [f"process {process}" for process in self._alive()]
        new = {name for name in os.listdir("/dev/shm") if not ALONE.search(name)} - shared
        found += sorted(new and new - mapped())
        return found + [str(path) for path in temporary.iterdir() if path.name != cache]

    def _alive(self) -> list[int]:
        """The processes of this job that have not ended."""
        found, mark = [], f"{MARK}={self.mark}".encode()
        for each in Path("/proc").iterdir():
            try:
                if each.name.isdecimal() and mark in (each / "environ").read_bytes():
                    found.append(int(each.name))
            except OSError:
                continue
        return found


def wrong_end(outcome: Outcome, accident: str, phase: str, patience: float) -> list[str]:
    """What was not as it must be."""
    if accident == "slow":
        return ["false alarm"] if outcome.status else []
    limit = LIMIT_SECONDS + patience * (accident in LATER)
    where = {"step": rf"step {STEP}, \w+ of task \d+: point odd"}.get(phase, phase)
    if accident == "SIGHUP" and phase in ("step", "checkpoint"):
        where = "fit"  # all stop there, with a checkpoint
    left = rf"exit \(after ({where}|script)\)" if accident.startswith("sys.exit") else where
    found = [] if re.search(rf"rank 1\b[^\n]* in ({where}|{left})", outcome.text) else ["misnamed"]
    found += [] if outcome.seconds <= limit else ["late"]
    found += [] if outcome.status else ["with status 0"]
    found += [] if where != "fit" or outcome.checkpoints else ["without a checkpoint"]
    return found + ["left-over"] * len(outcome.left)


def combinations() -> Iterator[tuple[str, int, str, str]]:
    """Launcher, ranks, accident and phase of every job."""
    for launcher in LAUNCHERS:
        for ranks in RANKS:
            for accident in ACCIDENTS:
                for phase in PHASES:
                    if not (
                        (accident == "endless kernel" and phase != "step")
                        or (accident in IGNORED and phase == "exit")
                    ):
                        yield launcher, ranks, accident, phase
    for ranks in RANKS:
        for phase in SLOW:
            yield "taskflow run", ranks, "slow", phase


def chosen(options: argparse.Namespace) -> list[tuple[str, int, str, str]]:
    """The jobs that the options ask for; a few of all have each accident, phase and launcher."""
    jobs = list(combinations())
    if options.few:
        phases = [PHASES[(FIRST + STRIDE * k) % len(PHASES)] for k in range(len(ACCIDENTS))]
        few = zip(cycle(LAUNCHERS), ACCIDENTS, phases)
        jobs = [(launcher, 2, accident, phase) for launcher, accident, phase in few]
    jobs = [
        each for each in jobs if each[1] in options.ranks and (options.phase or each[3]) == each[3]
    ]
    return [each for each in jobs if options.only in " ".join(map(str, each))]


def run(
    launcher: str, ranks: int, accident: str, phase: str, patience: float
) -> tuple[Outcome, list[str]]:
    """Run a job and print how it ended."""
    about = (
        ("--accident", accident)
        if accident in ACCIDENTS
        else ("--seconds", str(SLOW[phase] * patience))
    )
    outcome = Outcome(launcher, ranks, patience, "--phase", phase, *about)
    wrong = wrong_end(outcome, accident, phase, patience)
    line = f"{launcher:<13} {ranks:>5} {accident:<15} {phase:<20}"
    print(
        f"{line} {outcome.seconds:7.1f} {outcome.status:6}  {', '.join(wrong) or 'yes'}", flush=True
    )
    if wrong:
        print("    " + "\n".join([outcome.text[-2000:], *outcome.left]).replace("\n", "\n    "))
    return outcome, wrong


def main() -> int:
    """Run the jobs; print a table and the sum of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--patience", type=float, default=5.0)
    parser.add_argument("--ranks", type=int, nargs="+", choices=RANKS, default=RANKS)
    parser.add_argument("--phase", choices=(*PHASES, *SLOW))
    parser.add_argument(
        "--only",
        default="",
        help="words of 'launcher ranks accident phase', such as 'mpirun 2 SIGHUP'",
    )
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--accident", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        wait = compile_long if options.phase == "compiling in a step" else hold_lock
        accident = (
            ACCIDENTS[options.accident] if options.accident else lambda: wait(options.seconds)
        )
        run_rank(options.phase, accident, options.rank)
        return 0
    import taskflow.cli  # noqa: F401  # once, and not in every fork that is a launcher

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` has ranks ignore it
    print(f"{'launcher':<13} ranks {'accident':<15} {'phase':<20} seconds status  as it must be")
    wrong: Counter[str] = Counter()
    seconds: dict[str, list[float]] = {"at once": [0.0], "later": [0.0]}
    jobs = chosen(options)
    for job in jobs:
        outcome, found = run(*job, options.patience)
        wrong.update(found)
        if job[2] != "slow":
            seconds["later" if job[2] in LATER else "at once"].append(outcome.seconds)
    deaths = sum(map(len, seconds.values())) - len(seconds)
    print(
        f"cannot occur: a kernel without end outside of a step; {', '.join(IGNORED)} at exit, which Python ignores"
    )
    print(
        f"{deaths} deaths: {deaths - wrong['late']} of {deaths} ended in time, slowest {max(seconds['at once']):.1f} s "
        f"of {LIMIT_SECONDS:g} s, and {max(seconds['later']):.1f} s of {LIMIT_SECONDS + options.patience:g} s where "
        f"patience ends it; {', '.join(f'{wrong[what]} {what}' for what in WRONG)}; "
        f"{len(jobs) - deaths} slow jobs: {wrong['false alarm']} false alarms; {cpu_seconds():.0f} s of CPU"
    )
    return int(bool(wrong))


def cpu_seconds() -> float:
    """Of the jobs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
