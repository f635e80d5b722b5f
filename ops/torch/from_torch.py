"""A torch module as a graph: what torch.export says of its forward, call by call through the tables of `aten`.

Weights keep the names of `state_dict()`; tied ones are one region, and those that need no gradient are states. What
comes of it is compared with torch (see `compare`).

torch is imported by this package alone, and only when the function is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ops.building import takes_old
from ops.torch.apart import Refused, decomposition_of, origins_of, run_once, taken_apart
from ops.torch.compare import compare as compared
from ops.torch.export_reader import ExportReader, is_known
from ops.torch.exporting import export
from ops.torch.imported import Imported
from ops.torch.peer import changed_weights, near
from ops.torch.purity import only_computing, without_dropout


@takes_old("check", "use compare=", lambda value: {"compare": value})
def from_torch(module: Any, example_inputs: Any, *, compare: bool = True) -> Imported:
    """The forward computation of a torch module as a graph, and its weights.

    Operators are called as the submodules, so that parameters have the names of `state_dict()` (see
    `from_torch_state` for recurrent layers and attention). Dropout and batch norm are as `module.training` says. What
    has no gradient in torch (`requires_grad=False`, or only read under `torch.no_grad()`) is a state, which no
    optimizer changes; tied weights are one region; tensors that are no parameters are constants.

    Args:
        module: a torch.nn.Module that torch.export can follow: no control flow that depends on values.
        example_inputs: the tensors, or the only one, that `forward` takes, or a dict of its keyword arguments; their
            shapes and dtypes are the graph's.
        compare: outputs, gradients and buffers with torch's on the example inputs, and on others of their shapes
            (zeros, ties, kinks, large numbers, masks full and empty), with weights near the module's and without
            dropout; and refuse what changes attributes or draws random numbers.

    Raises:
        TypeError: `module` is no torch.nn.Module.
        ValueError: a call has no operator here, or not with its arguments: all such calls are named with their source
            lines. Or a parameter does not fit its input or shares a part of its memory with another one; forward reads
            what it has changed in place; or what comes out differs from torch.
    """
    import torch

    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"from_torch: the module is a {type(module).__name__}, a torch.nn.Module is needed"
        )
    args, kwargs = _apart(_arguments(example_inputs))
    _check_tensors(module, args, kwargs)
    if not compare:
        return _read(module, args, kwargs)[0]
    return _as_torch(module, args, kwargs)


def _as_torch(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Imported:
    """What is read, compared with torch; parameters without a gradient there are states."""
    import torch

    with only_computing(module):
        imported, other = _read(module, args, kwargs)
    inputs, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    with changed_weights(module, near), without_dropout(), only_computing(module):
        frozen = compared(module, inputs, spec, other.imported())
    return imported.with_regions(
        {
            name: replace(imported.graph.regions[name], role="state")
            for name in frozen
            if name in imported.graph.regions
        },
        imported.weights,
    )


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    return (
        tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    ), {}


def _apart(arguments: Any) -> Any:
    """The arguments with a copy of each tensor that is given twice: torch.export would take both for one input."""
    import torch

    met = list[Any]()

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        is_met = any(value is other for other in met)
        met.append(value)
        return value.detach().clone() if is_met else value

    return torch.utils._pytree.tree_map(copied, arguments)


def _check_tensors(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """ValueError for weights without a shape, and for inputs whose numbers are not there one by one."""
    import torch

    for name, p in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(p, torch.nn.parameter.UninitializedTensorMixin):
            raise ValueError(f"from_torch: '{name}' has no shape before the module's first call")
    for x in torch.utils._pytree.tree_leaves((args, kwargs)):
        if isinstance(x, torch.Tensor) and (
            x.layout != torch.strided or x.is_quantized or x.is_complex()
        ):
            raise ValueError(
                f"from_torch: an input is {x.layout} of {x.dtype}, dense real numbers are needed"
            )


def _read(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Imported, ExportReader]:
    """The graph of a module, and the one without dropout, to be compared.

    A call that its rule refuses is taken apart by torch, if that can; what is refused then is said of the call itself.
    """
    import torch

    program = export(module, args, kwargs)
    example = torch.utils._pytree.tree_leaves((args, kwargs))
    refused = frozenset[Any]()
    first = None
    origins = origins_of(program, is_known)
    while True:
        try:
            exported = run_once(taken_apart(program, is_known, refused), module, example, origins)
            return (
                ExportReader(module, exported).read().imported(),
                ExportReader(module, exported, is_dropping=False).read(),
            )
        except Refused as error:
            first = first or error
            if error.target in refused or not decomposition_of(error.target):
                raise first from error
            refused |= {error.target}
        except ValueError as error:
            raise (first or error) from error
