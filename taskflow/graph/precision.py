"""Precision of a graph: in which dtype operators compute, as a graph -> graph transformation before differentiation.

Parameters stay float32 and are cast where a product reads them, so a parameter's gradient arrives in half size, is
cast, and updates the float32 master (Micikevicius et al., Mixed Precision Training, ICLR 2018). What stays float32 of
the rest: scalars (losses), sums and maxima over one region, and `float32_outputs` of a kernel (statistics).

* The outputs of every other operator become half, so they are half as large in memory and in messages.
* Products (an axis that is summed over stands in two inputs) get their float32 inputs cast; other operators take
  regions as they come. What picks rows of a table that products have a half copy of reads that copy: the rows are equal
  bits, and their gradient is half, too. A kernel computes in float32 inside in any case (`taskflow.backend.half`).
* Backward operators follow by themselves: a gradient has the dtype of its region.

Rejected: half copies of all inputs of an operator, which rounds statistics and adds passes over tables of embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial

import numpy as np

from taskflow.backend import Array, Context
from taskflow.backend.capture import call_each
from taskflow.backend.sources import CASTS
from taskflow.core.dtypes import HALF
from taskflow.graph.dtypes import PRECISIONS, LossScale, Precision, float32_outputs, is_product
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.kernel import Kernel, Pointwise
from taskflow.graph.program_order import ProgramOrder
from taskflow.graph.rebuild import rebuild
from taskflow.graph.update import launch_beside


def precision(
    graph: Graph,
    dtype: str,
    loss_scale: float | str | LossScale | None = "default",
    wide: Iterable[str] = (),
) -> Graph:
    """The same graph computing in `dtype`; called after the model is built and before an optimizer is.

    Args:
        graph: stays as it is. Its operators of other dtypes than float32 are taken over unchanged. The regions of the
            result have the same names: `result.regions[loss.name]`, `result.outputs["loss"]`.
        dtype: "float32", "tf32" (float32 whose products on a GPU round their operands to 10 bits), "float16" or
            "bfloat16". Parameters are float32 in any case, and so are what is fed and fetched.
        loss_scale: "dynamic", a number, or None. By default dynamic for float16, and none for the others. Steps whose
            gradients are not finite then change nothing but the scale (state `loss_scale`).
        wide: operators that compute in float32, by name or pattern (`"loss*"`): what they read is cast to it first, as
            PyTorch's autocast does with losses.

    Raises:
        ValueError: no such dtype or loss scale, or the graph was differentiated or got a precision already.
        ModuleNotFoundError: bfloat16 without ml_dtypes.
    """
    if dtype not in PRECISIONS:
        raise ValueError(f"precision: dtype is '{dtype}', it is one of {', '.join(PRECISIONS)}")
    if graph.differentiations:
        raise ValueError("precision: the graph has gradients already; call it before the optimizer")
    if graph.precision != Precision():
        raise ValueError(f"precision: the graph computes in {graph.precision.dtype} already")
    other = rebuild(graph, graph.operators)
    other.precision = Precision(dtype, _loss_scale(dtype, loss_scale))
    if dtype in HALF:
        _Narrowing(other, dtype, tuple(wide)).run()
    return other


def _loss_scale(dtype: str, wanted: float | str | LossScale | None) -> LossScale | None:
    if wanted == "default":
        wanted = "dynamic" if dtype == "float16" else None
    if wanted == "dynamic":
        return LossScale()
    if wanted is None or isinstance(wanted, LossScale):
        return wanted
    if isinstance(wanted, str) or not wanted > 0:
        raise ValueError(
            f"precision: loss_scale is {wanted!r}, it is 'dynamic', a positive number or None"
        )
    return LossScale(float(wanted), growth=1.0, backoff=1.0)


def cast(
    region: LogicalRegion, dtype: str, leader: Operator, k: int, name: str | None = None
) -> LogicalRegion:
    """Append the operator that casts `region`, split as argument `k` of `leader` is."""
    options = {"kernel": _cast, "backward": _cast_backward, "dtype": dtype}
    (made,) = launch_beside(
        leader, k, name or f"{region.name}.{dtype}", "* -> *", [region], **options
    )
    return made


def is_cast(op: Operator | None, dtype: str) -> bool:
    """Whether `op` casts from `dtype`: a gradient of that dtype need not be rounded on its way through it."""
    return op is not None and op.kernel is _cast and op.inputs[0].dtype == dtype


def is_exact(op: Operator) -> bool:
    """Whether what reads a result of `op` may read what that reads instead: no if it casts but half and float32."""
    return op.kernel is not _cast or {region.dtype for region in op.args} <= {*HALF, "float32"}


def casts_parameter(op: Operator) -> bool:
    """Whether `op` casts a parameter to half."""
    return op.kernel is _cast and op.inputs[0].role == "parameter" and op.outputs[0].dtype in HALF


def _copy(ctx: Context, x: Array, y: Array) -> None:
    ctx.xp.copyto(y, x, casting="unsafe")


def _cast_together(ctx: Context, points: Sequence[Sequence[Array]]) -> Callable[[], None]:
    """A call that casts the arrays of several points in one launch, which have no gaps; see `Kernel.together`."""
    dtypes = tuple(array.dtype.name for array in points[0])
    if "float32" not in dtypes or not {*HALF} & {*dtypes}:
        calls = [partial(_copy, ctx, *arrays) for arrays in points]
        return partial(call_each, calls)
    rows = [[ctx.address(x), ctx.address(y), x.size] for x, y in points]
    parts = [(k, begin) for k, row in enumerate(rows) for begin in range(0, row[2], _PART)]
    tables = [ctx.constant(np.array(table, np.int64).reshape(-1)) for table in (rows, parts)]
    name = "cast_{}_{}".format(*dtypes)

    def call() -> None:
        ctx.launch(CASTS, name, len(parts) * _BLOCK, *tables, _PART, block=_BLOCK)

    return call


_BLOCK = 256
_PART = 4096  # threads of a block, and elements that it casts
_SAME = Pointwise("x", ("x",))
_cast = Kernel(
    _copy,
    takes_mixed=True,
    cuda=Kernel(_copy, takes_mixed=True, together=_cast_together),
    expression=_SAME,
)


def _cast_backward(op: Operator, gradient: LogicalRegion) -> LogicalRegion:
    """The gradient itself: `differentiate` casts it to the dtype of what it is the gradient of."""
    return gradient


class _Narrowing:
    """Replaces the operators of a graph of its own by half ones, with casts before them where needed."""

    def __init__(self, graph: Graph, dtype: str, wide: Sequence[str] = ()) -> None:
        self.graph = graph
        self.dtype = dtype
        self.wide = wide
        self.made_by: dict[
            str, tuple[Operator, int]
        ] = {}  # region -> who made it, and as which argument
        self.copied = set[str]()  # parameters of products
        self.casts: dict[tuple[str, str], LogicalRegion] = {}

    def run(self) -> None:
        """Replace all operators."""
        operators = self.graph.operators
        self.graph.operators = ProgramOrder()
        for op in operators:
            if self._is_cast_for(op):
                self.copied.update(r.name for r in op.inputs if r.role == "parameter")
        for op in operators:
            self._add(op)
        for name, region in self.graph.outputs.items():
            self.graph.outputs[name] = self._fetched(self.graph.regions[region.name])

    def _add(self, op: Operator) -> None:
        graph = self.graph
        is_wide = self._is_wide(op)
        outputs = (
            op.outputs
            if is_wide
            else tuple(map(partial(self._narrowed, op), range(len(op.outputs))))
        )
        inputs = [graph.regions[r.name] if r.role == "value" else r for r in op.inputs]
        if not is_wide and op.kernel.takes_half:
            inputs = [
                self._cast(r, self.dtype, op, k)
                if k in op.kernel.picks and r.name in self.copied
                else r
                for k, r in enumerate(inputs)
            ]
        if is_wide or self._is_cast_for(op):
            dtype = "float32" if is_wide else self.dtype
            inputs = [
                r if k in op.writes else self._cast(r, dtype, op, k) for k, r in enumerate(inputs)
            ]
        graph.regions.update({r.name: r for r in outputs})
        new = replace(op, inputs=tuple(inputs), outputs=outputs)
        graph.operators.append(new)
        self.made_by |= {r.name: (new, len(inputs) + k) for k, r in enumerate(outputs)}

    def _is_wide(self, op: Operator) -> bool:
        return any(fnmatchcase(op.name, pattern) for pattern in self.wide)

    def _is_cast_for(self, op: Operator) -> bool:
        """Whether what it reads is cast to half."""
        halved = [k for k in range(len(op.outputs)) if self._narrowed(op, k).dtype == self.dtype]
        return not self._is_wide(op) and (
            op.kernel.narrows or any(is_product(op.bound, k) for k in halved)
        )

    def _narrowed(self, op: Operator, k: int) -> LogicalRegion:
        region = op.outputs[k]
        stays = region.dtype != "float32" or k in float32_outputs(
            op.bound, op.kernel.float32_outputs
        )
        return region if stays else replace(region, dtype=self.dtype)

    def _cast(self, region: LogicalRegion, dtype: str, reader: Operator, k: int) -> LogicalRegion:
        """`region` in another dtype: cast where it is made, so that half of it moves, or where it is read first."""
        other = "float32" if dtype == self.dtype else self.dtype
        if region.dtype != other or not region.shape:
            return region
        key = region.name, dtype
        if key not in self.casts:
            self.casts[key] = cast(region, dtype, *self.made_by.get(region.name, (reader, k)))
        return self.casts[key]

    def _fetched(self, region: LogicalRegion) -> LogicalRegion:
        """Outputs are float32."""
        if region.dtype != self.dtype:
            return region
        return cast(region, "float32", *self.made_by[region.name])
