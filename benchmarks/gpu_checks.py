"""Parts of `gpu` that say whether a GPU computes what it should: models, training curves, imported modules, NCCL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gpu_imported
import gpu_models
import gpu_nccl
import numpy as np
from gpu_models import CURVES, REFERENCES, TINY_REFERENCES
from gpu_setting import Setting, record, say, verdict

import taskflow
from taskflow import Executor, Graph, MachineModel, lower

Array = np.ndarray[Any, np.dtype[Any]]

FLOAT32_ERROR, IMPORTED_ERROR, DEMO_ACCURACY = 1e-4, 1e-3, 0.99


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


def demo(setting: Setting, steps: int = 400) -> None:
    """The CNN of the demo learns ten blurred patterns: how many of 640 new ones it tells."""
    graph = gpu_models.digits("float32")
    with setting.executor(graph) as step:
        for k in range(setting.count(steps)):
            step(gpu_models.blurred_digits(k))
        rights = [
            float(step(gpu_models.blurred_digits(steps + k))["accuracy"])
            for k in range(setting.count(10))
        ]
    accuracy = float(np.mean(rights))
    record(model="cnn of the demo", what="accuracy", value=accuracy)
    say(f"accuracy {accuracy:.4f}  {verdict(accuracy >= DEMO_ACCURACY, f'{DEMO_ACCURACY:.0%}')}")


def imported(setting: Setting, steps: int = 20) -> None:
    """Modules of torchvision, imported: losses of as many steps beside torch's, and the time of a step."""
    for name, make in gpu_imported.modules(setting.is_fake).items():
        try:
            module, inputs = make()
        except ImportError as error:
            say(f"{name}: left out: {error}")
            continue
        ours, theirs, seconds = gpu_imported.train(setting, module, inputs, setting.count(steps))
        apart = error_of(np.array(ours), np.array(theirs))
        record(model=name, what="loss", value=apart)
        for side, value in seconds.items():
            record(model=name, precision="float32", what=side, value=value, unit="s")
        times = ", ".join(f"{side} {value * 1e3:.3f} ms" for side, value in seconds.items())
        end = verdict(apart <= IMPORTED_ERROR, f"{IMPORTED_ERROR:.0e}")
        say(f"{name}: losses of {len(ours)} steps {apart:.1e} apart; {times}  {end}")


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
