"""A torch module as a graph: what torch.export says of its forward, call by call through the tables of `aten`.

Where torch.export cannot follow a module, torch.fx may (see `fx_reader`). Weights keep the names of `state_dict()`;
tied ones are one region, and those that need no gradient are states. What comes of it is compared with torch (see
`compare`).

torch is imported by this package alone, and only when the function is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ops.torch import fx_reader
from ops.torch.compare import array_of, compare
from ops.torch.export_reader import ExportReader
from ops.torch.exporting import DataDependent, export
from ops.torch.imported import Imported
from ops.torch.tracing import only_computing, without_dropout


def from_torch(module: Any, example_inputs: Any, check: bool = True) -> Imported:
    """The forward computation of a torch module as a graph, and its weights.

    Operators are called as the submodules, so that parameters have the names of `state_dict()` (see
    `from_torch_state` for recurrent layers and attention). Dropout and batch norm are as `module.training` says. What
    has no gradient in torch (`requires_grad=False`, or only read under `torch.no_grad()`) is a state, which no
    optimizer changes; tied weights are one region; tensors that are no parameters are constants.

    Args:
        module: a torch.nn.Module that torch.export or torch.fx can trace: no control flow that depends on values.
        example_inputs: the tensors, or the only one, that `forward` takes, or a dict of its keyword arguments; their
            shapes and dtypes are the graph's.
        check: compare outputs, gradients and buffers with torch's on the example inputs, with weights near the module's
            and without dropout, and refuse what changes attributes or draws random numbers.

    Raises:
        ValueError: a call has no operator here, or not with its arguments: all such calls are named with their source
            lines. Or a parameter does not fit its input or shares a part of its memory with another one; forward reads
            what it has changed in place; or what comes out differs from torch.
    """
    args, kwargs = _arguments(example_inputs)
    if not check:
        return _read(module, args, kwargs, False)[0]
    with only_computing(module):
        imported, other = _read(module, args, kwargs, True)
        assert other is not None
    with _other_weights(module), without_dropout(module), only_computing(module):
        examples = {r.name: array_of(x) for r, x in zip(other.inputs.values(), _tensors((args, kwargs)), strict=True)}
        values = examples | other.weights()
        frozen = compare(module, args, kwargs, other.graph, other.outputs, values)
    regions = imported.graph.regions
    states = {name: replace(regions[name], role="state") for name in frozen if name in regions}
    return imported.with_regions(states, imported.weights)


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    return (tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)), {}


def _tensors(value: Any) -> list[Any]:
    import torch

    return [x for x in torch.utils._pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def _read(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_compared: bool) -> tuple[Imported, Any]:
    """The graph of a module; and to be compared, its graph without dropout, with weights as they are then."""
    try:
        exported = export(module, args, kwargs)
    except DataDependent:
        raise
    except ValueError as refusal:
        try:
            return _read_by_fx(module, args, kwargs, is_compared)
        except ValueError as error:
            raise refusal from error
    made = ExportReader(module, exported).read()
    return made.imported(), ExportReader(module, exported, is_dropping=False).read() if is_compared else None


def _read_by_fx(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], is_compared: bool) -> tuple[Imported, Any]:
    """As torch.fx has it."""
    if kwargs:
        raise ValueError("from_torch: torch.fx takes no keyword arguments")
    imported = fx_reader.FxReader(module, args).read()
    if not is_compared:
        return imported, None
    with without_dropout(module):
        other = fx_reader.FxReader(module, args).read()
    return imported, fx_reader.Compared(module, args, other)


@contextmanager
def _other_weights(module: Any) -> Iterator[None]:
    """Weights near those of the module, and none is zero: what is multiplied by zero cannot be compared."""
    import torch

    parameters = [(p, p.detach().clone()) for p in module.parameters()]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p, value in parameters:
            drawn = torch.rand(value.shape, generator=generator).to(value)
            p.copy_(torch.where(value == 0, 0.05 * drawn + 0.01, value * (0.95 + 0.1 * drawn)))
    try:
        yield
    finally:
        with torch.no_grad():
            for p, value in parameters:
                p.copy_(value)
