"""Weights and buffers back to torch: the inverse of `from_torch_state`, whatever that does to shapes and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from ops.torch.export_reader import first_names
from ops.torch.peer import array_of
from ops.torch.state import parts_of
from taskflow import Array, Executor


def to_torch(step: Executor | Mapping[str, Array], module: Any) -> dict[str, Any]:
    """The `state_dict()` of a module with the weights that an executor has trained: for `load_state_dict`, strict.

    What the graph does not have (weights and buffers that forward does not read) is as in the module. Tied weights are
    equal. The module itself is not changed. All ranks call it.

    Args:
        step: of the graph that `from_torch` made of the module, or the values of its regions by name.
        module: the same module, or another one of its kind.

    Raises:
        ValueError: a region has another shape than its tensor, or none of the module's parameters is there.

    >>> import numpy as np, torch, ops
    >>> fc = torch.nn.Linear(2, 1, bias=False)
    >>> fc.load_state_dict(ops.to_torch({"weight": np.ones((1, 2), "float32")}, fc), strict=True)
    <All keys matched successfully>
    """
    import torch

    state = module.state_dict()
    first = first_names(module)
    read, trained = _reader_of(step)
    elements = parts_of(
        _numbered({name: t for name, t in state.items() if first.get(name, name) == name})
    )
    flat = {
        name: array_of(t).copy().reshape(-1)
        for name, t in state.items()
        if first.get(name, name) == name
    }
    starts = dict(zip(flat, np.cumsum([0, *(a.size for a in flat.values())]).tolist()))
    names = list(starts)
    begins = np.array(list(starts.values()))
    is_any = False
    for region, numbers in elements.items():
        if region not in trained:
            continue
        value = read(region)
        if value.shape != numbers.shape:
            raise ValueError(
                f"to_torch: '{region}' is {value.shape}, the module's is {numbers.shape}"
            )
        if value.size:
            name = names[int(np.searchsorted(begins, numbers.flat[0], "right")) - 1]
            flat[name][numbers.reshape(-1) - starts[name]] = value.reshape(-1).astype(
                flat[name].dtype
            )
        is_any = True
    if not is_any and any(t.numel() for t in state.values()):
        raise ValueError(
            f"to_torch: none of the module's parameters is there: {', '.join(list(state)[:3])}, ..."
        )
    made = {}
    for name, tensor in state.items():
        array = flat[first.get(name, name)].reshape(tuple(tensor.shape))
        wide = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
        made[name] = torch.tensor(wide, dtype=tensor.dtype, device=tensor.device)
    return made


def _reader_of(step: Executor | Mapping[str, Array]) -> tuple[Callable[[str], Array], set[str]]:
    if isinstance(step, Mapping):
        return lambda name: np.asarray(step[name]), set(step)
    return step.read, set(step.persistent)


def _numbered(state: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays of the tensors' shapes whose elements are counted through all of them."""
    numbered = {}
    start = 0
    for name, tensor in state.items():
        shape = tuple(tensor.shape)
        numbered[name] = np.arange(start, start + prod(shape)).reshape(shape)
        start += prod(shape)
    return numbered
