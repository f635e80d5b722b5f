"""Peak memory of a training step on one CPU core, beside PyTorch eager's.

`python benchmarks/cpu_memory.py`: the models of `cpu_step`. Each side runs in a process of its own, which loads its
libraries and kernels with a step of two samples first. Printed is how much more memory was resident at the peak of two
later steps than after that: parameters, optimizer state, activations, gradients and work memory.
"""

import argparse
import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)

from cpu_step_models import MODELS
from mpi4py import MPI

import taskflow

SIDES = ("taskflow", "torch")


def status(key: str) -> int:
    """A line of /proc/self/status in bytes: VmRSS, what is resident, or VmHWM, the most that was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def forget_peak() -> None:
    """Let VmHWM begin anew (Linux: proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Return freed memory to the system, which the C library else keeps."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def training_step(name: str, side: str, batch: int | None = None) -> Callable[[], object]:
    """A step of one side."""
    graph = MODELS[name].graph(batch)
    feeds = MODELS[name].feeds(graph)
    if side == "torch":
        import cpu_step_torch

        cpu_step_torch.torch.set_num_threads(1)
        return cpu_step_torch.step(name, None, feeds, MPI.COMM_SELF)
    machine = taskflow.MachineModel.local()
    executor = taskflow.Executor(
        taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
    )
    return lambda: executor(feeds)


def peak_bytes(name: str, side: str) -> int:
    """Memory that a step adds at its peak."""
    step = training_step(name, side, batch=2)
    step()
    del step
    give_back()
    before = status("VmRSS")
    step = training_step(name, side)
    step()
    give_back()
    forget_peak()
    for _ in range(2):
        step()
    return status("VmHWM") - before


def measure(name: str, side: str) -> float:
    """MB of one side, in a process of its own."""
    command = [sys.executable, __file__, "--models", name, "--side", side]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1e6


def main() -> None:
    """Print a line per model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--side", choices=SIDES, help="measure this side here and print bytes")
    options = parser.parse_args()
    if options.side:
        print(peak_bytes(options.models[0], options.side))
        return
    print(f"{'model':8s} {'taskflow MB':>12s} {'torch MB':>10s} {'ratio':>6s}")
    for name in options.models:
        ours, theirs = (measure(name, side) for side in SIDES)
        print(f"{name:8s} {ours:12.1f} {theirs:10.1f} {ours / theirs:6.2f}", flush=True)


if __name__ == "__main__":
    main()
