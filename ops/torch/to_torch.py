"""Weights and buffers back to torch: the inverse of `from_torch_state`, whatever that does to shapes and names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    state = module.state_dict()
    first = first_names(module)
    untied = {name: tensor for name, tensor in state.items() if first.get(name, name) == name}
    flat = {name: array_of(tensor).copy().reshape(-1) for name, tensor in untied.items()}
    written = _write(list(flat.values()), _values(step, parts_of(_numbered(untied))))
    if not written and any(tensor.numel() for tensor in state.values()):
        raise ValueError(
            f"to_torch: none of the module's parameters is there: {', '.join(list(state)[:3])}, ..."
        )
    return {name: _like(tensor, flat[first.get(name, name)]) for name, tensor in state.items()}


def _values(
    step: Executor | Mapping[str, Array], elements: Mapping[str, Array]
) -> Iterator[tuple[Array, Array]]:
    """Of each region that is there the numbers of its elements, and its values."""
    read, trained = _reader_of(step)
    for region, numbers in elements.items():
        if region in trained:
            value = read(region)
            if value.shape != numbers.shape:
                raise ValueError(
                    f"to_torch: '{region}' is {value.shape}, the module's is {numbers.shape}"
                )
            yield numbers.reshape(-1), value.reshape(-1)


def _write(arrays: Sequence[Array], values: Iterable[tuple[Array, Array]]) -> int:
    """Put values where their numbers say, counted through all arrays; how many regions there were."""
    begins = np.cumsum([0, *(a.size for a in arrays)])
    count = 0
    for numbers, value in values:
        count += 1
        if value.size:
            k = int(np.searchsorted(begins, numbers[0], "right")) - 1
            arrays[k][numbers - begins[k]] = value.astype(arrays[k].dtype)
    return count


def _like(tensor: Any, flat: Array) -> Any:
    """A tensor of the same kind with these elements."""
    import torch

    array = flat.reshape(tuple(tensor.shape))
    wide = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    return torch.tensor(wide, dtype=tensor.dtype, device=tensor.device)


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
