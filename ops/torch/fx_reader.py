"""The fall-back: a torch module traced by torch.fx, node by node through the tables of `rules`.

What forward computes without its inputs and parameters (positions, masks, buffers, sizes), torch computes while the
module is read; where it meets a region, it becomes a constant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ops.torch.compare import array_of
from ops.torch.imported import Imported, as_tuple, check_apart, identity
from ops.torch.rules import Missing, Rule, Unsupported, call_rule, dtype_of, module_rule
from ops.torch.state import from_torch_state
from ops.torch.tracing import place, refuse_changed_reads, trace
from taskflow import Array, Graph, LogicalRegion


class FxReader:
    """Reads a module node by node into a graph, as torch.fx traces it."""

    def __init__(self, module: Any, examples: Sequence[Any]) -> None:
        self.module, self.examples, self._next = module, examples, iter(examples)
        self.modules = dict(module.named_modules())
        self.graph, self.values = Graph(), dict[Any, Any]()  # node -> region, what torch computed, or a tuple of these
        self.graph.names |= {name for name, each in self.modules.items() if each.state_dict()}  # no function gets them
        self.inputs: dict[str, LogicalRegion] = {}
        self.constants: dict[str, Array] = {}
        self.unknown: list[str] = []  # nodes without an operator
        self._regions: dict[object, LogicalRegion] = {}  # of parameters that forward reads, and of constants
        self._calls = Counter[str]()
        self._stored: dict[int, tuple[str, Any]] = {}  # tensors that the module keeps, by where they begin

    def read(self) -> Imported:
        """The graph, checked against the module's own tensors."""
        known = set(vars(self.module))
        try:
            graph = trace(self.module)
            imported = self._graph(graph.nodes)
            refuse_changed_reads(self.module, graph, self.examples)
            return imported
        finally:
            for name in set(vars(self.module)) - known:  # torch.fx leaves its constants there
                if name.startswith("_tensor_constant"):
                    delattr(self.module, name)

    def _graph(self, nodes: Any) -> Imported:
        outputs = list[LogicalRegion]()
        for node in nodes:
            if node.op == "placeholder":
                self.values[node] = self.inputs[node.name] = self._input(node.name)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node.target)
            elif node.op == "output":
                outputs = self._outputs(node)
            else:
                self.values[node] = self._call(node)
        if changed := [name for name, tensor in self._stored.values() if tensor._version]:
            raise ValueError(f"from_torch: forward changes '{changed[0]}' in place, which is not supported")
        read = {region.name for op in self.graph.operators for region in op.inputs} | {r.name for r in outputs}
        for name in self.constants.keys() - read:
            del self.constants[name], self.graph.regions[name]
        return self._with_weights(Imported(self.graph, self.inputs, tuple(outputs), {}))

    def _input(self, name: str) -> LogicalRegion:
        if (example := next(self._next, None)) is None:
            raise ValueError(f"from_torch: example_inputs has no tensor for the argument '{name}'")
        return self.graph.input(name, tuple(example.shape), dtype_of(example))

    def _attribute(self, target: str) -> Any:
        """A parameter that forward reads itself; any other tensor as it is."""
        import torch

        parent, _, name = target.rpartition(".")
        tensor = getattr(self.module.get_submodule(parent), name)
        if not isinstance(tensor, torch.nn.Parameter):
            memory = tensor.untyped_storage().data_ptr()
            for other, p in self.module.named_parameters():
                if p.requires_grad and p.untyped_storage().data_ptr() == memory:
                    raise ValueError(f"from_torch: '{target}' and '{other}' share a part of their memory")
            found = tensor.detach().clone()
            self._stored[found.untyped_storage().data_ptr()] = target, found
            return found
        if target not in self._regions:
            self._regions[target] = self.graph.parameter(f"{target}@read", tuple(tensor.shape), 0.0, dtype_of(tensor))
        return self._regions[target]

    def _outputs(self, node: Any) -> list[LogicalRegion]:
        if self.unknown:
            raise ValueError("from_torch: there is no operator for\n" + "\n".join(f"  {each}" for each in self.unknown))
        result = self._resolve(node.args[0])
        found = [self._as_region(r, f"constant.{node.name}") for r in as_tuple(result)]
        for each in found:
            if not isinstance(each, LogicalRegion):
                raise ValueError(f"from_torch: forward returns a {type(each).__name__}, tensors are needed")
        return found

    def _call(self, node: Any) -> Any:
        """A region where regions or parameters go in; else what torch gives."""
        args, kwargs = self._resolve(node.args), self._resolve(node.kwargs)
        given = list(_leaves((args, kwargs)))
        has_weights = node.op == "call_module" and next(self.modules[node.target].parameters(), None) is not None
        try:
            if not has_weights and not any(isinstance(value, LogicalRegion | Missing) for value in given):
                return self._compute(node, args, kwargs)
            rule = self._rule(node)
            if rule is None:
                self.unknown.append(place(node))
            if rule is None or self.unknown:
                return Missing(node.name)
            if getattr(node.target, "__name__", "") != "getitem":
                for value in given:
                    if isinstance(value, Missing):
                        raise Unsupported(f"{value.what} is not computed")
            as_region = partial(self._as_region, name=f"constant.{node.name}")
            return rule(*_mapped(as_region, args), **_mapped(as_region, kwargs))
        except (Unsupported, ValueError, TypeError, AttributeError, RuntimeError, IndexError) as error:
            raise ValueError(f"from_torch: {place(node)}: {error}") from error

    def _rule(self, node: Any) -> Rule | None:
        """What computes a call from its arguments; a module with weights has another name at every call."""
        if node.op != "call_module":
            return call_rule(node.target)
        module, name = self.modules[node.target], node.target
        rule = module_rule(module)
        if module.state_dict():
            self.graph.names.discard(name)
            self._calls[name] += 1
            name += f"@{self._calls[name]}" if self._calls[name] > 1 else ""
        return rule and partial(rule, module, name)

    def _compute(self, node: Any, args: Any, kwargs: Any) -> Any:
        """What torch gives."""
        import torch

        with torch.no_grad():
            if node.op == "call_method":
                return getattr(args[0], node.target)(*args[1:], **kwargs)
            return (self.modules[node.target] if node.op == "call_module" else node.target)(*args, **kwargs)

    def _as_region(self, value: Any, name: str) -> Any:
        """A tensor as a constant, one without dimensions as a number; anything else as it is."""
        import torch

        if not isinstance(value, torch.Tensor):
            return value
        if not value.ndim:
            return value.item()
        key = value.untyped_storage().data_ptr(), value.storage_offset(), tuple(value.shape), value.stride()
        if (*key, value._version) not in self._regions:
            whole = value.numel() * value.element_size() == value.untyped_storage().nbytes()
            name = self._stored.get(key[0], (name, None))[0] if whole else name
            while name in self.constants:
                name += "'"
            self.constants[name] = array_of(value).copy()
            region = self.graph.parameter(name, tuple(value.shape), 0.0, dtype_of(value), trainable=False)
            self._regions[*key, value._version] = region
        return self._regions[*key, value._version]

    def _resolve(self, value: Any) -> Any:
        """Arguments of a node with the values of other nodes in their places."""
        return _mapped(lambda v: self.values[v] if v.__hash__ is not None and v in self.values else v, value)

    def _with_weights(self, imported: Imported) -> Imported:
        """With the values of parameters and states; each has the name under which torch has it first."""
        module, regions = self.module, imported.graph.regions
        tensors = dict(module.named_parameters(remove_duplicate=False))
        arrays = {id(t): array_of(t) for t in (*tensors.values(), *module.buffers())}
        tensors |= dict(module.named_buffers(remove_duplicate=False))
        raw = {name: arrays[id(t)] for name, t in tensors.items()}
        parts = from_torch_state(raw)
        trained = from_torch_state({name: np.full(t.shape, t.requires_grad) for name, t in tensors.items()})
        first: dict[object, str] = {}
        for name, value in parts.items():
            first.setdefault(identity(value), name)
        changed, weights = dict[str, LogicalRegion](), dict(self.constants)
        for region in regions.values():
            own = re.sub("@[a-z0-9]+", "", region.name)
            if not region.is_persistent or region.name in self.constants:
                continue
            if (found := parts.get(own, raw.get(own))) is None:
                raise ValueError(f"from_torch: the module has no '{own}': is it computed before forward?")
            if found.shape != region.shape:
                raise ValueError(
                    f"from_torch: '{own}' is {found.shape} in the module, its input makes it {region.shape}"
                )
            name = first.setdefault(identity(found), own)
            role = region.role if trained.get(own, np.ones(1)).all() else "state"
            changed[region.name], weights[name] = replace(region, name=name, role=role), found
        check_apart({name: weights[name] for name in {r.name: 0 for r in changed.values()}})
        return imported.with_regions(changed, {name: value.copy() for name, value in weights.items()})


@dataclass(frozen=True)
class Compared:
    """A module without dropout, as it is read again with other weights."""

    module: Any
    examples: Sequence[Any]
    first: Imported

    @property
    def graph(self) -> Graph:
        """Of the first reading; weights change no operator."""
        return self.first.graph

    @property
    def inputs(self) -> dict[str, LogicalRegion]:
        """Of the first reading."""
        return self.first.inputs

    @property
    def outputs(self) -> tuple[LogicalRegion, ...]:
        """Of the first reading."""
        return self.first.outputs

    def weights(self) -> dict[str, Array]:
        """Of the module as it is now."""
        return FxReader(self.module, self.examples).read().weights


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """`function` of every value in tuples, lists, slices and dictionaries; lists become tuples."""
    if isinstance(value, tuple | list):
        return tuple(_mapped(function, v) for v in value)
    if isinstance(value, slice):
        return slice(*(_mapped(function, v) for v in (value.start, value.stop, value.step)))
    if isinstance(value, dict):
        return {k: _mapped(function, v) for k, v in value.items()}
    return function(value)


def _leaves(value: Any) -> Iterator[Any]:
    found: list[Any] = []
    _mapped(found.append, value)
    return iter(found)
