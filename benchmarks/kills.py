"""Kills a rank of a training run again and again, at random times: `python benchmarks/kills.py --kills 100`.

Two ranks train the digits MLP under `taskflow run --restarts` with a checkpoint every few steps. After a random time
(one in five while the ranks still start, the others after that) a random rank gets SIGKILL; then all ranks must be gone
within 10 s and every checkpoint must be sound. The launcher starts them again, and so on until the run has ended; then
its parameters, momenta and history must be those of an undisturbed run, bit for bit. Runs follow until the number of
kills is reached. Exits with 1 if anything was not as it must be.
"""

import os
import sys
from pathlib import Path

if "--train" in sys.argv:  # a rank: its process id first, so that it can be killed while it still starts
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


def train(folder: str, epochs: int, every: int) -> None:
    """What a rank does."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import numpy as np
    from models import digits
    from sklearn.datasets import load_digits

    import taskflow

    data = load_digits()
    x, t = (data.images / 16.0).astype(np.float32).reshape(-1, 64), data.target.astype(np.int32)
    machine = taskflow.MachineModel.uniform(2)
    trainer = taskflow.Trainer(
        digits.mlp(64),
        machine=machine,
        strategy=taskflow.data_parallel,
        costs=taskflow.CostModel.analytic(machine),
        learning_rate=taskflow.rates.cosine(0.05, 2000, warmup=20),
        quiet=True,
    )
    Path(folder + ".ready").touch()
    history = trainer.fit(taskflow.Batches({"x": x, "t": t}, 64), epochs, checkpoint=folder, every=every)
    values = [trainer.step.read(name).tobytes() for name in trainer.step.persistent]
    digest = hashlib.blake2b(repr((values, trainer.step.steps, history.outputs)).encode(), digest_size=8)
    if trainer.transport.rank == 0:
        Path(folder + ".digest").write_text(digest.hexdigest())


class Job:
    """A training run on two ranks, started again as often as they die."""

    def __init__(self, folder: Path, epochs: int, every: int) -> None:
        self.said = ""
        self._pids = [Path(f"{folder}.{rank}") for rank in range(2)]
        self._ready = Path(f"{folder}.ready")
        script = [__file__, "--train", str(folder), "--epochs", str(epochs), "--every", str(every)]
        command = [sys.executable, "-m", "taskflow", "run", "-n", "2", "--restarts", "1000", *script]
        self.job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

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
    parser.add_argument("--epochs", type=int, default=150)
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

    reference = Job(base / "undisturbed", options.epochs, options.every)
    reference.await_training()
    begin = time.monotonic()
    assert reference.wait(600) and reference.job.returncode == 0, "the undisturbed run failed"
    duration = time.monotonic() - begin
    expected, end = (base / "undisturbed.digest").read_text(), max(checkpoints(base / "undisturbed"))
    print(f"undisturbed run: {duration:.1f} s of training, digest {expected}", flush=True)

    chance, kills, runs, checked = random.Random(options.seed), 0, 0, 0
    hung, damaged, different, slowest, at = 0, 0, 0, 0.0, []
    while kills < options.kills:
        runs += 1
        folder = base / f"run{runs}"
        job = Job(folder, options.epochs, options.every)
        while pids := job.pids():
            if chance.random() < 0.8:
                job.await_training()
            last = kills >= options.kills or end in checkpoints(folder)
            if job.wait(600 if last else chance.uniform(0, duration / 8)) or not all(map(alive, pids)):
                job.wait(LIMIT_SECONDS)  # it is over, or a rank is just leaving
                break
            job.kill(pids[chance.randrange(2)])
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
    print(f"kills: {kills}, in {runs} runs of {options.epochs} epochs; newest checkpoint at the kill: {sorted(at)}")
    print(f"slowest end of all ranks after a kill: {slowest:.2f} s; not gone after 10 s: {hung}")
    print(f"checkpoints checked: {checked}, damaged: {damaged}")
    print(f"completed runs: {runs}, with other bits than the undisturbed run: {different}")
    return int(bool(hung or damaged or different))


if __name__ == "__main__":
    sys.exit(main())
