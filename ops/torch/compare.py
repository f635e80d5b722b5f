"""An imported module beside torch itself: outputs and gradients on the example inputs.

Takes the module, the example inputs and what was read of it; gives the parameters that have no gradient in torch. The
graph runs here operator by operator on whole arrays, without a machine and without other ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ops.elementwise.arithmetic import add, multiply
from ops.reduce.reductions import sum_to
from ops.torch.rules import dtype_of
from ops.torch.state import from_torch_state
from taskflow import Array, Context, Graph, LogicalRegion, differentiate, replace_regions

_TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}  # of the largest value


def array_of(tensor: Any) -> Array:
    """The tensor's values; they share its memory where it is that of the host."""
    tensor = tensor.detach().cpu()
    found: Array = tensor.float().numpy().astype("bfloat16") if dtype_of(tensor) == "bfloat16" else tensor.numpy()
    return found


def compare(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    graph: Graph,
    outputs: Sequence[LogicalRegion],
    values: Mapping[str, Array],
) -> list[str]:
    """The parameters of the graph that have no gradient in torch; `values` are those of inputs and weights by name.

    Raises:
        ValueError: an output, a gradient or a buffer differs from torch's, or a gradient has a hook.
    """
    import torch

    if hooked := [name for name, p in module.named_parameters() if p._post_accumulate_grad_hooks]:
        raise ValueError(f"from_torch: the gradient of '{hooked[0]}' has a hook, which is not supported")
    kept = dict(module.named_parameters()) | {name: b.detach().clone() for name, b in module.named_buffers()}
    with torch.enable_grad():
        result = torch.func.functional_call(module, kept, tuple(args), dict(kwargs))
        expected = [x for x in torch.utils._pytree.tree_leaves(result) if x is not None]
    found = evaluate(graph, values)
    if len(expected) != len(outputs):
        raise ValueError(f"from_torch: forward returns {len(expected)} tensors, the graph has {len(outputs)}")
    coarsest = _coarsest(graph)
    for k, (region, tensor) in enumerate(zip(outputs, expected)):
        _check_alike(f"output {k}", found[region.name], array_of(tensor), coarsest)
    for name in dict(module.named_buffers()).keys() & found.keys():
        _check_alike(f"the buffer '{name}'", found[name], array_of(kept[name]), coarsest)
    return _compare_gradients(module, list(zip(outputs, expected)), replace_regions(graph, {}), values)


def _compare_gradients(
    module: Any, outputs: Sequence[tuple[LogicalRegion, Any]], graph: Graph, values: Mapping[str, Array]
) -> list[str]:
    """Of the sum of all outputs, each times random numbers; `graph` is a copy that becomes longer."""
    import torch

    parameters, random = dict(module.named_parameters()), np.random.default_rng(0)
    trained = [name for name, p in parameters.items() if p.requires_grad]
    ours, theirs, probes = list[LogicalRegion](), list[Any](), dict[str, Array]()
    for k, (region, tensor) in enumerate(outputs):
        if tensor.requires_grad:
            probe = graph.input(f"probe {k}", region.shape, region.dtype)
            probes[probe.name] = random.standard_normal(region.shape).astype(region.dtype)
            ours.append(sum_to(multiply(graph.regions[region.name], probe), ()))
            factors = probes[probe.name].astype(float)
            theirs.append((tensor * torch.tensor(factors, dtype=tensor.dtype, device=tensor.device)).sum())
    if not ours or not trained:
        return [r.name for r in graph.parameters]
    made = torch.autograd.grad(sum(theirs), [parameters[name] for name in trained], allow_unused=True)
    given = {name: g for name, g in zip(trained, made) if g is not None}
    has = from_torch_state({name: np.full(p.shape, name in given) for name, p in parameters.items()})
    if missed := [name for name, flags in has.items() if flags.any() and name not in graph.regions]:
        raise ValueError(f"from_torch: '{missed[0]}' has a gradient in torch, and is not in the graph")
    wanted = [r for r in graph.parameters if has[r.name].any()]
    zeros = {name: torch.zeros_like(p) for name, p in parameters.items()}
    of_torch = from_torch_state({name: array_of(given.get(name, zeros[name])) for name in parameters})
    gradients = differentiate(reduce(add, ours), wanted)
    found = evaluate(graph, {**values, **probes})
    largest = max((float(np.abs(value).max(initial=0.0)) for value in of_torch.values()), default=0.0)
    coarsest = _coarsest(graph)
    for region in wanted:
        name, value = region.name, found[gradients[region].name]
        _check_alike(f"the gradient of '{name}'", value, of_torch[name], coarsest, largest)
    return [r.name for r in graph.parameters if not has[r.name].any()]


def _coarsest(graph: Graph) -> float:
    """The tolerance of the coarsest dtype: what is float64 in the end may have been float32 before."""
    return max(_TOLERANCES.get(region.dtype, 0.0) for region in graph.regions.values())


def _check_alike(what: str, found: Array, expected: Array, coarsest: float, largest: float = 0.0) -> None:
    """ValueError unless they agree up to rounding, by their own largest value or a larger one."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        there = f"torch's is {expected.dtype} {expected.shape}"
        raise ValueError(f"from_torch: {what} is {found.dtype} {found.shape}, {there}")
    ours, theirs = (a.astype(np.float64) for a in (found, expected))
    largest = max(largest, float(np.abs(theirs).max(initial=0.0, where=np.isfinite(theirs))))
    tolerance = (coarsest if found.dtype.name in _TOLERANCES else 0.0) * largest
    wrong = ~np.isclose(ours, theirs, rtol=0, atol=tolerance, equal_nan=True)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0].tolist())
        differing = f"{np.count_nonzero(wrong)} of {wrong.size} elements, at {at} {ours[at]:.6g} for {theirs[at]:.6g}"
        raise ValueError(f"from_torch: {what} differs from torch's in {differing}")


def evaluate(graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """The value of every region after one step, from those of inputs, parameters and states."""
    found = {r.name: np.array(values[r.name], r.dtype) for r in graph.regions.values() if r.name in values}
    for op in graph.operators:
        found.update({r.name: np.empty(r.shape, r.dtype) for r in op.outputs})
        written = [*(k in op.writes for k in range(len(op.inputs))), *(True for _ in op.outputs)]
        rects = [op.bound.rect(k, {}) for k in range(len(op.args))]
        arrays = [found[r.name][rect.slices()] for r, rect in zip(op.args, rects)]
        for array, is_written in zip(arrays, written):
            array.flags.writeable = is_written  # kernels are compiled for that
        reads = [k < len(op.inputs) for k in range(len(arrays))]
        context = Context(rects, {axis: (0, extent) for axis, extent in op.extents.items()})
        with np.errstate(all="ignore"):
            op.kernel.for_dtypes(arrays, reads, written)(context, *arrays)
    return found
