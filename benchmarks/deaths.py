"""Injected deaths: `python benchmarks/deaths.py`. What befalls rank 1 in which phase, and how all ranks end.

Each of the accidents (killed, stopped, hung up on, failing, leaving, in a kernel without end that holds Python's lock,
out of memory) in each phase (import, search, construction, step, checkpoint, between two fits, exit), under plain
mpirun and under `taskflow run`, on 2 and on 4 ranks. The job must end within 10 s (where patience is what ends it:
patience + 10 s) with a bad status, its output must name rank 1 and the phase, and nothing may be left: no process, no
file in /dev/shm or the folder for temporary files. Then jobs in which one rank takes its time, which must not be ended.
Exits with 1 if anything was not as it must be. `--few` runs 20 of them.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHASES = ("import", "search", "construction", "step", "checkpoint", "between fits", "exit")
LIMIT_SECONDS = 10.0
STEP = 3  # of the accident
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
IGNORED = ("exception", "sys.exit(0)", "sys.exit(x)", "MemoryError")  # by Python, in what it calls at exit
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
    """Search, build, train twice, with an accident on rank 1."""
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")

    def happen(here: str) -> None:
        nonlocal phase
        if here == phase and rank == "1":
            phase = ""  # once
            (folder / "accident").touch()
            accident()

    import taskflow

    happen("import")
    import numpy as np

    import ops
    from taskflow.core.system import world_size
    from taskflow.execute import executor

    HOOK.append(happen)
    graph = taskflow.Graph()
    x, t = graph.input("x", (16, 8)), graph.input("t", (16,), dtype="int32")
    h = ops.linear(x, 16, name="fc1")
    h = graph.launch("odd", "b c -> b c", [h], kernel=odd, backward=lambda op, g: (g,))
    ops.sgd(ops.softmax_cross_entropy(ops.linear(h, 4, name="fc2"), t), lr=0.1)
    machine = taskflow.MachineModel.uniform(world_size())
    costs = taskflow.CostModel.analytic(machine)
    taskflow.search(graph, machine, costs, proposals=50, progress=lambda *about: happen("search"))

    plan, sync = executor.plan_memory, os.fsync
    executor.plan_memory = lambda *args, **named: (happen("construction"), plan(*args, **named))[1]
    os.fsync = lambda handle: (happen("checkpoint"), sync(handle))[1]
    trainer = taskflow.Trainer(graph, machine=machine, strategy=taskflow.data_parallel, costs=costs)
    values = np.random.default_rng(0)
    batches = {"x": values.random((80, 8), np.float32), "t": values.integers(0, 4, 80).astype(np.int32)}
    for epochs in (2, 4):
        trainer.fit(taskflow.Batches(batches, 16), epochs, checkpoint=folder / "run", every=4)
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


class Outcome:
    """How a job ended."""

    def __init__(self, launcher: str, ranks: int, patience: float, *arguments: str) -> None:
        self.mark, shared = uuid.uuid4().hex, set(os.listdir("/dev/shm"))
        with tempfile.TemporaryDirectory(prefix="deaths-") as base:
            temporary = Path(base, "tmp")
            temporary.mkdir()
            environment = self._environment(ranks) | {"TMPDIR": str(temporary), "TASKFLOW_PATIENCE": str(patience)}
            script = [__file__, "--rank", base, *arguments]
            if launcher == "mpirun":
                command = [str(Path(sys.executable).parent / "mpirun"), "-n", str(ranks), sys.executable, *script]
            else:
                command = [sys.executable, "-m", "taskflow", "run", "-n", str(ranks), *script]
            job = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            try:
                self.text = job.communicate(timeout=120)[0]
            except subprocess.TimeoutExpired:
                for process in self._alive():
                    os.kill(process, signal.SIGKILL)
                self.text = job.communicate()[0]
            self.status, happened = job.returncode, Path(base, "accident")
            self.seconds = time.time() - happened.stat().st_mtime if happened.exists() else float("nan")
            end = time.monotonic() + 2.0
            while left := self._left(temporary, shared):
                if time.monotonic() > end:
                    break
                time.sleep(0.05)
            self.left = left
            self.checkpoints = len(list(Path(base, "run").glob("step-*")))

    def _environment(self, ranks: int) -> dict[str, str]:
        from taskflow.comm.launch import launch_environment

        return launch_environment(os.environ, ranks) | {MARK: self.mark}

    def _left(self, temporary: Path, shared: set[str]) -> list[str]:
        cache = f"taskflow-{os.getuid()}"  # of compiled code, for the next job
        found = [f"process {process}" for process in self._alive()]
        found += sorted(set(os.listdir("/dev/shm")) - shared - mapped())
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
    limit = LIMIT_SECONDS + patience * (accident in LATER)
    where = {"step": rf"step {STEP}, \w+ of task \d+: point odd"}.get(phase, phase)
    if accident == "SIGHUP" and phase in ("step", "checkpoint"):
        where = "fit"  # all stop there, with a checkpoint
    left = rf"exit \(after ({where}|script)\)" if accident.startswith("sys.exit") else where
    found = [] if re.search(rf"rank 1\b[^\n]* in ({where}|{left})", outcome.text) else ["not named"]
    found += [] if outcome.seconds <= limit else [f"{outcome.seconds:.1f} s"]
    found += [] if outcome.status else ["status 0"]
    found += [] if where != "fit" or outcome.checkpoints else ["no checkpoint"]
    return found + [f"left: {each}" for each in outcome.left]


def combinations(few: bool) -> Iterator[tuple[str, int, str, str]]:
    """Launcher, ranks, accident and phase of every job; a few of them, which have each of those."""
    number = 0
    for launcher in ("mpirun", "taskflow run"):
        for ranks in (2, 4):
            for accident in ACCIDENTS:
                for phase in PHASES:
                    if (accident == "endless kernel" and phase != "step") or (accident in IGNORED and phase == "exit"):
                        continue
                    number += 1
                    if not few or (ranks == 2 and number % 5 == 0):
                        yield launcher, ranks, accident, phase


def main() -> int:
    """Run the jobs; print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--patience", type=float, default=5.0)
    parser.add_argument("--only", default="", help="a word of the lines to run")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    parser.add_argument("--accident", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        wait = compile_long if options.phase == "compiling in a step" else hold_lock
        accident = ACCIDENTS[options.accident] if options.accident else lambda: wait(options.seconds)
        run_rank(options.phase, accident, options.rank)
        return 0
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` has ranks ignore it
    bad = run = 0
    slowest = {False: 0.0, True: 0.0}
    print(f"{'launcher':<13} ranks {'accident':<15} {'phase':<13} seconds status  as it must be")
    for launcher, ranks, accident, phase in combinations(options.few):
        line = f"{launcher:<13} {ranks:>5} {accident:<15} {phase:<13}"
        if options.only in line:
            outcome = Outcome(launcher, ranks, options.patience, "--phase", phase, "--accident", accident)
            wrong = wrong_end(outcome, accident, phase, options.patience)
            print(f"{line} {outcome.seconds:7.1f} {outcome.status:6}  {', '.join(wrong) or 'yes'}", flush=True)
            if wrong:
                print("    " + outcome.text[-2000:].replace("\n", "\n    "))
            slowest[accident in LATER] = max(slowest[accident in LATER], outcome.seconds)
            bad, run = bad + bool(wrong), run + 1
    alarms = 0
    for phase, multiple in SLOW.items() if not options.few and not options.only else ():
        seconds = multiple * options.patience
        outcome = Outcome("taskflow run", 2, options.patience, "--phase", phase, "--seconds", str(seconds))
        print(f"one rank takes {seconds:g} s: {phase:<20} status {outcome.status}", flush=True)
        if outcome.status:
            alarms += 1
            print(outcome.text[-2000:])
    print(f"cannot occur: a kernel without end outside of a step; {', '.join(IGNORED)} at exit, which Python ignores")
    print(f"{run} deaths, not as they must be: {bad}; slowest end {slowest[False]:.1f} s (limit {LIMIT_SECONDS:g} s), ")
    print(f"where patience ({options.patience:g} s) ends it {slowest[True]:.1f} s; false alarms: {alarms}")
    return int(bool(bad or alarms))


if __name__ == "__main__":
    sys.exit(main())
