"""Reverse-mode differentiation.

Decides which operators' backward functions are called, in which order, and sums the gradients of a region that several
operators read. Takes a graph and a scalar region; appends operators. Gradients that nobody needs are removed again, so
that the first layer of a network does not differentiate its input.

Versions: an update in place makes a new version of a region. What a backward function reads has to be what its forward
operator read, and no gradient passes the update of a value. The update of a parameter or state is no part of the
derivative, as under torch.no_grad(): the gradient is that by the version that the loss was made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from taskflow.backend import Array, Context
from taskflow.core.garbage import collect_rarely
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.kernel import Kernel, Pointwise
from taskflow.graph.precision import cast, is_cast
from taskflow.graph.update import launch_beside


def differentiate(
    loss: LogicalRegion, regions: Sequence[LogicalRegion], scale: LogicalRegion | None = None
) -> dict[LogicalRegion, LogicalRegion]:
    """Append the operators of d loss / d region for each of `regions` to their graph; gives the gradient regions.

    Reverse accumulation in program order; a region that several operators read gets the sum of their gradients. The
    backward of what is made of parameters alone, such as their casts, comes last: it waits for sums over devices, which
    are under way meanwhile (1.09x for GPT on 8 devices, `benchmarks/late_casts.py`).
    With `scale`, a region of shape (), the gradients are those of the loss times its value.

    Raises:
        ValueError: `loss` is not a scalar, an operator on the way has no backward, or a backward function reads what
            was updated in place after the forward operator.
        TypeError: a backward function gives something else than regions.
    """
    operators = loss.graph.operators
    first = len(loss.graph.operators)
    with collect_rarely():
        gradients = _differentiate(loss, regions, scale)
    operators[first:] = [replace(op, is_backward=True) for op in operators[first:]]
    return gradients


def _differentiate(
    loss: LogicalRegion, regions: Sequence[LogicalRegion], scale: LogicalRegion | None
) -> dict[LogicalRegion, LogicalRegion]:
    graph = loss.graph
    graph.differentiations += 1
    graph.pending.clear()
    if loss.shape != ():
        raise ValueError(
            f"differentiate: the loss '{loss.name}' is a scalar, not of shape {loss.shape}"
        )
    forward = list(graph.operators)
    active = _active(forward, loss, regions)
    versions = _Versions(forward, loss)
    producer = {r.name: op for op in forward for r in op.outputs}
    if loss.name not in producer:
        raise ValueError(f"differentiate: no operator makes the loss '{loss.name}'")
    gradients: dict[str, list[LogicalRegion]] = {
        loss.name: [_seed(graph, producer[loss.name], loss, scale)]
    }
    leaders = _leaders(forward)
    for op in _backwards(active, graph):
        totals = [_total(r, gradients, leaders) for r in op.outputs]
        # under the names of the forward's axes, so that elementwise backward operators are split as the forward is
        flowing = [g and replace(g, axes=r.axes) for g, r in zip(totals, op.outputs, strict=True)]
        if all(g is None for g in flowing):
            continue
        first = len(graph.operators)
        result = _call_backward(graph, op, flowing)
        versions.note_backward(op, graph.operators[first:])
        for k, (region, gradient) in enumerate(zip(op.inputs, result, strict=True)):
            if gradient is not None:
                versions.check_reader(op, region)
                if gradient.dtype != region.dtype and not is_cast(
                    producer.get(region.name), gradient.dtype
                ):
                    gradient = cast(gradient, region.dtype, op, k, f"{region.name}.gradient")
                gradients.setdefault(region.name, []).append(gradient)
    wanted = {}
    for region in regions:
        total = _total(region, gradients, leaders)
        if total is None:
            raise ValueError(f"differentiate: '{loss.name}' does not depend on '{region.name}'")
        wanted[region] = total
    _prune(graph, len(forward), {r.name for r in wanted.values()})
    versions.check_backward(graph.operators[len(forward) :])
    return wanted


def _leaders(forward: Sequence[Operator]) -> dict[str, tuple[Operator, int]]:
    """Region -> the operator that makes it, else the first that reads it, and which of its arguments it is."""
    readers = {
        r.name: (op, k) for op in reversed(forward) for k, r in reversed(list(enumerate(op.inputs)))
    }
    return readers | {
        r.name: (op, len(op.inputs) + k) for op in forward for k, r in enumerate(op.outputs)
    }


def _backwards(active: Sequence[Operator], graph: Graph) -> list[Operator]:
    """In the order in which their backward functions are called."""
    constant = {region.name for region in graph.parameters}
    for op in active:
        if not op.writes and op.inputs and constant.issuperset(r.name for r in op.inputs):
            constant.update(r.name for r in op.outputs)
    backwards = active[::-1]
    return sorted(backwards, key=lambda op: constant.issuperset(r.name for r in op.outputs))


class _Versions:
    """Which regions the forward operators update in place, and where."""

    def __init__(self, forward: Sequence[Operator], loss: LogicalRegion) -> None:
        self._forward = forward
        self._position = {op.name: k for k, op in enumerate(forward)}
        self._updates: dict[
            str, list[int]
        ] = {}  # region -> positions of the operators that update it
        for k, op in enumerate(forward):
            for w in op.writes:
                self._updates.setdefault(op.inputs[w].name, []).append(k)
        self._differentiated: dict[str, int] = {}  # region -> its version that gets a gradient
        self._origin: dict[str, int] = {}  # backward operator -> position of the forward operator
        if loss.name in self._updates:
            raise ValueError(
                f"differentiate: '{self._last(loss)}' updates the loss '{loss.name}' in place"
            )

    def _last(self, region: LogicalRegion) -> str:
        return self._forward[self._updates[region.name][-1]].name

    def note_backward(self, op: Operator, made: Sequence[Operator]) -> None:
        """The backward function of `op` has made these operators."""
        self._origin.update({backward.name: self._position[op.name] for backward in made})

    def check_reader(self, op: Operator, region: LogicalRegion) -> None:
        """Refuse a gradient by another version of `region` than the one that was made, or that others read."""
        updates = self._updates.get(region.name)
        if updates is not None:
            version = sum(k < self._position[op.name] for k in updates)
            if version != self._differentiated.setdefault(
                region.name, version if region.is_persistent else 0
            ):
                raise ValueError(
                    f"differentiate: '{self._last(region)}' updates '{region.name}' in place, and '{op.name}' does not "
                    "read the version that gets the gradient"
                )

    def check_backward(self, operators: Sequence[Operator]) -> None:
        """Refuse those that read what was updated in place after the forward operator that they belong to."""
        for op in operators if self._updates else ():
            position = self._origin.get(op.name, len(self._forward))
            for region in op.inputs:
                if self._updates.get(region.name, [-1])[-1] > position:
                    raise ValueError(
                        f"differentiate: the backward of '{self._forward[position].name}' reads '{region.name}', which "
                        f"'{self._last(region)}' updates in place after it"
                    )


def _active(
    forward: list[Operator], loss: LogicalRegion, regions: Sequence[LogicalRegion]
) -> list[Operator]:
    """The operators on a path from one of `regions` to `loss`, in program order."""
    reached = {r.name for r in regions}
    downstream = []
    for op in forward:
        if any(r.name in reached for r in op.inputs):
            reached.update(r.name for r in op.written if not r.is_persistent)
            downstream.append(op)
    wanted = {loss.name}
    active = []
    for op in reversed(downstream):
        if any(r.name in wanted for r in op.outputs):
            wanted.update(r.name for r in op.inputs)
            active.append(op)
    return active[::-1]


def _seed(
    graph: Graph, op: Operator, loss: LogicalRegion, scale: LogicalRegion | None
) -> LogicalRegion:
    """The gradient of the loss with respect to itself: 1, or the scale of the loss."""
    inputs = [] if scale is None else [scale]
    with graph.following(op.follows or op.name):
        one = graph.launch(
            f"{op.name}.one",
            f"{'.' * len(inputs)} -> .",
            inputs,
            kernel=_fill_seed,
            dtype=loss.dtype,
        )
    assert isinstance(one, LogicalRegion)
    return one


def _call_backward(
    graph: Graph, op: Operator, flowing: Sequence[LogicalRegion | None]
) -> Sequence[LogicalRegion | None]:
    """What the backward function of `op` gives: for each input a region of its shape, or None."""
    if op.backward is None:
        raise ValueError(f"differentiate: operator '{op.name}' has no backward")
    with graph.following(op.follows or op.name):
        gradients = op.backward(op, *flowing)
    gradients = gradients if isinstance(gradients, tuple | list) else (gradients,)
    where = f"differentiate: backward of '{op.name}'"
    if len(gradients) != len(op.inputs):
        raise ValueError(f"{where} gives {len(gradients)} gradients for {len(op.inputs)} inputs")
    for region, gradient in zip(op.inputs, gradients, strict=True):
        if gradient is not None and not isinstance(gradient, LogicalRegion):
            kind = type(gradient).__name__
            raise TypeError(
                f"{where} gives a {kind} for '{region.name}', a region or None is needed"
            )
        if gradient is not None and gradient.shape != region.shape:
            wrong = (
                f"a gradient of shape {gradient.shape} for '{region.name}', which is {region.shape}"
            )
            raise ValueError(f"{where} gives {wrong}")
    return gradients


def _total(
    region: LogicalRegion,
    gradients: dict[str, list[LogicalRegion]],
    leaders: dict[str, tuple[Operator, int]],
) -> LogicalRegion | None:
    """The sum of the gradients that reached `region`, kept so that it is summed once.

    It is split as the operator that makes the region splits it, or else the first that reads it: see `leaders`.
    """
    parts = gradients.get(region.name, [])
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        (total,) = launch_beside(
            *leaders[region.name], f"{region.name}.sum", "*, * -> *", [total, part], kernel=_add
        )
    gradients[region.name] = [total]
    return total


def _fill_seed(ctx: Context, *arrays: Array) -> None:
    *scale, out = arrays
    out[...] = scale[0] if scale else 1


@partial(Kernel, expression=Pointwise("x + y", ("x", "y")), takes_mixed_on_cuda=True)
def _add(ctx: Context, x: Array, y: Array, out: Array) -> None:
    ctx.xp.add(x, y, out=out)


def is_sum(op: Operator) -> bool:
    """Whether `op` adds two gradients of one region."""
    return op.kernel is _add


def _prune(graph: Graph, first: int, wanted: set[str]) -> None:
    """Remove the operators from `first` on that lead to no wanted region."""
    kept: list[Operator] = []
    for op in reversed(graph.operators[first:]):
        if op.writes or any(r.name in wanted for r in op.outputs):
            wanted.update(r.name for r in op.inputs)
            kept.append(op)
        else:
            for region in op.outputs:
                del graph.regions[region.name]
    graph.operators[first:] = kept[::-1]
