"""Parts of what is asked of the CUDA backend, each a process: `python benchmarks/gpu.py --part NAME`.

`benchmarks/gpu_minutes.sh` runs them on a GPU that one has for some minutes, and keeps what they say. PyTorch is
optional; without it our side is timed alone. `--fake` runs a part on a fake device of NumPy with tiny models, to see
that it works: its figures mean nothing. Four tables need no GPU, but the stub of CUDA: `--estimate`, what each step
launches (`gpu_launches`), beside PyTorch's, eager and compiled (`gpu_inductor`); `--fusion`, what fusion changes;
`--branches`, where a step leaves its chain; `--bytes`, what GPT-2 moves by kind of launch.

A line of a table ends with what is asked for and `yes` or `NO`; a line of JSON is a figure for the result file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import gpu_cudnn
from gpu_checks import correctness, curves, demo, imported, nccl
from gpu_models import CASES
from gpu_setting import Setting, find_torch, record, say, verdict
from gpu_steps import fill, steps_of

from taskflow.backend.choices import LIBRARY, OWN
from taskflow.backend.timing import DeviceClock
from taskflow.cost.measure import measure_machine
from taskflow.cost.measure_gpu import measure_host_link, product_seconds

GEMM_SHARE = 0.9


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


def choices(setting: Setting) -> None:
    """What a library and an own kernel both do, by either way: what is shipped for a kind of GPU comes of it."""
    machine, backend = setting.machine(), setting.backend()
    for piece in gpu_cudnn.pieces(setting.is_fake):
        found = gpu_cudnn.by_way(piece, machine, backend)
        say(
            f"{piece.about}, us by the library, by an own kernel"
            + ("" if found else ": no library")
        )
        for key, by in found.items():
            record(model="choices", key=key, **by)
            theirs, ours = by[LIBRARY] * 1e6, by[OWN] * 1e6
            say(f"  {key:90s} {theirs:9.1f} {ours:9.1f} {ours / theirs:6.2f}x")


PARTS: dict[str, Callable[[Setting], None]] = {
    "facts": facts,
    "correctness": correctness,
    "curves": curves,
    "demo": demo,
    "imported": imported,
    "nccl": nccl,
    "gemm": gemm,
    "choices": choices,
    **{f"steps {name}": partial(steps_of, name=name) for name in CASES},
    **{
        f"fill {name} {mode}": partial(fill, name=name, mode=mode)
        for name in CASES
        for mode in ("default", "reduce-overhead", "max-autotune")
    },
}


def on_stub(*options: str) -> None:
    """Run `gpu_launches` in the environment of the stub."""
    from tests.stub import build

    if reason := build.why_not():
        sys.exit(f"--estimate: the stub cannot be built: {reason}")
    command = [sys.executable, str(Path(__file__).with_name("gpu_launches.py")), *options]
    sys.exit(subprocess.run(command, env=build.environment()).returncode)


def main(arguments: list[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = parser.add_mutually_exclusive_group(required=True)
    tables.add_argument("--part", choices=PARTS, metavar="PART", help=f"one of {', '.join(PARTS)}")
    tables.add_argument("--estimate", action="store_true", help="what steps launch")
    tables.add_argument(
        "--fusion", action="store_true", help="the same without and with taskflow.fuse"
    )
    tables.add_argument("--branches", action="store_true", help="where steps leave their chain")
    tables.add_argument("--bytes", action="store_true", help="what GPT-2 moves by kind of launch")
    parser.add_argument(
        "--fake", action="store_true", help="a fake device and tiny models: a trial"
    )
    options = parser.parse_args(arguments)
    if options.part:
        PARTS[options.part](Setting(options.fake))
    else:
        others = [name for name in ("fusion", "branches", "bytes") if getattr(options, name)]
        on_stub(*(f"--{name}" for name in others or ["torch"]))


if __name__ == "__main__":
    main()
