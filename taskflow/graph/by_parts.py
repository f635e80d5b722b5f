"""Gradients by parts: what sums over all samples keeps the sums of several micro-batches apart.

`by_parts` takes gradients of parameters; the operators that make them get one more axis, that of the parts, in front of
what they make. `add_parts` appends an operator that uses each part on its own and at once, as AdamA does. The kernels
stay: what they get is cut at the borders of the parts, and they are called for each.

How many parts there are is said here and not by a strategy: what is not linear in a gradient depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from taskflow.backend import Array, Context
from taskflow.core.geometry import Rect
from taskflow.core.numbers import whole
from taskflow.graph.binding import bind
from taskflow.graph.differentiate import is_sum
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.kernel import Function, Kernel
from taskflow.graph.pattern import Pattern, Term
from taskflow.graph.precision import is_cast
from taskflow.graph.samples import sample_groups

WHOLE, LEADING = (
    -1,
    -2,
)  # how an argument is cut: not at all, or along a new first dimension; else along this one


def by_parts(gradients: Iterable[LogicalRegion], parts: int) -> list[LogicalRegion]:
    """The regions that `gradients` become, each with a first dimension of that many parts; their sum is the gradient.

    Part k is that of the k-th of equal runs of samples. The axis of the parts has the name of that of the samples, so
    a strategy that has as many micro-batches in all gives each a part.

    Args:
        gradients: of one graph, from `differentiate`. A sum that others read stays beside its parts.
        parts: micro-batches of all devices together.

    Raises:
        ValueError: a gradient is no sum over samples, or these cannot be cut into so many equal parts.
    """
    wanted = list(gradients)
    if not wanted:
        return []
    graph = wanted[0].graph
    parts = whole("by_parts", "parts", parts)
    makers = {r.name: op for op in graph.operators for r in op.outputs}
    sample = sample_groups(graph)
    summing = _find_summing(wanted, makers, sample)
    is_read = {r.name for op in graph.operators if op.name not in summing for r in op.inputs}
    becomes: dict[str, LogicalRegion] = {}
    operators: list[Operator] = []
    for op in graph.operators:
        if op.name not in summing:
            operators.append(op)
            continue
        inputs = tuple(becomes.get(r.name, r) for r in op.inputs)
        axis = sample[op.name][0] if op.name in sample else inputs[0].axes[0]
        new = _by_parts(replace(op, inputs=inputs), axis, parts if op.name in sample else 0)
        if not is_read.isdisjoint(r.name for r in op.outputs):
            operators.append(op)
            new = _beside(graph, op, new)
        operators.append(new)
        graph.regions.update({r.name: r for r in new.outputs})
        becomes |= {r.name: made for r, made in zip(op.outputs, new.outputs, strict=True)}
    graph.operators[:] = operators
    return [becomes[r.name] for r in wanted]


def _beside(graph: Graph, op: Operator, new: Operator) -> Operator:
    """An operator under a name of its own, since others want the whole sum that `op` makes."""
    name = graph.unique_name(f"{op.name}.parts")
    graph.names.add(name)
    outputs = tuple(replace(r, name=graph.unique_name(f"{r.name}.parts")) for r in new.outputs)
    return replace(new, name=name, outputs=outputs)


def add_parts(
    name: str,
    region: LogicalRegion,
    states: Sequence[LogicalRegion],
    *,
    kernel: Kernel | Function,
    flops: float | None = None,
) -> None:
    """Append an operator that adds something of every part to `states`, right behind the one that makes the parts.

    The kernel gets `region`, a gradient from `by_parts`, and the states, of the shape of one part.

    Raises:
        ValueError: no operator makes `region`, or a state has another shape than a part.
    """
    graph = region.graph
    maker = graph.producer(region)
    if maker is None:
        raise ValueError(f"add_parts '{name}': no operator makes '{region.name}'")
    term = len(maker.inputs) + [r.name for r in maker.outputs].index(region.name)
    with graph.following(maker.follows or maker.name):
        graph.launch(
            name,
            _adding(maker.bound.term_text(term), len(states)),
            [region, *states],
            kernel=kernel,
            sizes=maker.bound.term_sizes(term),
            adds=states,
            flops=flops,
        )
    graph.operators[-1] = replace(graph.operators[-1], is_backward=True)
    graph.operators.move_last_behind(maker)


def _adding(parts: str, count: int) -> str:
    """The pattern of what adds a region of this term, its parts in front, to so many of the shape of a part."""
    part = parts.partition(" ")[2] or "."
    return f"{parts}, {', '.join([part] * count)} ->"


def _find_summing(
    wanted: Sequence[LogicalRegion], makers: dict[str, Operator], sample: dict[str, tuple[str, ...]]
) -> dict[str, Operator]:
    """The operators between what samples have and `wanted`, by name."""
    summing: dict[str, Operator] = {}
    left = [r.name for r in wanted]
    while left:
        name = left.pop()
        op = makers.get(name)
        if op is None or not (op.name in sample or is_sum(op) or is_cast(op, op.inputs[0].dtype)):
            by = f", which '{op.name}' makes," if op else ""
            raise ValueError(f"by_parts: '{name}'{by} is no sum over samples")
        if op.name not in summing:
            summing[op.name] = op
            left += [r.name for r in op.inputs if op.name not in sample]
    return summing


def _by_parts(op: Operator, axis: str, parts: int) -> Operator:
    """The operator with an axis of parts; `parts`: into how many samples are cut, 0: its inputs are so already."""
    where = f"by_parts: '{op.name}'"
    samples = 0
    rest = next(
        name for name in (f"{axis}_of_part{'_' * k}" for k in range(99)) if name not in op.extents
    )
    sizes = {**op.extents, axis: parts or op.inputs[0].shape[0]}
    if parts:
        if op.extents[axis] % parts:
            raise ValueError(
                f"{where}: {op.extents[axis]} samples cannot be cut into {parts} equal parts"
            )
        samples = sizes[rest] = op.extents[axis] // parts
    cuts = [_cut_of(op, k, axis, bool(parts)) for k in range(len(op.args))]
    terms = [_term(term, cut, axis, rest) for term, cut in zip(op.bound.terms, cuts, strict=True)]
    count = len(op.inputs)
    fixed = op.bound.pattern.fixed | ({rest} if parts else frozenset())
    pattern = Pattern.of(terms[:count], terms[count:], fixed)
    bound = bind(
        where, pattern, [r.name for r in op.inputs], [r.shape for r in op.inputs], sizes, op.windows
    )
    outputs = tuple(
        replace(r, shape=bound.shapes[count + k], axes=(axis, *r.axes))
        for k, r in enumerate(op.outputs)
    )
    kernel = _each_part_of(op.kernel, axis, samples, tuple(cuts))
    return replace(op, kernel=kernel, bound=bound, outputs=outputs, orders=_orders(op, cuts))


def _cut_of(op: Operator, k: int, axis: str, is_first: bool) -> int:
    """How argument `k` is cut; `is_first`: the operator sums over samples, and its inputs have no parts yet."""
    term = op.bound.terms[k]
    at = next((d for d, names in enumerate(term.dims) if axis in names), WHOLE)
    if k >= len(op.inputs) or not is_first:
        if is_first and at != WHOLE:
            raise ValueError(f"by_parts: '{op.name}': '{op.args[k].name}' is no sum over samples")
        return LEADING
    if at != WHOLE and (axis in {w.axis for w in op.windows.values()} or term.dims[at][0] != axis):
        raise ValueError(
            f"by_parts: '{op.name}': samples of '{op.args[k].name}' do not lie one after the other"
        )
    return at


def _term(term: Term, cut: int, axis: str, rest: str) -> Term:
    """The term of an argument that is cut so: samples are parts and the `rest`."""
    if cut == WHOLE:
        return term
    if cut == LEADING:
        return replace(term, dims=((axis,), *term.dims))
    dims = (*term.dims[:cut], (axis, rest, *term.dims[cut][1:]), *term.dims[cut + 1 :])
    return replace(term, dims=dims)


def _orders(op: Operator, cuts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The memory orders that are asked for, that of the parts slowest."""
    pairs = zip(op.orders, cuts, strict=False)
    return tuple((0, *(1 + d for d in order)) if cut == LEADING else order for order, cut in pairs)


def _each_part_of(
    kernel: Kernel, axis: str, samples: int, cuts: tuple[int, ...], name: str = "part_of"
) -> Kernel:
    """The kernel for each part. A variant gets the options of the kernel, too: what it calls has a name of its own."""
    options = {
        name: kernel.function,
        "part_axis": axis,
        "part_samples": samples,
        "part_cuts": cuts,
    }
    options |= kernel.options
    variant = kernel.cuda
    cuda = variant and _each_part_of(variant, axis, samples, cuts, "part_on_cuda")
    return replace(
        kernel, function=_each_part, options=options, cuda=cuda, together=None, expression=None
    )


def _each_part(
    ctx: Context,
    *arrays: Array,
    part_of: Function,
    part_axis: str,
    part_samples: int,
    part_cuts: Sequence[int],
    part_on_cuda: Function | None = None,
    **options: object,
) -> None:
    """Call a kernel on every part of what a point has, on a GPU its variant; `part_samples`: of each part."""
    first, end = ctx.interval(part_axis)
    for number in range(first, end):
        views = []
        rects = []
        for k, (array, cut) in enumerate(zip(arrays, part_cuts, strict=True)):
            size = 1 if cut < 0 else array.shape[cut] // (end - first)
            samples = slice((number - first) * size, (number - first + 1) * size)
            index = {WHOLE: (...,), LEADING: (number - first, ...)}.get(
                cut, (*[slice(None)] * cut, samples)
            )
            views.append(array[index])
            rects.append(_cut(ctx.rect(k), cut, samples))
        intervals = {
            **ctx.boxes()[1],
            part_axis: (number * part_samples, (number + 1) * part_samples),
        }
        (part_on_cuda or part_of)(ctx.part(rects, intervals), *views, **options)


def _cut(rect: Rect, cut: int, part: slice) -> Rect:
    """The box of a part in the coordinates of what was not cut into parts."""
    if cut == WHOLE:
        return rect
    if cut == LEADING:
        return Rect(rect.lo[1:], rect.hi[1:])
    lo = rect.lo[cut] + part.start
    hi = rect.lo[cut] + part.stop
    return Rect(
        (*rect.lo[:cut], lo, *rect.lo[cut + 1 :]), (*rect.hi[:cut], hi, *rect.hi[cut + 1 :])
    )
