"""Whole training steps on CPU cores, one thread a process, beside PyTorch eager in the same run.

`python benchmarks/cpu_step.py`: one process, one thread. `mpirun -n 2 python benchmarks/cpu_step.py`: two ranks of one
thread each, data parallel with the same global batch, beside PyTorch's DistributedDataParallel (gloo) in the same
processes. PyTorch is optional: without it the script prints its own times only. Settings of the environment that pin a
library to an older processor are dropped, on both sides.

A step is forward, backward and an SGD update with momentum, in float32. Systems take turns in every round; a round's
time is the median of its steps on the slowest rank, a ratio is the median over the rounds of the ratios within a round.
"""

import argparse
import os
import time
from collections.abc import Callable

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
os.environ.update(dict.fromkeys(THREADS, "1"))  # before NumPy is imported
for setting in PINNED:
    os.environ.pop(setting, None)

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

import ops  # noqa: E402
import taskflow  # noqa: E402

try:
    import cpu_step_torch
except ImportError:
    cpu_step_torch = None

COMM = MPI.COMM_WORLD
BATCH = {"mlp": 256, "cnn": 32}
SHAPE = {"mlp": (784,), "cnn": (3, 32, 32)}
RATES = {"lr": 0.01, "momentum": 0.9}


def build(model: str) -> taskflow.Graph:
    """The training graph: MLP 784-4096-4096-10, or a VGG-like CNN of six convolutions on 32x32 images."""
    graph = taskflow.Graph()
    h, t = graph.input("x", (BATCH[model], *SHAPE[model])), graph.input("t", (BATCH[model],), "int32")
    if model == "mlp":
        for k in (1, 2):
            h = ops.relu(ops.linear(h, 4096, name=f"fc{k}"), name=f"relu{k}")
    else:
        for block, channels in enumerate((64, 128, 256), 1):
            for k in (1, 2):
                h = ops.conv2d(h, channels, 3, padding=1, name=f"conv{block}{k}")
                h = ops.relu(h, name=f"relu{block}{k}")
            h = ops.max_pool2d(h, 2, name=f"pool{block}")
        h = ops.relu(ops.linear(ops.flatten(h, name="flat"), 256, name="fc1"), name="relu1")
    ops.sgd(ops.softmax_cross_entropy(ops.linear(h, 10, name="fc"), t, name="loss"), **RATES)
    return graph


def operator_shares(timeline: taskflow.Timeline) -> list[tuple[str, float]]:
    """Seconds per operator in one measured step, largest first; what moves a region bears the region's name."""
    graph = timeline.task_graph
    total: dict[str, float] = {}
    for row, seconds in enumerate(np.nan_to_num(timeline.end - timeline.start).tolist()):
        name = str(graph[row]).split(": ", 1)[1].split("[", 1)[0]
        total[name] = total.get(name, 0.0) + seconds
    return sorted(total.items(), key=lambda item: -item[1])


def measure(systems: dict[str, Callable[[], object]], rounds: int, steps: int) -> dict[str, list[float]]:
    """Per system the median step of every round in seconds, on the slowest rank; systems take turns."""
    medians: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(rounds + 1):
        for name, step in systems.items():
            times = []
            for _ in range(steps + 1):
                COMM.Barrier()
                begin = time.perf_counter()
                step()
                times.append(time.perf_counter() - begin)
            if turn:  # the first round warms up, and so does the first step of each turn
                medians[name].append(COMM.allreduce(float(np.median(times[1:])), MPI.MAX))
    return medians


def report(model: str, medians: dict[str, list[float]], losses: dict[str, float]) -> None:
    """The table of one model."""
    print(
        f"{model}: batch {BATCH[model]}, {COMM.size} process(es) of one thread, medians of {len(medians['taskflow'])}"
    )
    ours = np.array(medians["taskflow"])
    for name, seconds in medians.items():
        ratios = ours / np.array(seconds)
        spread = f"{np.median(ratios):6.2f}  ({ratios.min():.2f} to {ratios.max():.2f})" if name != "taskflow" else ""
        print(f"  {name:24s} {np.median(seconds) * 1e3:9.1f} ms  loss {losses[name]:.6f}  taskflow/it {spread}")
    print(flush=True)


def main() -> None:
    """Print a table per model, and the share of every operator in a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=BATCH, default=list(BATCH))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--top", type=int, default=12, help="operators to list")
    options = parser.parse_args()
    if cpu_step_torch is None and COMM.rank == 0:
        print("PyTorch is not installed: no ratios")
    for model in options.models:
        graph, machine = build(model), taskflow.MachineModel.local(COMM.size)
        task_graph = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
        random = np.random.default_rng(0)
        feeds = {
            "x": random.standard_normal((BATCH[model], *SHAPE[model]), np.float32),
            "t": random.integers(0, 10, BATCH[model]).astype(np.int32),
        }
        executor = taskflow.Executor(task_graph, seed=0)
        systems: dict[str, Callable[[], object]] = {"taskflow": lambda e=executor, f=feeds: e(f)["loss"]}
        if cpu_step_torch is not None:
            weights = [executor.read(region.name) for region in graph.parameters]
            systems |= cpu_step_torch.steps(model, weights, feeds, RATES, COMM)
        losses = {n: COMM.allreduce(float(step())) / COMM.size for n, step in systems.items()}  # of equal weights
        medians = measure(systems, options.rounds, options.steps)
        if COMM.rank == 0:
            report(model, medians, losses)
            shares = operator_shares(executor.timeline)
            for name, seconds in shares[: options.top]:
                print(f"    {name:28s} {seconds * 1e3:8.2f} ms {seconds / executor.seconds:6.1%}")
            rest = executor.seconds - sum(seconds for _, seconds in shares[: options.top])
            print(f"    {'the rest':28s} {rest * 1e3:8.2f} ms\n", flush=True)
        executor.close()


if __name__ == "__main__":
    main()
