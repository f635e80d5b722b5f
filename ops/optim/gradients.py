"""What is done to gradients before they are used: the scale of the loss taken out, and their global norm clipped.

Both are the same under any strategy, since partial sums are combined. Loss scaling: float16 loses what is below 6e-8,
so the loss is differentiated times a large number. Gradients are divided by it as soon as they are float32. Elements
that are not finite are counted over all gradients of all devices; every update reads that one number, so all ranks skip
a step alike (Micikevicius et al., Mixed Precision Training, ICLR 2018). Schedules and corrections of Adam count skipped
steps, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf

from ops.building import check_region, launch_first
from ops.elementwise.arithmetic import multiply
from ops.expressions.assign import assign
from ops.expressions.program import program
from ops.reduce.reductions import sum_to
from taskflow import Array, Context, Kernel, LogicalRegion, LossScale, differentiate, update

Gradients = dict[LogicalRegion, LogicalRegion]  # parameter -> gradient
_TEXT = "all = g / scale; out = where(all - all == 0, all, 0); count += g / scale - g / scale != 0"
_UNSCALE = assign.bind(
    program=program(_TEXT, "g scale out count")
)  # infinity less infinity is no number
_SQUARE = assign.bind(program=program("total += g * g", "g total"))


def gradients(
    y: LogicalRegion, regions: Sequence[LogicalRegion], seed: LogicalRegion | None = None
) -> dict[LogicalRegion, LogicalRegion]:
    """The gradient of any output with respect to regions of any role: of the sum of all its elements times `seed`.

    Args:
        y: any shape, floating point.
        regions: parameters, inputs or values on which it depends.
        seed: of the shape of `y`: the gradient that flows in; default ones.

    Returns:
        Region -> its gradient, a region that can be fetched or computed with; its own gradient is there, too.

    Raises:
        ValueError: `y` does not depend on a region, an operator on the way has no gradient, or `seed` is of another
            shape.

    >>> import ops, taskflow
    >>> x = taskflow.Graph().input("x", (5, 3))
    >>> ops.gradients(ops.tanh(x), [x])[x].shape
    (5, 3)
    """
    check_region("gradients", y, "y")
    if seed is not None and seed.shape != y.shape:
        raise ValueError(f"gradients: seed '{seed.name}' is {seed.shape}, '{y.name}' is {y.shape}")
    weighted = y if seed is None else multiply(y, seed, f"{y.name}.weighted")
    return differentiate(sum_to(weighted, (), f"{y.name}.total"), regions)


def clip_by_global_norm(
    gradients: Mapping[LogicalRegion, LogicalRegion],
    max_norm: float,
    loss: LogicalRegion,
    name: str = "gradient_norm",
    overflow: LogicalRegion | None = None,
) -> dict[LogicalRegion, LogicalRegion]:
    """Each gradient times min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_.

    The norm is that of all gradients as one vector (Pascanu et al., ICML 2013); it becomes an output.
    A gradient's squares are summed where its parameter is updated, so a replica is not counted twice.

    Args:
        gradients: parameter -> gradient, floating point.
        max_norm: positive.
        loss: a scalar; the norm is made where it is made.
        name: of the output.
        overflow: the number of elements that were not finite, and are 0 in `gradients`; the norm is then infinite, not
            that of what is left, which is another one under another strategy.

    Returns:
        parameter -> clipped gradient, in the same order.
    """
    scalars = [
        update(
            f"{p.name}.square",
            p,
            [g],
            kernel=_SQUARE,
            sums=1,
            flops=2,
        )[0]
        for p, g in gradients.items()
    ]
    if overflow is not None:
        scalars.append(overflow)
    with beside(loss):
        norm = launch_first(
            name,
            f"{', '.join('.' * len(scalars))} -> .",
            scalars,
            kernel=_root_of_sum.bind(is_scaled=overflow is not None),
            flops=len(gradients),
        )
    loss.graph.output(name, norm)
    return _clipped(gradients, norm, max_norm)


def _clipped(
    gradients: Mapping[LogicalRegion, LogicalRegion], norm: LogicalRegion, max_norm: float
) -> dict[LogicalRegion, LogicalRegion]:
    kernel = assign.bind(
        program=program("out = g * min(1, most / (norm + 1e-6))", "g norm out", {"most": max_norm})
    )
    return {
        p: update(
            f"{p.name}.clipped",
            p,
            [g],
            kernel=kernel,
            scalars=[norm],
            values=1,
            flops=1,
        )[0]
        for p, g in gradients.items()
    }


@contextmanager
def beside(loss: LogicalRegion) -> Iterator[None]:
    """Operators on scalars, launched inside, run where the loss is made, on each of its devices."""
    maker = loss.graph.producer(loss)
    assert maker is not None, "a loss that was differentiated is made by an operator"
    with loss.graph.following(maker.follows or maker.name):
        yield


@Kernel
def _root_of_sum(ctx: Context, *arrays: Array, is_scaled: bool) -> None:
    *squares, norm = arrays
    overflow = squares.pop() if is_scaled else None
    root = sum(squares) ** 0.5
    norm[...] = root if overflow is None else ctx.xp.where(overflow > 0, inf, root)


# -- loss scaling ------------------------------------------------------------------------------------------------------


def loss_scale(loss: LogicalRegion) -> LogicalRegion | None:
    """The state `loss_scale` of shape (), where the precision of the graph has one."""
    policy = loss.graph.precision.loss_scale
    if policy is None:
        return None
    return loss.graph.parameter(
        "loss_scale",
        (),
        policy.first,
        "float32",
        trainable=False,
    )


def unscale(
    gradients: Gradients, scale: LogicalRegion, loss: LogicalRegion
) -> tuple[Gradients, LogicalRegion]:
    """The gradients divided by `scale`, and the number of their elements that are not finite, shape ().

    The scale of the next step is set too: the state `loss_scale`, with `finite_steps` in a row since it changed.
    """
    policy = loss.graph.precision.loss_scale
    assert policy is not None
    unscaled, counts = _divided(gradients, scale)
    finite = loss.graph.parameter(
        "finite_steps",
        (),
        0.0,
        "int64",
        trainable=False,
    )
    with beside(loss):
        overflow = launch_first(
            "overflow",
            f"{', '.join('.' * len(counts))} -> .",
            counts,
            kernel=_add_up,
            flops=len(counts),
        )
        loss.graph.launch(
            "loss_scaling",
            "., ., . ->",
            [scale, finite, overflow],
            kernel=_adjust.bind(policy=policy),
            writes=[scale, finite],
            flops=1,
        )
    return unscaled, overflow


def _divided(gradients: Gradients, scale: LogicalRegion) -> tuple[Gradients, list[LogicalRegion]]:
    """Each gradient by the scale, and the number of its elements that are not finite."""
    unscaled = {}
    counts = []
    for p, g in gradients.items():
        unscaled[p], count = update(
            f"{p.name}.unscaled",
            p,
            [g],
            kernel=_UNSCALE,
            scalars=[scale],
            values=1,
            sums=1,
            flops=2,
        )
        counts.append(count)
    return unscaled, counts


def _add_up(ctx: Context, *arrays: Array) -> None:
    *counts, total = arrays
    total[...] = sum(counts)


@Kernel
def _adjust(
    ctx: Context,
    scale: Array,
    finite: Array,
    overflow: Array,
    *,
    policy: LossScale,
) -> None:
    is_finite = overflow == 0
    ctx.xp.copyto(finite, (finite + 1) * is_finite)
    grows = finite == policy.interval
    scale *= ctx.xp.where(is_finite, ctx.xp.where(grows, policy.growth, 1.0), policy.backoff)
    finite *= ~grows
