"""Two that write into one folder, and one that reads beside a writer: `python benchmarks/checkpoints.py`.

Races: two processes save checkpoints of 144 MB into one folder at the same moment, again and again; every save must
either succeed or be refused by the name of the other, and no checkpoint that is there may be damaged. Readers: one
process saves with `keep=1` as fast as it can, another loads the newest; every load must succeed. Exits with 1 if
anything was not so.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import taskflow
from taskflow import checkpoint
from taskflow.checkpoint.manifest import check_all, checkpoints


def executor(size_bytes: int) -> taskflow.Executor:
    """One whose persistent regions have that size."""
    graph, machine = taskflow.Graph(), taskflow.MachineModel.uniform(1)
    for k in range(4):
        w = graph.parameter(f"w{k}", (size_bytes // 16,))
        graph.launch(f"add{k}", "a -> a", [w], kernel=lambda ctx, w, y: np.copyto(y, w))
    return taskflow.Executor(taskflow.lower(graph, taskflow.single_device(graph, machine), machine))


def save(folder: Path, size_bytes: int, count: int, keep: int | None) -> None:
    """Save `count` steps as soon as a file `go` is there; say what became of each."""
    step = executor(size_bytes)
    Path(f"{folder}.ready.{os.getpid()}").touch()
    while not Path(f"{folder}.go").exists():
        time.sleep(0.001)
    for number in range(count):
        newest = max(checkpoints(folder), default=-1)
        step.continue_from(max(newest, number) + 1 if keep else number, 0)
        for k in range(4):
            step.write(f"w{k}", np.full(size_bytes // 16, number, np.float32))
        try:
            checkpoint.save(step, folder, keep)
            print("saved", flush=True)
        except ValueError as error:
            known = ("belongs to the run of", "already holds step")
            print(
                "refused" if any(text in str(error) for text in known) else repr(error), flush=True
            )


def start(folder: Path, size_bytes: int, count: int, keep: int = 0) -> subprocess.Popen[str]:
    """A process that saves."""
    command = [
        sys.executable,
        __file__,
        "--save",
        str(folder),
        str(size_bytes),
        str(count),
        str(keep),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def go(folder: Path, processes: int) -> None:
    """Let the processes begin at the same moment."""
    while len(list(folder.parent.glob(f"{folder.name}.ready.*"))) < processes:
        time.sleep(0.01)
    Path(f"{folder}.go").touch()


def race(base: Path, races: int, size_bytes: int) -> int:
    """Two saves at once, `races` times; the number of damaged checkpoints and of odd ends."""
    seen: Counter[str] = Counter()
    damaged = left = 0
    begin = time.monotonic()
    for number in range(races):
        folder = base / f"race{number}"
        both = [start(folder, size_bytes, 2) for _ in range(2)]
        go(folder, 2)
        for process in both:
            seen.update(process.communicate()[0].split("\n")[:-1])
        for path in checkpoints(folder).values():
            try:
                check_all(path)
            except ValueError as error:
                damaged += 1
                print(error)
        left += len([p for p in folder.iterdir() if not p.name.startswith("step-")])
        subprocess.run(["rm", "-r", folder], check=True)
    odd = sum(count for what, count in seen.items() if what not in ("saved", "refused"))
    print(
        f"{races} races of two saves of {size_bytes / 1e6:.0f} MB: {dict(seen)}, {damaged} damaged checkpoints, "
        f"{left} files left over, {time.monotonic() - begin:.0f} s"
    )
    return damaged + odd + left + (seen["saved"] < races)


def read(base: Path, loads: int, size_bytes: int) -> int:
    """Load beside a writer that keeps one; the number of failures."""
    folder, step = base / "read", executor(size_bytes)
    writer = start(folder, size_bytes, 10**9, keep=1)
    go(folder, 1)
    while checkpoint.latest(folder) is None:
        time.sleep(0.01)
    failed, steps = 0, set()
    for _ in range(loads):
        try:
            steps.add(checkpoint.load(step, folder).steps)
            values = {
                float(v) for k in range(4) for v in (step.read(f"w{k}")[0], step.read(f"w{k}")[-1])
            }
            failed += len(values) != 1
        except (OSError, ValueError) as error:
            failed += 1
            print(error)
    writer.kill()
    writer.wait()
    print(f"{loads} loads of {len(steps)} checkpoints beside a writer with keep=1: {failed} failed")
    return failed


def main() -> int:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--races", type=int, default=20)
    parser.add_argument("--megabytes", type=int, default=144)
    parser.add_argument("--loads", type=int, default=1000)
    parser.add_argument("--save", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.save:
        folder, size_bytes, count, keep = options.save
        save(Path(folder), int(size_bytes), int(count), int(keep) or None)
        return 0
    with tempfile.TemporaryDirectory() as base:
        return int(
            race(Path(base), options.races, options.megabytes * 10**6)
            + read(Path(base), options.loads, 16_000)
            > 0
        )


if __name__ == "__main__":
    sys.exit(main())
