"""Everything that is asked of the CUDA backend, measured on one GPU by two commands of less than ten minutes each.

`python benchmarks/gpu.py --parts speed` and `--parts numbers` run all parts and print their tables; without `--parts`
one follows the other. `--parts gemm ranks` runs some, `--out FILE` writes what was printed, too. Every part is a
process of its own with a time limit: one that fails or hangs says so, and the others go on. PyTorch is optional;
without it our side is timed alone. `--fake` runs all parts on a fake device of NumPy with tiny models, to see that they
work: its figures mean nothing. `--estimate` needs no GPU either: what each step launches, by real CuPy on a stub of
CUDA (`gpu_launches`), beside PyTorch's, eager and compiled (`gpu_inductor`); nor does `--fusion`: what fusion changes.

A line of a table ends with what is asked for and `yes` or `NO`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import gpu_cudnn
import gpu_models
import gpu_nccl
import numpy as np
from gpu_models import CASES, CURVES, REFERENCES, TINY_REFERENCES, Case
from gpu_setting import Setting, find_torch, lines_of, say, verdict

import taskflow
from taskflow import CostModel, Executor, Graph, MachineModel, lower
from taskflow.backend.timing import DeviceClock
from taskflow.comm.transport import connect
from taskflow.cost.measure import measure_machine
from taskflow.cost.measure_gpu import measure_host_link, product_seconds

Array = np.ndarray[Any, np.dtype[Any]]

RANKS, RANKS_SECONDS = 2, 45.0
STEPS_SECONDS = {"mlp": 80, "cnn": 100, "gpt": 110, "dlrm": 60}  # torch.compile takes most of them
CARRIERS = ("shared", "messages", "nccl")
HOST_SECONDS, GEMM_SHARE, HIDDEN_SHARE, PREDICTED_ERROR, COMPILED_RATIO = 50e-6, 0.9, 0.95, 0.1, 1.1
FLOAT32_ERROR = 1e-4


# -- parts -------------------------------------------------------------------------------------------------------------


def facts(setting: Setting) -> None:
    """The GPU: its own account, measured rates, what libraries there are."""
    machine, backend = setting.machine(), setting.backend()
    gpu = backend.rank_gpu(0)
    free, total = backend.memory(0)
    say(
        f"{backend.name(0)}, GPU {gpu.gpu}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free, NCCL {gpu.library}"
    )
    if setting.is_fake:
        return
    device = measure_machine(machine, backend).devices[0]
    rates = {"float32": device.flops_per_second, **device.rates}
    say(
        "products, Tflop/s: "
        + ", ".join(f"{name} {rate / 1e12:.1f}" for name, rate in rates.items())
    )
    say(
        f"memory {device.memory_bandwidth / 1e9:.0f} GB/s, launch in a graph {device.overhead_seconds * 1e6:.2f} us"
    )
    link = measure_host_link(backend)
    say(
        f"host to GPU {link.to_device_bandwidth / 1e9:.1f} GB/s after {link.to_device_seconds * 1e6:.1f} us"
    )
    say(
        f"GPU to host {link.to_host_bandwidth / 1e9:.1f} GB/s after {link.to_host_seconds * 1e6:.1f} us"
    )


def correctness(setting: Setting, steps: int = 3) -> None:
    """Losses and parameters after three steps in float32, against NumPy in float64."""
    say(f"{'model':10s} {'largest error of a parameter':>30s} {'of a loss':>10s}")
    for name, sizes in (TINY_REFERENCES if setting.is_fake else REFERENCES).items():
        graph, feeds = gpu_models.reference(name, sizes, "float32")
        wide, wide_feeds = gpu_models.reference(name, sizes, "float64")
        plain = MachineModel.uniform(1)
        expected = Executor(lower(wide, taskflow.single_device(wide, plain), plain), allow_nan=True)
        with setting.executor(graph) as step:
            for parameter in expected.persistent:  # the same numbers, which float32 can hold
                expected.write(parameter, step.read(parameter).astype(np.float64))
            wide_feeds = {k: feeds[k].astype(v.dtype) for k, v in wide_feeds.items()}
            losses = [
                error_of(step(feeds)["loss"], expected(wide_feeds)["loss"]) for _ in range(steps)
            ]
            errors = {n: error_of(step.read(n), expected.read(n)) for n in step.persistent}
        worst = max(errors, key=lambda n: errors[n])
        end = verdict(max(errors[worst], *losses) <= FLOAT32_ERROR, f"{FLOAT32_ERROR:.0e}")
        say(f"{name:10s} {errors[worst]:9.1e} {worst:>20s} {max(losses):10.1e}  {end}")


def error_of(found: Array, expected: Array) -> float:
    """Largest difference over the largest number, or over 1."""
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    return float(np.abs(found.astype(np.float64) - expected).max(initial=0.0)) / scale


def curves(setting: Setting, steps: int = 150) -> None:
    """Training curves in bfloat16 and float32, and in float32 from another seed: how much curves differ anyway."""
    say(
        f"{'model':22s} {'precision':10s} {'seed':>4s}  mean losses of six parts of {setting.count(steps)} steps"
    )
    small = {"batch": 2} if setting.is_fake else {}
    for name, (build, feeds) in CURVES.items():
        ends: dict[tuple[str, int], float] = {}
        for precision, seed in (("float32", 0), ("float32", 1), ("bfloat16", 0)):
            graph, batches = build(precision, **small), partial(feeds, **small)
            losses = curve(setting, graph, batches, setting.count(steps), seed)
            parts = [float(np.mean(part)) for part in np.array_split(losses, 6) if len(part)]
            ends[precision, seed] = parts[-1]
            say(
                f"{name:22s} {precision:10s} {seed:4d}  "
                + " ".join(f"{loss:8.4f}" for loss in parts)
            )
        noise = abs(ends["float32", 0] - ends["float32", 1])
        apart = abs(ends["bfloat16", 0] - ends["float32", 0])
        say(
            f"{name:22s} ends {apart:.4f} apart; two seeds {noise:.4f}  {verdict(apart <= 2 * noise + 0.01, 'noise')}"
        )


def curve(
    setting: Setting, graph: Graph, feeds: Callable[[int], dict[str, Array]], steps: int, seed: int
) -> list[float]:
    """The losses of a training run."""
    with setting.executor(graph, seed=seed) as step:
        return [float(step(feeds(k))["loss"]) for k in range(steps)]


def gemm(setting: Setting) -> None:
    """Large products beside PyTorch's."""
    n = 32 if setting.is_fake else 8192
    torch_side = find_torch(setting)
    for dtype in ("bfloat16", "float16", "float32", "tf32"):
        backend = setting.backend()
        try:
            rate = 2.0 * n**3 / product_seconds(DeviceClock(backend, 0), backend, n, dtype)
        except (TypeError, KeyError, ModuleNotFoundError) as error:
            say(f"{n}^3 {dtype:9s} is not possible: {error}")
            continue
        line = f"{n}^3 {dtype:9s} {rate / 1e12:7.1f} Tflop/s"
        if torch_side:
            theirs = torch_side.product_rate(n, dtype)
            line += f", torch {theirs / 1e12:7.1f}: {rate / theirs:4.0%}  "
            line += verdict(rate >= GEMM_SHARE * theirs, f"{GEMM_SHARE:.0%}")
        say(line)


def cudnn(setting: Setting) -> None:
    """Convolutions of the CNN and attention of GPT by cuDNN, beside what runs where it is not installed."""
    machine, both = setting.machine(), [setting.backend(), setting.backend()]
    both[1].uses_cudnn = False
    for piece in gpu_cudnn.pieces(setting.is_fake):
        say(f"{piece.about}, us of an operator: by cuDNN, by own kernels")
        theirs, ours = (gpu_cudnn.seconds_of(piece, machine, backend) for backend in both)
        for name in theirs:
            say(
                f"  {name:28s} {theirs[name] * 1e6:9.1f} {ours[name] * 1e6:9.1f} {ours[name] / theirs[name]:6.2f}x"
            )
        total, other = sum(theirs.values()), sum(ours.values())
        say(f"  {'all':28s} {total * 1e6:9.1f} {other * 1e6:9.1f} {other / total:6.2f}x")


def steps_of(setting: Setting, name: str) -> None:
    """Time of a training step beside PyTorch eager and compiled."""
    case = setting.cases()[name]
    for precision in case.precisions:
        graph = case.graph(precision)
        feeds = case.feeds(graph)
        ours = step_seconds(setting, graph, feeds)
        say(f"{name}, {case.model.about}, batch {case.batch}, {precision}")
        say(
            f"  {'taskflow':34s} {np.median(ours) * 1e3:9.3f} ms ({min(ours) * 1e3:.3f} to {max(ours) * 1e3:.3f})"
        )
        beside_torch(setting, name, case, precision, feeds, float(np.median(ours)))


def step_seconds(
    setting: Setting, graph: Graph, feeds: dict[str, Array], steps: int = 40
) -> list[float]:
    """Seconds of single steps; while one runs, the next batch is copied."""
    with setting.executor(graph) as step:
        step(feeds, prefetch=feeds)
        for _ in range(4):
            step(prefetch=feeds)
        found = []
        for _ in range(setting.count(steps)):
            begin = time.perf_counter()
            step(prefetch=feeds)
            found.append(time.perf_counter() - begin)
    return found


def beside_torch(
    setting: Setting, name: str, case: Case, precision: str, feeds: dict[str, Array], ours: float
) -> None:
    """PyTorch's variants, one line each; one that fails is a line, too."""
    torch_side = find_torch(setting)
    for variant, options in (torch_side.variants(name) if torch_side else {}).items():
        try:
            step = torch_side.make_step(name, case, feeds, precision, **options)
            seconds = float(np.median(torch_side.seconds_of(step, 20, 5)))
        except Exception as error:
            say(
                f"  {variant:34s} fails: {type(error).__name__}: {str(error).splitlines()[0][:120]}"
            )
            continue
        wanted = {"torch eager": case.target, "torch.compile": COMPILED_RATIO}.get(variant)
        end = verdict(ours <= wanted * seconds, f"{wanted:.2f}") if wanted else ""
        say(f"  {variant:34s} {seconds * 1e3:9.3f} ms, taskflow/it {ours / seconds:5.2f}  {end}")


def host(setting: Setting) -> None:
    """What the host does in a replayed step: from its call until all is launched."""
    for name, case in setting.cases().items():
        graph = case.graph()
        feeds = case.feeds(graph)
        with setting.executor(graph) as step:
            step(feeds, prefetch=feeds)
            issued = []
            for _ in range(setting.count(30)):
                step(prefetch=feeds)
                issued.append(replay_of(step).issued_seconds)
            kinds = parts_of(step)
        seconds = float(np.median(issued[2:] or issued))
        line = f"{name:10s} {seconds * 1e6:8.1f} us, {kinds.count(True)} graphs and {kinds.count(False)} issued parts"
        say(f"{line}  {verdict(seconds <= HOST_SECONDS, f'{HOST_SECONDS * 1e6:.0f} us')}")


def overlap(setting: Setting) -> None:
    """How much of the next batch's way to the GPU is hidden behind a step: alone, before a step, and during one."""
    case = setting.cases()["cnn"]
    graph = case.graph()
    feeds = case.feeds(graph)
    with setting.executor(graph) as step:
        step(feeds)
        step(feeds)
        before = median_seconds(lambda: step(feeds), setting.count(40))
        step(feeds, prefetch=feeds)
        during = median_seconds(lambda: step(prefetch=feeds), setting.count(40))
        step()
        without = median_seconds(replay_of(step).repeat, setting.count(40))
    hidden = 1 - (during - without) / max(before - without, 1e-9)
    say(
        f"step {without * 1e3:.3f} ms, with its batch before it {before * 1e3:.3f}, during it {during * 1e3:.3f}"
    )
    say(
        f"hidden {hidden:.0%} of {(before - without) * 1e6:.0f} us  {verdict(hidden >= HIDDEN_SHARE, '95%')}"
    )


def replay_of(step: Executor) -> Any:
    """What replays the steps of an executor."""
    assert step._streamed is not None
    return step._streamed.replay


def parts_of(step: Executor) -> list[bool]:
    """Whether each part of a step is a graph."""
    return [segment.is_captured for segment in replay_of(step).segments]


def median_seconds(call: Callable[[], object], count: int) -> float:
    """Median wall-clock seconds of a call."""
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return float(np.median(found))


def predict(setting: Setting) -> None:
    """Predicted against measured step time, from kernels that were timed one by one."""
    machine, backend, errors = setting.machine(), setting.backend(), []
    costs = CostModel.measured(machine, backend=backend)
    say(f"{'model':10s} {'predicted ms':>12s} {'measured ms':>12s} {'error':>7s}")
    for name in [n for n in setting.cases() if n != "tiny mlp"]:
        case = setting.cases()[name]
        graph = case.graph(case.precisions[0])
        task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
        predicted = taskflow.simulate(task_graph, costs).seconds
        measured = float(np.median(step_seconds(setting, graph, case.feeds(graph), 20)))
        errors.append(abs(predicted / measured - 1))
        say(
            f"{name:10s} {predicted * 1e3:12.3f} {measured * 1e3:12.3f} {predicted / measured - 1:+7.1%}"
        )
    median = float(np.median(errors))
    say(
        f"median error {median:.1%} of {len(errors)} models  {verdict(median <= PREDICTED_ERROR, '10%')}"
    )


def ranks(setting: Setting) -> None:
    """Two ranks on one GPU train with the numbers of one device, by every carrier."""
    mpirun = Path(sys.executable).with_name("mpirun")
    command = [
        str(mpirun) if mpirun.exists() else "mpirun",
        "-n",
        str(RANKS),
        sys.executable,
        __file__,
        "--part",
    ]
    environment = os.environ | taskflow_settings()
    for transport in CARRIERS:
        part = [*command, f"rank {transport}", *(["--fake"] if setting.is_fake else [])]
        for line in lines_of(part, RANKS_SECONDS, environment):
            say(line)


def taskflow_settings() -> dict[str, str]:
    """What mpirun is to find in its environment."""
    from taskflow.comm import launch

    return launch.settings()


def rank_of(setting: Setting, transport: str, steps: int = 4) -> None:
    """One rank of `ranks`: data parallel and model parallel, beside one device on the CPU."""
    size = connect().size
    machine, plain = setting.machine(size), MachineModel.uniform(size)
    name, sizes = next(iter((TINY_REFERENCES if setting.is_fake else REFERENCES).items()))
    graph, feeds = gpu_models.reference(name, sizes, "float32")
    for rule in (taskflow.data_parallel, taskflow.model_parallel):
        expected = Executor(
            lower(graph, taskflow.single_device(graph, plain), plain), allow_nan=True
        )
        task_graph, begin = lower(graph, rule(graph, machine), machine), time.perf_counter()
        with Executor(
            task_graph, backend=setting.backend(), transport=transport, record=False
        ) as step:
            ready = time.perf_counter() - begin
            losses = [error_of(step(feeds)["loss"], expected(feeds)["loss"]) for _ in range(steps)]
            seconds = median_seconds(lambda: step(feeds), setting.count(5))
            for _ in range(setting.count(5)):
                expected(feeds)
            error = max(
                [*losses, *(error_of(step.read(n), expected.read(n)) for n in step.persistent)]
            )
            kinds = parts_of(step)
        if connect().rank == 0:
            text = f"{transport:9s} {rule.__name__:15s} {size} ranks: error {error:.1e}, ready in {ready:.1f} s, step "
            text += f"{seconds * 1e3:.2f} ms, {kinds.count(True)} graphs and {kinds.count(False)} issued parts"
            say(f"{text}  {verdict(error <= FLOAT32_ERROR, f'{FLOAT32_ERROR:.0e}')}")


def nccl(setting: Setting) -> None:
    """NCCL with one rank: a sum over it, captured in a graph."""
    backend, count = setting.backend(), 64 if setting.is_fake else 1 << 24
    if not setting.is_fake and not backend.rank_gpu(0).library:
        say("NCCL is not installed")
        return
    is_right, seconds = gpu_nccl.all_reduce(backend, count)
    say(
        f"all_reduce of {count} float32 in a graph, one rank: {seconds * 1e6:.1f} us  {verdict(is_right, 'its bits')}"
    )


PARTS: dict[
    str, tuple[Callable[[Setting], None], float]
] = {  # and the seconds that each may take at least
    "facts": (facts, 40),
    "correctness": (correctness, 160),  # numba compiles for a minute or two on a new machine
    "gemm": (gemm, 40),
    "cudnn": (cudnn, 60),
    **{
        f"steps {name}": ((lambda s, n=name: steps_of(s, n)), STEPS_SECONDS.get(name, 40))
        for name in CASES
    },
    "host": (host, 100),
    "overlap": (overlap, 30),
    "predict": (predict, 60),
    "ranks": (ranks, 140),
    "nccl": (nccl, 20),
    "curves": (curves, 60),
}
GROUPS = {  # each is one command; first what matters most
    "speed": ("host", "gemm", *(f"steps {name}" for name in CASES)),
    "numbers": ("facts", "correctness", "ranks", "nccl", "predict", "overlap", "curves", "cudnn"),
}
WHOLE_SECONDS = 570.0


# -- running parts -----------------------------------------------------------------------------------------------------


def run_part(name: str, setting: Setting) -> None:
    """Run one part in this process."""
    if name.startswith("rank "):
        rank_of(setting, name.removeprefix("rank "))
    else:
        PARTS[name][0](setting)


def run_parts(names: Sequence[str], setting: Setting, keep: Callable[[str], object]) -> None:
    """Run parts one after the other, each in a process; the time that one leaves is for the others."""
    begin = time.perf_counter()
    for k, name in enumerate(names):
        left = WHOLE_SECONDS - (time.perf_counter() - begin)
        if left < 5:
            keep(f"\n== {name}: not run, the ten minutes are over")
            continue
        keep(f"\n== {name}")
        part_begin = time.perf_counter()
        command = [
            sys.executable,
            __file__,
            "--part",
            name,
            *(["--fake"] if setting.is_fake else []),
        ]
        spare = max(left - sum(PARTS[n][1] for n in names[k:]), 0)
        for line in lines_of(command, min(PARTS[name][1] + spare, left)):
            keep(line)
        keep(f"   ({time.perf_counter() - part_begin:.0f} s)")


def estimate(*options: str) -> None:
    """Run `gpu_launches` in the environment of the stub."""
    from tests.stub import build

    if reason := build.why_not():
        sys.exit(f"--estimate: the stub cannot be built: {reason}")
    command = [sys.executable, str(Path(__file__).with_name("gpu_launches.py")), *options]
    sys.exit(subprocess.run(command, env=build.environment()).returncode)


def commands_of(wanted: Sequence[str] | None) -> list[list[str]]:
    """Names of the parts of each ten minutes: of the groups and parts that are wanted, or all."""
    if wanted is None:
        return [list(names) for names in GROUPS.values()]
    chosen = {part for name in wanted for part in GROUPS.get(name, (name,))}
    return [[part for names in GROUPS.values() for part in names if part in chosen]]


def main(arguments: list[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = [*GROUPS, *PARTS]
    parser.add_argument(
        "--parts", nargs="+", choices=choices, metavar="PART", help=f"of {', '.join(choices)}"
    )
    parser.add_argument("--part", help="run one part in this process")
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="what steps launch, from a stub of CUDA: no GPU needed",
    )
    parser.add_argument(
        "--fusion", action="store_true", help="the same of models without and with taskflow.fuse"
    )
    parser.add_argument("--out", type=Path, help="a file that gets what is printed")
    parser.add_argument(
        "--fake", action="store_true", help="a fake device and tiny models: a trial"
    )
    options = parser.parse_args(arguments)
    setting = Setting(options.fake)
    if options.estimate or options.fusion:
        estimate("--fusion" if options.fusion else "--torch")
        return
    if options.part:
        run_part(options.part, setting)
        return
    file = options.out.open("w") if options.out else None

    def keep(line: str) -> None:
        say(line)
        if file:
            file.write(line + "\n")
            file.flush()

    for names in commands_of(options.parts):
        run_parts(names, setting, keep)


if __name__ == "__main__":
    main()
