"""Kills a rank of a training run again and again, at random times: `python benchmarks/kills.py --kills 100`.

Ranks train the digits MLP on noise under `taskflow run --restarts` with a checkpoint every few steps. After a random
time (one in five while the ranks still start, the others after that) a random rank gets SIGKILL; then all ranks must
be gone within 10 s and every checkpoint must be sound. The launcher starts them again, and so on until the run has
ended; then its parameters, momenta and history must be those of an undisturbed run, bit for bit. Runs follow until the
number of kills is reached. Exits with 1 if anything was not as it must be.
"""

import os
import sys
from pathlib import Path

if (
    "--train" in sys.argv
):  # a rank: its process id first, so that it can be killed while it still starts
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    Path(sys.argv[sys.argv.index("--train") + 1] + f".{rank}").write_text(str(os.getpid()))

import argparse
import hashlib
import random
import signal
import subprocess
import tempfile
import time

LIMIT_SECONDS = 10
BATCHES = 28  # an epoch


def train(folder: str, epochs: int, every: int) -> None:
    """What a rank does."""
    import numpy as np

    import taskflow
    from ops.models import digits
    from taskflow.core.system import world_size

    noise = np.random.default_rng(0)
    x, t = (
        noise.random((BATCHES * 64, 64), np.float32),
        noise.integers(0, 10, BATCHES * 64).astype(np.int32),
    )
    machine = taskflow.MachineModel.uniform(world_size())
    trainer = taskflow.Trainer(
        digits.mlp(64),
        machine=machine,
        strategy=taskflow.data_parallel,
        costs=taskflow.CostModel.analytic(machine),
        learning_rate=taskflow.rates.cosine(
            0.05, epochs * BATCHES, warmup=min(20, epochs * BATCHES)
        ),
        quiet=True,
    )
    Path(folder + ".ready").touch()
    history = trainer.fit(
        taskflow.Batches({"x": x, "t": t}, 64), epochs, checkpoint=folder, every=every
    )
    values = [trainer.step.read(name).tobytes() for name in trainer.step.persistent]
    digest = hashlib.blake2b(
        repr((values, trainer.step.steps, history.outputs)).encode(), digest_size=8
    )
    if trainer.transport.rank == 0:
        Path(folder + ".digest").write_text(digest.hexdigest())


class Job:
    """A training run, started again as often as its ranks die."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.said = ""
        self._pids = [Path(f"{folder}.{rank}") for rank in range(options.ranks)]
        self._ready = Path(f"{folder}.ready")
        script = [__file__, "--train", str(folder), "--epochs", str(options.epochs)]
        script += ["--every", str(options.every)]
        command = [
            sys.executable,
            "-m",
            "taskflow",
            "run",
            "-n",
            str(options.ranks),
            "--restarts",
            "1000",
            *script,
        ]
        kept = {
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self.job = subprocess.Popen(
            command, env=kept, **pipes
        )  # with compiled modules, for most are starts

    def pids(self) -> list[int]:
        """Process ids of the ranks, once they have started; none if the job ends first."""
        while self.job.poll() is None:
            texts = [path.read_text() if path.exists() else "" for path in self._pids]
            if all(texts):
                return [int(text) for text in texts]
            time.sleep(0.01)
        return []

    def await_training(self) -> None:
        """Return when a rank is about to load its checkpoint and to train."""
        while not self._ready.exists() and self.job.poll() is None:
            time.sleep(0.01)

    def kill(self, pid: int) -> None:
        """Kill one of its ranks; what is known of this start of theirs is forgotten."""
        for path in (*self._pids, self._ready):
            path.unlink(missing_ok=True)
        os.kill(pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Whether the job ends within so many seconds."""
        try:
            self.said = self.job.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            return False
        return True


def are_gone(pids: list[int], seconds: float) -> bool:
    """Whether these processes end within so many seconds."""
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(alive, pids))


def alive(pid: int) -> bool:
    """Whether a process runs (one that is dead and not yet waited for does not)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def main() -> int:
    """Kill, check, resume; print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train, options.epochs, options.every)
        return 0
    with tempfile.TemporaryDirectory() as base:
        return torture(Path(base), options)


def torture(base: Path, options: argparse.Namespace) -> int:
    """All kills; 0 if all was well."""
    from taskflow.checkpoint.manifest import check_all, checkpoints

    reference = Job(base / "undisturbed", options)
    reference.await_training()
    begin = time.monotonic()
    assert reference.wait(600) and reference.job.returncode == 0, "the undisturbed run failed"
    duration = time.monotonic() - begin
    expected, end = (
        (base / "undisturbed.digest").read_text(),
        max(checkpoints(base / "undisturbed")),
    )
    print(f"undisturbed run: {duration:.1f} s of training, digest {expected}", flush=True)

    chance, kills, runs, checked = random.Random(options.seed), 0, 0, 0
    hung, damaged, different, slowest, at = 0, 0, 0, 0.0, []
    while kills < options.kills:
        runs += 1
        folder = base / f"run{runs}"
        job = Job(folder, options)
        while pids := job.pids():
            if chance.random() < 0.8:
                job.await_training()
            last = kills >= options.kills or end in checkpoints(folder)
            if job.wait(600 if last else chance.uniform(0, duration / 8)) or not all(
                map(alive, pids)
            ):
                job.wait(LIMIT_SECONDS)  # it is over, or a rank is just leaving
                break
            job.kill(chance.choice(pids))
            kills, begin = kills + 1, time.monotonic()
            hung += not are_gone(pids, LIMIT_SECONDS)
            slowest = max(slowest, time.monotonic() - begin)
            found = checkpoints(folder)
            at.append(max(found, default=0))
            for path in found.values():
                checked += 1
                try:
                    check_all(path)
                except ValueError as error:
                    damaged += 1
                    print(error)
        if job.job.poll() != 0:
            job.job.kill()
            print(f"a run did not end well:\n{job.said}")
            return 1
        different += Path(f"{folder}.digest").read_text() != expected
    print(f"newest checkpoint at each kill: {sorted(at)}")
    print(
        f"{kills} kills of one of {options.ranks} ranks, in {runs} runs: {runs} of {runs} finished, {runs - different} "
        f"bit-identical to the undisturbed one; {checked} checkpoints checked, {damaged} damaged; slowest end of all "
        f"ranks {slowest:.1f} s of {LIMIT_SECONDS} s, {hung} not gone"
    )
    return int(bool(hung or damaged or different))


if __name__ == "__main__":
    sys.exit(main())
