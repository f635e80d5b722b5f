"""Updates of parameters on GPUs: one parameter, or all of a device in one launch; steps that are skipped there.

Not yet run on hardware; the tests compile the sources for GPUs, and run them as C++ against the NumPy kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ops.cpu.tiles import Array, Context, contiguous, deliver, in_memory_order
from ops.elementwise import generated
from ops.elementwise.expressions import Expression
from taskflow import CudaSource, Kernel

OPTIMIZERS = CudaSource(Path(__file__).parent / "optimizers.cu")
_BLOCK = 256
_PART = 16 * _BLOCK  # elements of a parameter that one block updates

Points = Sequence[Sequence[Array]]
Call = Callable[[], object]


def sgd_together(ctx: Context, points: Points, *, skip: Array | int = 0, **options: Any) -> Call:
    """One launch of `sgd` for many parameters, whose arrays have no gaps."""
    numbers = float(options["momentum"]), options["nesterov"], float(options["weight_decay"])
    return _launch(ctx, "sgd", points, 3, lambda: [skip], numbers)


@partial(Kernel, together=sgd_together)
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


def adam_together(ctx: Context, points: Points, *, skip: Array | int = 0, **options: Any) -> Call:
    """One launch of `adam` for many parameters, whose arrays have no gaps."""
    betas, rest = options["betas"], (options["eps"], options["weight_decay"])
    numbers = *map(float, (*betas, *rest)), options["is_decoupled"]
    return _launch(ctx, "adam", points, 4, lambda: [skip, *_corrections(ctx, betas)], numbers)


@partial(Kernel, together=adam_together)
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


# -- by expressions: a kernel for each array that changes --------------------------------------------------------------

_GRADIENT = "(g + decay * p)"
_SCALED = Expression.parse("rate / slow")
_ADAGRAD = Expression.parse(f"s + {_GRADIENT} * {_GRADIENT}")
_ADAGRAD_STEP = Expression.parse(f"p - rate * {_GRADIENT} / (sqrt(s) + eps)")
_SQUARE = Expression.parse(f"alpha * s + (1 - alpha) * {_GRADIENT} * {_GRADIENT}")
_MEAN = Expression.parse(f"alpha * a + (1 - alpha) * {_GRADIENT}")
_FIRST = Expression.parse("beta1 * m + (1 - beta1) * g")
_SECOND = Expression.parse("beta2 * v + (1 - beta2) * g * g")
_WAY = Expression.parse("m / correction / (sqrt(v) / root + eps) + decay * p")
_TRUST = "(weight > 0) * (way > 0)"
_LAMB = Expression.parse(f"p - rate * u * ({_TRUST} * sqrt(weight) / sqrt(max(way, 1e-38)) + 1 - {_TRUST})")
_SUM_OF_SQUARES = Expression.parse("g * g")
_CLIPPED = Expression.parse("g * min(1, most / (norm + 1e-6))")


@Kernel
def adagrad(
    ctx: Context,
    p: Array,
    g: Array,
    s: Array,
    rate: Array,
    *,
    lr_decay: float,
    eps: float,
    weight_decay: float,
) -> None:
    """See `adaptive.adagrad`."""
    now = ctx.scratch("rate", (1,), p.dtype)
    slow = ctx.cell("slow", "float64", lambda run: 1 + run.step * lr_decay)
    generated.evaluate(ctx, _SCALED, {"rate": rate, "slow": slow}, now)
    known = {"p": p, "g": g, "s": s, "rate": now, "eps": eps, "decay": weight_decay}
    generated.evaluate(ctx, _ADAGRAD, known, s)
    generated.evaluate(ctx, _ADAGRAD_STEP, known, p)


@Kernel
def rmsprop(
    ctx: Context,
    p: Array,
    g: Array,
    s: Array,
    *rest: Array,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    is_centred: bool,
) -> None:
    """See `adaptive.rmsprop`."""
    *kept, rate = rest
    known = {"p": p, "g": g, "s": s, "rate": rate, "alpha": alpha, "eps": eps, "decay": weight_decay}
    generated.evaluate(ctx, _SQUARE, known, s)
    spread = "s"
    if is_centred:
        known["a"], spread = kept[0], "(s - a * a)"
        generated.evaluate(ctx, _MEAN, known, kept[0])
    step = f"{_GRADIENT} / (sqrt({spread}) + eps)"
    if momentum:
        known |= {"v": kept[-1], "momentum": momentum}
        generated.evaluate(ctx, Expression.parse(f"momentum * v + {step}"), known, kept[-1])
        step = "v"
    generated.evaluate(ctx, Expression.parse(f"p - rate * {step}"), known, p)


@Kernel
def lamb_direction(
    ctx: Context,
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    way: Array,
    weight_square: Array,
    way_square: Array,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """See `lamb.lamb`."""
    first, second = _corrections(ctx, betas)
    correction, root = ctx.scratch("correction", (1,), p.dtype), ctx.scratch("root", (1,), p.dtype)
    ctx.xp.copyto(correction, first, casting="same_kind")
    ctx.xp.copyto(root, second, casting="same_kind")
    known = {"p": p, "g": g, "m": m, "v": v, "beta1": betas[0], "beta2": betas[1], "eps": eps, "decay": weight_decay}
    generated.evaluate(ctx, _FIRST, known, m)
    generated.evaluate(ctx, _SECOND, known, v)
    generated.evaluate(ctx, _WAY, known | {"correction": correction, "root": root}, way)
    square(ctx, p, weight_square)
    square(ctx, way, way_square)


@Kernel
def lamb_step(ctx: Context, p: Array, way: Array, weight_square: Array, way_square: Array, rate: Array) -> None:
    """See `lamb.lamb`."""
    generated.evaluate(ctx, _LAMB, {"p": p, "u": way, "weight": weight_square, "way": way_square, "rate": rate}, p)


@Kernel
def square(ctx: Context, g: Array, total: Array) -> None:
    """See `clipping.clip_by_global_norm`: the sum of squares."""
    out = total[(*[None] * g.ndim, ...)]
    generated.reduce(ctx, _SUM_OF_SQUARES, {"g": g}, out, tuple(range(g.ndim)))


@Kernel
def clip(ctx: Context, g: Array, norm: Array, out: Array, *, max_norm: float) -> None:
    """See `clipping.clip_by_global_norm`."""
    generated.evaluate(ctx, _CLIPPED, {"g": g, "norm": norm, "most": max_norm}, out)


_UNSCALED, _IS_LOST = Expression.parse("g / scale"), Expression.parse("g - g != 0")  # infinity and NaN


@Kernel
def unscale(ctx: Context, g: Array, scale: Array, out: Array, count: Array) -> None:
    """See `loss_scaling.unscale`."""
    generated.evaluate(ctx, _UNSCALED, {"g": g, "scale": scale}, out)
    total = count[(*[None] * g.ndim, ...)]
    generated.reduce(ctx, _IS_LOST, {"g": out}, total, tuple(range(g.ndim)))


# -- steps that are skipped --------------------------------------------------------------------------------------------


def skipping_together(ctx: Context, points: Points, *, kernel: Kernel, at: int) -> Call:
    """`skipping` for many parameters."""
    make: Callable[..., Call] | None = kernel.for_points
    assert make is not None, "else such points are not put together"
    return make(ctx, [[*arrays[:at], *arrays[at + 1 :]] for arrays in points], skip=points[0][at])


@partial(Kernel, together=skipping_together)
def skipping(ctx: Context, *arrays: Array, kernel: Kernel, at: int) -> None:
    """See `loss_scaling.skipping`. Whether this step counts is known on the device alone: else all is put back."""
    variant, rest, overflow = kernel.on_cuda, (*arrays[:at], *arrays[at + 1 :]), arrays[at]
    if variant.function in (sgd.function, adam.function):
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


def _flat(ctx: Context, updated: list[Array], read: list[Array]) -> tuple[list[tuple[Array, Array]], list[Array]]:
    """Arrays in the memory order of the first, without gaps: (array, its work) of the updated ones, and the others."""
    arrays = in_memory_order(*updated, *read)
    works = [contiguous(ctx, k, a) for k, a in enumerate(arrays)]
    return list(zip(arrays, works, strict=True))[: len(updated)], works[len(updated) :]
