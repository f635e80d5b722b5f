"""An exported module as a functional graph of calls that have a rule here, as far as torch can take the others apart.

torch.export's shapes are not believed: the graph runs once on the example, and every node gets what came out. (Up to
torch 2.11 the states of nn.LSTM have another shape in the export than in truth.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ops.torch.exporting import quiet
from ops.torch.places import place
from ops.torch.refusals import one_line

# torch forgets what tables say of gradients; the weights of recurrent layers are cut into gates
_NOT_APART = {
    f"aten::{name}"
    for name in ("embedding", "embedding_bag", "lstm", "gru", "rnn_tanh", "rnn_relu")
}
_log = logging.getLogger(__name__)


class Refused(ValueError):
    """A rule refuses a call; torch may write it by others."""

    def __init__(self, target: Any, message: str) -> None:
        super().__init__(message)
        self.target = target


@dataclass(frozen=True)
class Exported:
    """A functional graph.

    Attributes:
        nodes: of the graph, in order.
        results: node -> what came out on the example, tensors without their memory.
        parameters, buffers: name of a placeholder -> its name in the module.
        constants: name of a placeholder -> the tensor.
        updated: the buffers that the first results are new values of.
        origins: source of a call that torch has taken apart -> what was called there.
    """

    nodes: Sequence[Any]
    results: Mapping[Any, Any]
    parameters: Mapping[str, str]
    buffers: Mapping[str, str]
    constants: Mapping[str, Any]
    updated: Sequence[str]
    origins: Mapping[str, str]


def taken_apart(program: Any, is_known: Callable[[Any], bool], refused: frozenset[Any]) -> Any:
    """The program without calls that are not known or that a rule has refused, where torch can write them by others.

    The table has all such calls, not those of the program alone: what comes of one is taken apart in the same run.
    """
    from torch._decomp import decomposition_table

    def is_wanted(target: Any) -> bool:
        return target in refused or not is_known(target)

    called = {node.target for node in program.graph.nodes if hasattr(node.target, "_schema")}
    if not any(map(decomposition_of, filter(is_wanted, called))):
        return program
    targets = [t for t in (*_composite(), *decomposition_table) if is_wanted(t)]
    return _decomposed(
        program, {t: decomposition for t in targets if (decomposition := decomposition_of(t))}
    )


def _decomposed(program: Any, table: dict[Any, Any]) -> Any:
    """The program itself where torch fails to take calls apart: they are then said to have no operator."""
    try:
        with quiet():
            return program.run_decompositions(table)
    except Exception as error:
        _log.info("torch cannot take %s apart: %s", ", ".join(map(str, table)), error)
        return program


def decomposition_of(target: Any) -> Callable[..., Any] | None:
    """How torch writes a call by others, if it does."""
    import torch
    from torch._decomp import decomposition_table

    if not isinstance(target, torch._ops.OpOverload) or target._schema.name in _NOT_APART:
        return None
    composite = _composite()
    decomposition: Callable[..., Any] | None = (
        composite[target] if target in composite else decomposition_table.get(target)
    )
    return decomposition


@cache
def _composite() -> Any:
    """torch's own table takes half a second to make."""
    import torch

    return torch.export.default_decompositions()


def origins_of(program: Any, is_known: Callable[[Any], bool]) -> dict[str, str]:
    """Source -> the call there that has no rule."""
    nodes = [
        n for n in program.graph.nodes if hasattr(n.target, "_schema") and not is_known(n.target)
    ]
    return {node.stack_trace: place(node) for node in reversed(nodes) if node.stack_trace}


def run_once(
    program: Any, module: Any, example: Sequence[Any], origins: Mapping[str, str]
) -> Exported:
    """The program's graph, with what came out of every node on the example.

    Raises:
        ValueError: it does not run.
    """
    signature = program.graph_signature
    tensors = _held(program, module)
    results = _results(program, _fed(program, tensors, example))
    return Exported(
        list(program.graph.nodes),
        results,
        signature.inputs_to_parameters,
        signature.inputs_to_buffers,
        {name: tensors[name] for name in signature.inputs_to_lifted_tensor_constants},
        list(signature.buffers_to_mutate.values()),
        origins,
    )


def _held(program: Any, module: Any) -> dict[str, Any]:
    """Placeholder -> its tensor, for those that the module or the program holds."""
    signature = program.graph_signature
    parameters = signature.inputs_to_parameters.items()
    buffers = signature.inputs_to_buffers.items()
    constants = signature.inputs_to_lifted_tensor_constants.items()
    return {
        **{k: module.get_parameter(name) for k, name in parameters},
        **{k: module.get_buffer(name) for k, name in buffers},
        **{k: program.constants[name] for k, name in constants},
    }


def _fed(program: Any, tensors: Mapping[str, Any], example: Sequence[Any]) -> list[Any]:
    """The values of all placeholders, in order."""
    names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    if sum(name not in tensors for name in names) != len(example):
        raise ValueError(
            "from_torch: forward looks at values beside computing (a check of them, a print)"
        )
    rest = iter(example)
    return [tensors[name] if name in tensors else next(rest) for name in names]


def _results(program: Any, values: Sequence[Any]) -> Mapping[Any, Any]:
    import torch

    runner = _runner()(program.graph_module)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), quiet():
            runner.run(*values)
    except Exception as error:
        raise ValueError(
            f"from_torch: what torch.export makes of the module does not run: {one_line(error)}"
        ) from error
    return dict(runner.results)


def _runner() -> Any:
    from torch import fx

    class Runner(fx.Interpreter):  # type: ignore[misc]
        """Runs a graph and notes the shape and dtype of every result."""

        def __init__(self, module: Any) -> None:
            super().__init__(module)
            self.results = dict[Any, Any]()

        def run_node(self, node: Any) -> Any:
            value = super().run_node(node)
            self.results[node] = _without_memory(value)
            return value

    return Runner


def _without_memory(value: Any) -> Any:
    import torch

    if isinstance(value, tuple | list):
        return [_without_memory(v) for v in value]
    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    return value
