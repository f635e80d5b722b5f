"""A torch module as a graph: traced by torch.fx, node by node through the tables of `rules`.

torch is imported here alone, and only when the function is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ops.torch.rules import Missing, Rule, Unsupported, call_rule, dtype_of, module_rule
from ops.torch.state import from_torch_state
from taskflow import Array, Executor, Graph, LogicalRegion


@dataclass(frozen=True)
class Imported:
    """What became of a module.

    Attributes:
        graph: of its forward computation; append a loss and an optimizer to it, or fetch outputs from it.
        inputs: the regions to be fed, by the names of the arguments of `forward`.
        outputs: the regions that `forward` returns.
        weights: the values of parameters and states, by region name.
    """

    graph: Graph
    inputs: dict[str, LogicalRegion]
    outputs: tuple[LogicalRegion, ...]
    weights: dict[str, Array]

    @property
    def output(self) -> LogicalRegion:
        """The only region that `forward` returns.

        Raises:
            ValueError: it returns several.
        """
        if len(self.outputs) != 1:
            raise ValueError(f"from_torch: the module has {len(self.outputs)} outputs, not one")
        return self.outputs[0]

    def load(self, step: Executor) -> None:
        """Give an executor the module's weights."""
        for name, value in self.weights.items():
            step.write(name, value)


def from_torch(module: Any, example_inputs: Any) -> Imported:
    """The forward computation of a torch module as a graph, and its weights.

    Operators are called as the submodules, so that parameters have the names of `state_dict()` (see
    `from_torch_state` for recurrent layers and attention). Dropout and batch norm are as `module.training` says.

    Args:
        module: a torch.nn.Module that torch.fx can trace: no control flow that depends on values.
        example_inputs: the tensors, or the only one, that `forward` takes; their shapes and dtypes are the graph's.

    Raises:
        ValueError: a node has no operator here, or not with its arguments: all such nodes are named with their source
            lines. Or two calls share a parameter, or one does not fit its input.
    """
    nodes, modules = list(_trace(module).nodes), dict(module.named_modules())
    _check_not_tied(module, [node.target for node in nodes if node.op == "call_module"])
    unknown = [_place(node) for node in nodes if node.op.startswith("call") and _rule(node, modules) is None]
    if unknown:
        raise ValueError("from_torch: there is no operator for\n" + "\n".join(f"  {each}" for each in unknown))
    examples = iter(example_inputs if isinstance(example_inputs, tuple | list) else [example_inputs])
    graph, values = Graph(), dict[Any, Any]()
    inputs: dict[str, LogicalRegion] = {}
    outputs: Sequence[Any] = ()
    for node in nodes:
        if node.op == "placeholder":
            if (example := next(examples, None)) is None:
                raise ValueError(f"from_torch: example_inputs has no tensor for the argument '{node.name}'")
            values[node] = inputs[node.name] = graph.input(node.name, tuple(example.shape), dtype_of(example))
        elif node.op == "output":
            result = _resolve(node.args[0], values)
            outputs = result if isinstance(result, tuple | list) else (result,)
        else:
            values[node] = _call(node, graph, module, modules, values)
    return Imported(graph, inputs, tuple(outputs), _weights(graph, module))


def _weights(graph: Graph, module: Any) -> dict[str, Array]:
    found = {k: v for k, v in from_torch_state(module.state_dict()).items() if k in graph.regions}
    for name, value in found.items():
        shape = graph.regions[name].shape
        if value.shape != shape:
            raise ValueError(f"from_torch: '{name}' is {value.shape} in the module, its input makes it {shape}")
    return found


def _trace(module: Any) -> Any:
    from torch import fx

    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    return tracer.trace(module)


def _check_not_tied(module: Any, called: Sequence[str]) -> None:
    """A parameter is made by one operator; only those that forward reads itself may be read twice."""
    for name in sorted({name for name in called if called.count(name) > 1}):
        if any(True for _ in module.get_submodule(name).parameters()):
            raise ValueError(
                f"from_torch: module '{name}' is called {called.count(name)} times with one set of weights"
            )
    names: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        other = names.setdefault(id(parameter), name)
        if other != name:
            raise ValueError(
                f"from_torch: '{other}' and '{name}' are one parameter: let forward read it from one module, as in "
                f"torch.nn.functional.linear(x, self.{other})"
            )


def _rule(node: Any, modules: dict[str, Any]) -> Rule | None:
    """What computes a call from its arguments."""
    if node.op != "call_module":
        return call_rule(node.target)
    module = modules[node.target]
    rule = module_rule(module)
    return rule and partial(rule, module, node.target)


def _call(node: Any, graph: Graph, module: Any, modules: dict[str, Any], values: dict[Any, Any]) -> Any:
    if node.op == "get_attr":
        return _attribute(graph, module, node.target)
    args, kwargs = _resolve(node.args, values), _resolve(node.kwargs, values)
    try:
        _check_found([*args, *kwargs.values()], node)
        rule = _rule(node, modules)
        assert rule is not None
        return rule(*args, **kwargs)
    except (Unsupported, ValueError, TypeError) as error:
        raise ValueError(f"from_torch: {_place(node)}: {error}") from error


def _check_found(args: Sequence[Any], node: Any) -> None:
    if getattr(node.target, "__name__", "") != "getitem":
        for value in args:
            if isinstance(value, Missing):
                raise Unsupported(f"{value.what} is not computed")


def _attribute(graph: Graph, module: Any, target: str) -> LogicalRegion:
    """A parameter or buffer that forward reads itself."""
    if target in graph.regions:
        return graph.regions[target]
    parent, _, name = target.rpartition(".")
    tensor = getattr(module.get_submodule(parent), name)
    return graph.parameter(target, tuple(tensor.shape), 0.0, dtype_of(tensor), bool(tensor.requires_grad))


def _resolve(value: Any, values: dict[Any, Any]) -> Any:
    """Arguments of a node with the values of other nodes in their places."""
    if isinstance(value, tuple | list):
        return tuple(_resolve(v, values) for v in value)
    if isinstance(value, slice):
        return slice(*(_resolve(v, values) for v in (value.start, value.stop, value.step)))
    if isinstance(value, dict):
        return {k: _resolve(v, values) for k, v in value.items()}
    return values[value] if value.__hash__ is not None and value in values else value


def _place(node: Any) -> str:
    """What a node calls, and the last source line on the way there that is not torch's own."""
    import torch

    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    own = str(Path(torch.__file__).parent)
    lines = (node.stack_trace or "").splitlines()
    frames = [(k, line.strip()) for k, line in enumerate(lines) if line.strip().startswith('File "')]
    outside = [(k, frame) for k, frame in frames if not frame.removeprefix('File "').startswith((own, "<"))]
    if not outside:
        return f"{node.op} '{name}'"
    k, frame = outside[-1]
    where = ", ".join(frame.split(", ")[:2]).removeprefix("File ")
    return f"{node.op} '{name}' ({where}: {lines[k + 1].strip() if k + 1 < len(lines) else ''})"
