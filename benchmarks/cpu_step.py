"""Whole training steps on CPU cores beside PyTorch eager in the same run.

`python benchmarks/cpu_step.py`: one process of one thread; `--threads 2`: of two. `mpirun -n 2 python
benchmarks/cpu_step.py`: two ranks of one thread each, data parallel with the same global batch, beside PyTorch's
DistributedDataParallel (gloo) in the same processes, and beside one rank alone for the parallel efficiency. PyTorch is
optional: without it the script prints its own times only. `--models` runs a part; with `--keep FILE` the ratios of
several runs are collected there and summed up. Settings of the environment that pin a library to an older processor
are dropped, on both sides.

The last lines give the ratios to plain PyTorch and to the fastest of its own variants: fused optimizer, channels-last,
sparse gradients of tables, and with `--compile` torch.compile.

A step is forward, backward and the update, in float32. Systems take turns in every round; a round's time is the median
of its steps on the slowest rank, a ratio is the median over the rounds of the ratios within a round.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
os.environ.update(dict.fromkeys(LIMITS, THREADS))  # before NumPy is imported
for setting in PINNED:
    os.environ.pop(setting, None)

import numpy as np  # noqa: E402
from cpu_step_models import MODELS, Array  # noqa: E402
from mpi4py import MPI  # noqa: E402

import taskflow  # noqa: E402

try:
    import cpu_step_torch
except ImportError:
    cpu_step_torch = None

COMM = MPI.COMM_WORLD
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Step = Callable[[], float]


def executors(name: str) -> dict[str, taskflow.Executor]:
    """Data parallel over all ranks; with several, also on one rank alone."""
    graph, machine = MODELS[name].graph(), taskflow.MachineModel.local(COMM.size)
    strategies = {"taskflow": taskflow.data_parallel(graph, machine)}
    if COMM.size > 1:
        strategies["taskflow on one rank"] = taskflow.single_device(graph, machine)
    return {
        key: taskflow.Executor(taskflow.lower(graph, s, machine), seed=0, record=True)
        for key, s in strategies.items()
    }


def operator_shares(timeline: taskflow.Timeline) -> list[tuple[str, float]]:
    """Seconds per operator in one measured step, largest first; what moves a region bears the region's name."""
    graph = timeline.task_graph
    total: dict[str, float] = {}
    for row, seconds in enumerate(np.nan_to_num(timeline.end - timeline.start).tolist()):
        name = str(graph[row]).split(": ", 1)[1].split("[", 1)[0]
        total[name] = total.get(name, 0.0) + seconds
    return sorted(total.items(), key=lambda item: -item[1])


def measure(
    systems: dict[str, Step], rounds: int, steps: int, clock: Callable[[], float]
) -> dict[str, Array]:
    """Per system the median step of every round in seconds, on the slowest rank; systems take turns."""
    medians: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(rounds + 1):
        for name, step in systems.items():
            times = []
            for _ in range(steps + 1):
                COMM.Barrier()
                begin = clock()
                step()
                times.append(clock() - begin)
            if turn:  # the first round warms up, and so does the first step of each turn
                medians[name].append(COMM.allreduce(float(np.median(times[1:])), MPI.MAX))
    return {name: np.array(seconds) for name, seconds in medians.items()}


def report(
    name: str, medians: dict[str, Array], losses: dict[str, float], clock: str
) -> dict[str, float]:
    """Print the table of one model; the ratio to every other system."""
    model, ours = MODELS[name], medians["taskflow"]
    print(
        f"{name} ({model.about}): batch {model.batch}, {COMM.size} process(es) of {THREADS} thread(s), "
        f"medians of {len(ours)} by the {clock} clock"
    )
    found = {}
    for system, seconds in medians.items():
        ratios = ours / seconds
        found[system] = float(np.median(ratios))
        spread = (
            f"{found[system]:6.2f}  ({ratios.min():.2f} to {ratios.max():.2f})"
            if system != "taskflow"
            else ""
        )
        print(
            f"  {system:24s} {np.median(seconds) * 1e3:9.1f} ms  loss {losses[system]:.6f}  taskflow/it {spread}"
        )
    if "taskflow on one rank" in found:
        print(
            f"  parallel efficiency of {COMM.size} ranks: {1 / found['taskflow on one rank'] / COMM.size:.0%}"
        )
    return found


def report_shares(executor: taskflow.Executor, top: int) -> None:
    """Print where the last step went."""
    shares = operator_shares(executor.timeline)
    for name, seconds in shares[:top]:
        print(f"    {name:28s} {seconds * 1e3:8.2f} ms {seconds / executor.seconds:6.1%}")
    rest = executor.seconds - sum(seconds for _, seconds in shares[:top])
    print(f"    {'the rest':28s} {rest * 1e3:8.2f} ms\n", flush=True)


def run(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Measure one model."""
    ours = executors(name)
    graph = MODELS[name].graph()
    feeds = MODELS[name].feeds(graph)
    systems: dict[str, Step] = {key: lambda e=e: float(e(feeds)["loss"]) for key, e in ours.items()}
    if cpu_step_torch is not None:
        weights = {region.name: ours["taskflow"].read(region.name) for region in graph.parameters}
        systems |= cpu_step_torch.steps(name, weights, feeds, COMM, int(THREADS), options.compile)
    losses = first_losses(systems)
    medians = measure(systems, options.rounds, options.steps, CLOCKS[options.clock])
    found: dict[str, float] = {}
    if COMM.rank == 0:
        found = report(name, medians, losses, options.clock)
        report_shares(ours["taskflow"], options.top)
    for executor in ours.values():
        executor.close()
    return found


def first_losses(systems: dict[str, Step]) -> dict[str, float]:
    """Losses of equal weights; torch's ranks give those of their parts. What cannot be compiled here is taken out."""
    losses = {}
    for key, step in list(systems.items()):
        try:
            losses[key] = COMM.allreduce(step()) / COMM.size
        except Exception as error:
            if key != "torch.compile" or COMM.size > 1:  # other ranks would wait
                raise
            print(f"{key} does not work here: {type(error).__name__}: {str(error).splitlines()[0]}")
            del systems[key]
    return losses


def summarize(found: dict[str, dict[str, float]]) -> None:
    """The ratios of all models to plain PyTorch, to its fastest variant, and to one rank; their geometric means."""
    plain = {name: systems["torch"] for name, systems in found.items() if "torch" in systems}
    best = {
        name: max(r for key, r in found[name].items() if key.startswith("torch")) for name in plain
    }
    alone = {
        name: systems["taskflow on one rank"] for name, systems in found.items() if COMM.size > 1
    }
    for other, ratios in (("torch", plain), ("torch's fastest variant", best), ("one rank", alone)):
        if ratios:
            mean, worst = np.exp(np.mean(np.log(list(ratios.values())))), max(ratios.values())
            each = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
            print(
                f"{COMM.size} x {THREADS}, taskflow/{other}: {each}; geometric mean {mean:.2f}, worst {worst:.2f}"
            )


def libraries() -> str:
    """What multiplies matrices on both sides, and for which instructions."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        found = ["unknown (pip install threadpoolctl)"]
    else:
        blas = [each for each in threadpool_info() if each["user_api"] == "blas"]
        found = [
            f"{each['internal_api']} {each['version']} for {each['architecture']}" for each in blas
        ]
    other = "" if cpu_step_torch is None else f"; PyTorch by {cpu_step_torch.library()}"
    return f"NumPy {np.__version__} by {', '.join(found)}{other}"


def main() -> None:
    """Print a table per model, the share of every operator in a step, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument(
        "--threads", type=int, default=1, help="of each process; read before NumPy is imported"
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: of a process of one thread, on busy cores",
    )
    parser.add_argument("--compile", action="store_true", help="torch.compile too, where it works")
    parser.add_argument("--top", type=int, default=12, help="operators to list")
    parser.add_argument(
        "--keep", type=Path, help="a file of ratios, to which those of this run are added"
    )
    options = parser.parse_args()
    if cpu_step_torch is None and COMM.rank == 0:
        print("PyTorch is not installed: no ratios")
    if COMM.rank == 0:
        print(libraries())
    key = f"{COMM.size}x{THREADS}"
    kept = json.loads(options.keep.read_text()) if options.keep and options.keep.exists() else {}
    for name in options.models:
        kept.setdefault(key, {})[name] = run(name, options)
    if COMM.rank == 0:
        summarize(kept[key])
        if options.keep:
            options.keep.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
