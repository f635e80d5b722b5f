"""Updates of parameters on GPUs: one parameter, or all of a device in one launch; steps that are skipped there.

Not yet run on hardware; the tests compile the sources for GPUs, and run them as C++ against the NumPy kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ops.tiles import Array, Context, contiguous, deliver, in_memory_order
from taskflow import CudaSource, cuda_kernel, together

OPTIMIZERS = CudaSource(Path(__file__).parent / "cuda" / "optimizers.cu")
_BLOCK = 256
_PART = 16 * _BLOCK  # elements of a parameter that one block updates

Points = Sequence[Sequence[Array]]
Call = Callable[[], object]


def sgd(
    ctx: Context,
    parameter: Array,
    gradient: Array,
    *rest: Array,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
    skip: Array | int = 0,
) -> None:
    """See `optimizers.sgd`; `skip` is where the number of gradients that are not finite lies, or 0."""
    *velocity, rate = rest
    updated, (g,) = _flat(ctx, [parameter, *velocity], [gradient])
    p, *v = (work for _, work in updated)
    numbers = float(momentum), nesterov, float(weight_decay), parameter.size
    arrays = p, g, v[0] if v else 0, rate, skip
    ctx.launch(OPTIMIZERS, f"sgd_{parameter.dtype}", parameter.size, *arrays, *numbers)
    for a, work in updated:
        deliver(ctx, work, a)


def adam(
    ctx: Context,
    parameter: Array,
    gradient: Array,
    m: Array,
    v: Array,
    rate: Array,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    is_decoupled: bool,
    skip: Array | int = 0,
) -> None:
    """See `optimizers.adam`, and `sgd` for `skip`."""
    updated, (g,) = _flat(ctx, [parameter, m, v], [gradient])
    p, flat_m, flat_v = (work for _, work in updated)
    numbers = *map(float, (*betas, eps, weight_decay)), is_decoupled, parameter.size
    arrays = p, g, flat_m, flat_v, rate, skip, *_corrections(ctx, betas)
    ctx.launch(OPTIMIZERS, f"adam_{parameter.dtype}", parameter.size, *arrays, *numbers)
    for a, work in updated:
        deliver(ctx, work, a)


def sgd_together(ctx: Context, points: Points, *, skip: Array | int = 0, **options: Any) -> Call:
    """One launch of `sgd` for many parameters, whose arrays have no gaps."""
    numbers = float(options["momentum"]), options["nesterov"], float(options["weight_decay"])
    return _launch(ctx, "sgd", points, 3, lambda: [skip], numbers)


def adam_together(ctx: Context, points: Points, *, skip: Array | int = 0, **options: Any) -> Call:
    """One launch of `adam` for many parameters, whose arrays have no gaps."""
    betas, rest = options["betas"], (options["eps"], options["weight_decay"])
    numbers = *map(float, (*betas, *rest)), options["is_decoupled"]
    return _launch(ctx, "adam", points, 4, lambda: [skip, *_corrections(ctx, betas)], numbers)


def _corrections(ctx: Context, betas: tuple[float, float]) -> tuple[Array, Array]:
    """What the moments of this step are divided by: 1 - β₁ᵗ and the root of 1 - β₂ᵗ."""
    first, second = betas
    correction = ctx.cell("correction", "float64", lambda run: 1 - first ** (run.step + 1))
    return correction, ctx.cell("root", "float64", lambda run: (1 - second ** (run.step + 1)) ** 0.5)


def _launch(
    ctx: Context, kind: str, points: Points, width: int, cells: Callable[[], list[Any]], numbers: Sequence[Any]
) -> Call:
    rows = [_row(ctx, arrays, width) for *arrays, _ in points]
    parts = [(k, begin) for k, row in enumerate(rows) for begin in range(0, row[-1], _PART)]
    table, places = (ctx.constant(np.array(a, np.int64).reshape(-1)) for a in (rows, parts))
    name, rate, threads = f"{kind}_many_{points[0][0].dtype}", points[0][-1], len(parts) * _BLOCK

    def call() -> None:
        ctx.launch(OPTIMIZERS, name, threads, table, places, rate, *cells(), *numbers, _PART, block=_BLOCK)

    return call


def _row(ctx: Context, arrays: Sequence[Array], width: int) -> list[int]:
    """The addresses of a parameter's arrays, 0 for those that it lacks, and its size."""
    addresses = [ctx.address(a) for a in arrays]
    return [*addresses, *[0] * (width - len(addresses)), arrays[0].size]


# -- steps that are skipped --------------------------------------------------------------------------------------------


def skipping(ctx: Context, *arrays: Array, kernel: Callable[..., None], at: int) -> None:
    """See `loss_scaling.skipping`. Whether this step counts is known on the device alone: else all is put back."""
    variant, rest, overflow = cuda_kernel(kernel), (*arrays[:at], *arrays[at + 1 :]), arrays[at]
    if getattr(variant, "func", variant) in (sgd, adam):
        variant(ctx, *rest, skip=overflow)
        return
    large = [(k, a) for k, a in enumerate(rest) if a.ndim or k >= at]  # scalars before `at` are only read
    kept = [ctx.scratch(("kept", k), a.shape, a.dtype) for k, a in large]
    for before, (k, a) in zip(kept, large, strict=True):
        if k < at:
            ctx.xp.copyto(before, a)
        else:
            before.fill(0)  # an output
    variant(ctx, *rest)
    for before, (_, a) in zip(kept, large, strict=True):
        if getattr(a.flags, "writeable", True):
            ctx.xp.copyto(a, before, where=overflow >= 1)


def skipping_together(ctx: Context, points: Points, *, kernel: Callable[..., None], at: int) -> Call:
    """`skipping` for many parameters."""
    make = together(kernel)
    assert make is not None, "else such points are not put together"
    return make(ctx, [[*arrays[:at], *arrays[at + 1 :]] for arrays in points], skip=points[0][at])


def _flat(ctx: Context, updated: list[Array], read: list[Array]) -> tuple[list[tuple[Array, Array]], list[Array]]:
    """Arrays in the memory order of the first, without gaps: (array, its work) of the updated ones, and the others."""
    arrays = in_memory_order(*updated, *read)
    works = [contiguous(ctx, k, a) for k, a in enumerate(arrays)]
    return list(zip(arrays, works, strict=True))[: len(updated)], works[len(updated) :]
