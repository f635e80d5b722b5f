"""This checkout beside an older commit, in one run: `python benchmarks/versions.py --old COMMIT`.

The older commit is checked out by `git worktree` into a temporary folder. Each version runs in a process of its own,
with one thread and a cache of compiled functions of its own (`.cache/versions`); both take turns, and seconds are those
of the processor, since the machine may be shared. Printed are medians of both, and the median of the ratios of a round:

* proposals a second of a walk (`search.py`), for three models on 4, 16 and 64 P100: new / old, more is better;
* seconds of lowering ResNet-101 on 16 P100 and GPT 96 x 1024 on H100 from nothing: new / old, less is better;
* seconds of a search of 600 proposals, when functions are compiled: AlexNet on 4 P100, Inception-v3 on 64, and rows of
  `grids.py`; and the milliseconds of a step of the plan that it finds: new / old, less is better;
* seconds of a training step of the models of `cpu_step.py`: new / old, less is better.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MODELS = ("resnet101", "inception_v3", "alexnet")
STEPS = ("mlp", "vgg", "resnet", "lstm", "gpt", "moe", "dlrm")


# -- in the process of one version -------------------------------------------------------------------------------------


def walk(model: str, devices: str, seconds: str) -> float:
    """Proposals a second of a walk from data parallelism."""
    import search

    import taskflow

    samples, _ = search.CHAINS[model]
    machine = taskflow.MachineModel.preset("p100", nodes=int(devices) // 4)
    graph = search.build(model, batch=samples * int(devices))
    start = taskflow.data_parallel(graph, machine)
    judge = search.walk(
        search.ClockedJudge(graph, machine), search.Space(graph, machine), start, float(seconds)
    )
    return judge.proposals / judge.elapsed


def lower(model: str) -> float:
    """Processor seconds of lowering from nothing."""
    import search

    import taskflow

    if model == "resnet101":
        machine = taskflow.MachineModel.preset("p100", nodes=4)
        graph = search.build(model, batch=1024)
        strategy = taskflow.data_parallel(graph, machine)
    else:
        machine = taskflow.MachineModel.preset("h100", nodes=128)
        graph = search.build("gpt", batch=1024, layers=96)
        strategy = search.staged(graph, machine)
    begin = time.process_time()
    taskflow.lower(graph, strategy, machine)
    return time.process_time() - begin


SEARCHES = (
    ("alexnet", 4),
    ("inception_v3", 64),
    ("GPT_4_x_2048", "8_H100"),
    ("GPT_12_x_768", "16_V100"),
    ("GPT_24_x_2048", "8_H100"),
    ("T5", "16_V100"),
)
FOUND: dict[str, float] = {}  # model -> seconds of a step


def search(model: str, devices: str) -> float:
    """Processor seconds of a search; models and machines of `search.py` and `grids.py`."""
    import grids
    import search as searches

    import taskflow

    if model in searches.CHAINS:
        samples, _ = searches.CHAINS[model]
        machine = taskflow.MachineModel.preset("p100", nodes=int(devices) // 4)
        graph = searches.build(model, batch=samples * int(devices))
    else:
        machine = grids.machine_of(devices.replace("_", " "), 1.0)
        graph = grids.MODELS[model.replace("_", " ")](len(machine.devices))
    begin = time.process_time()
    costs = taskflow.CostModel.analytic(machine)
    FOUND[model] = taskflow.search(graph, machine, costs, proposals=600).seconds
    return time.process_time() - begin


def found(model: str, devices: str) -> float:
    """Milliseconds of a step of the plan that `search` found last."""
    return FOUND[model] * 1e3


EXECUTORS: dict[str, tuple[Any, Any]] = {}  # made at the first step of a model


def step(model: str, count: str) -> float:
    """Median processor seconds of a training step on one device."""
    import cpu_step_models

    import taskflow

    if model not in EXECUTORS:
        graph, machine = cpu_step_models.MODELS[model].graph(), taskflow.MachineModel.local(1)
        rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
        EXECUTORS[model] = (
            taskflow.Executor(rows, seed=0),
            cpu_step_models.MODELS[model].feeds(graph),
        )
    executor, feeds = EXECUTORS[model]
    seconds = []
    for _ in range(int(count) + 1):
        begin = time.process_time()
        executor(feeds)
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds[1:])


PROBES: dict[str, Callable[..., float]] = {
    "walk": walk,
    "lower": lower,
    "search": search,
    "found": found,
    "step": step,
}


def serve(checkout: str) -> None:
    """Answer every line `PROBE ARGUMENTS` of the standard input with a number."""
    sys.path[:0] = [str(Path(checkout, folder)) for folder in (".", "benchmarks", "examples")]
    for line in sys.stdin:
        probe, *arguments = line.split()
        print("=", PROBES[probe](*arguments), flush=True)


# -- in the process of the user ----------------------------------------------------------------------------------------


class Version:
    """The process of one version."""

    def __init__(self, checkout: Path, cache: Path) -> None:
        threads = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
        )
        of_version = {"PYTHONPATH": str(checkout), "NUMBA_CACHE_DIR": str(cache)}
        environment = os.environ | threads | of_version | {"TASKFLOW_COMPILE": "always"}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(checkout)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=environment, cwd=checkout, text=True, **pipes)

    def ask(self, *words: object) -> float:
        """The answer to a probe."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(*words, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("= "):
                return float(line[2:])
        raise RuntimeError(
            f"{' '.join(map(str, words))}: the process ended with {self.process.wait()}"
        )


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """A checkout of a commit, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder, "old")
        subprocess.run(
            ["git", "worktree", "add", "-q", "--detach", checkout, commit], cwd=ROOT, check=True
        )
        try:
            yield checkout
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)


def main() -> None:
    """Print a row for each probe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", help="a commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a walk")
    parser.add_argument("--devices", nargs="*", type=int, default=[4, 16, 64])
    parser.add_argument("--probes", nargs="*", choices=PROBES, default=[*PROBES])
    parser.add_argument("--steps", nargs="*", choices=STEPS, default=[*STEPS])
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    probes: list[tuple[object, ...]] = []
    probes += [
        ("walk", m, d, options.seconds)
        for m in MODELS
        for d in options.devices
        if "walk" in options.probes
    ]
    probes += [("lower", model) for model in ("resnet101", "gpt") if "lower" in options.probes]
    for search_of in SEARCHES if "search" in options.probes else ():
        probes += [("search", *search_of), ("found", *search_of)]
    probes += [("step", model, 9) for model in options.steps if "step" in options.probes]
    with ExitStack() as held:
        checkout = held.enter_context(worktree(options.old))
        caches = ROOT / ".cache" / "versions"
        old, new = Version(checkout, caches / "old"), Version(ROOT, caches / "new")
        print(f"{'probe':32s}{'old':>12s}{'new':>12s}{'new/old':>9s}  spread")
        for probe in probes:
            warm = ("walk", probe[1], probe[2], 1.0) if probe[0] == "walk" else probe
            old.ask(*warm), new.ask(*warm)
            pairs = [(old.ask(*probe), new.ask(*probe)) for _ in range(options.rounds)]
            ratios = [b / a for a, b in pairs]
            first, second = (statistics.median(side) for side in zip(*pairs, strict=True))
            name = " ".join(map(str, probe[:2] if probe[0] in ("lower", "step") else probe[:3]))
            print(
                f"{name:32s}{first:12.4g}{second:12.4g}{statistics.median(ratios):9.3f}"
                f"  {min(ratios):.3f} to {max(ratios):.3f}",
                flush=True,
            )
        for version in (old, new):
            version.process.kill()


if __name__ == "__main__":
    main()
