"""An exported module, call by call, as a graph.

What forward computes without its inputs and parameters (positions, masks, buffers, sizes), torch computes while the
module is read; where it meets a region, it becomes a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ops.torch.apart import Exported, Refused
from ops.torch.aten import (
    elementwise,
    images,
    indices,
    layers,
    losses,
    reductions,
    sequences,
    shapes,
)
from ops.torch.aten.layers import Updated
from ops.torch.buffers import keep_first, overwrite
from ops.torch.imported import Imported, check_apart
from ops.torch.peer import array_of
from ops.torch.places import path_of, place
from ops.torch.refusals import Missing, Unsupported, dtype_of, one_line
from ops.torch.schema import HARMLESS, refuse_unread
from ops.torch.site import Book, Site, Weight
from ops.torch.state import parts_of
from taskflow import Array, Graph, LogicalRegion

_PLAIN = (
    elementwise.RULES
    | shapes.RULES
    | indices.RULES
    | reductions.RULES
    | layers.RULES
    | images.RULES
    | losses.RULES
)
_RAW = indices.RAW | shapes.RAW | layers.RAW | sequences.RAW
RULES = _PLAIN | _RAW
_OF_VALUES = {
    "item",
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "sym_size",
    "unique",
    "equal",
}
_NEVER_KNOWN = {"empty", "dropout", "native_dropout"}  # what these give of constants is no constant
_ASSERTS = {
    "_assert_tensor_metadata",
    "_assert_async",
    "_assert_scalar",
    "sym_constrain_range_for_size",
}


class ExportReader:
    """Reads a module, as torch.export has it, into a graph."""

    def __init__(self, module: Any, exported: Exported, is_dropping: bool = True) -> None:
        self.module = module
        self.exported = exported
        self.graph = Graph()
        self.graph.names |= {
            name for name, part in module.named_modules() if part.state_dict()
        }  # no function gets them
        self._first = first_names(module)
        self.book = Book(self.graph, frozenset(self._first), is_dropping)
        self.values = dict[
            Any, Any
        ]()  # node -> region, weight, what torch computed, or a tuple of these
        self.inputs: dict[str, LogicalRegion] = {}
        self.outputs: tuple[LogicalRegion, ...] = ()
        self.unknown: list[str] = []  # calls without an operator

    def read(self) -> ExportReader:
        """Itself, when all calls are made operators.

        Raises:
            ValueError: as `from_torch`.
        """
        for node in self.exported.nodes:
            if node.op == "placeholder":
                self.values[node] = self._placeholder(node)
            elif node.op == "get_attr":
                self.values[node] = Missing(f"the part '{node.target}' of forward")
            elif node.op == "output":
                self.outputs = self._outputs(node)
            else:
                self.values[node] = self._call(node)
        self._prune()
        return self

    def imported(self) -> Imported:
        """The graph with the module's weights as they are now."""
        return Imported(
            self.graph, self.inputs, self.outputs, {k: v.copy() for k, v in self.weights().items()}
        )

    def weights(self) -> dict[str, Array]:
        """The module's tensors as they are now, by region name, and constants.

        Raises:
            ValueError: two that are read share a part of their memory.
        """
        tensors = dict(self.module.named_parameters(remove_duplicate=False))
        tensors |= dict(self.module.named_buffers(remove_duplicate=False))
        parts = parts_of({self._first[name]: array_of(t) for name, t in tensors.items()})
        arrays = dict(self.book.constants)
        for region in self.graph.regions.values():
            if region.is_persistent and region.name not in arrays:
                if region.name not in parts:
                    raise ValueError(
                        f"from_torch: the weight '{region.name}' is read whole, its parts are weights here"
                    )
                arrays[region.name] = parts[region.name]
        self._check_memory(tensors)
        return arrays

    def _check_memory(self, tensors: dict[str, Any]) -> None:
        """No two tensors that are read share a part of their memory, one of which is trained."""
        trained = {
            self._first[name] for name, p in self.module.named_parameters() if p.requires_grad
        }
        read = {
            self._first[name]
            for name in (*self.exported.parameters.values(), *self.exported.buffers.values())
        }
        arrays = {name: array_of(tensors[name]) for name in sorted(read)}
        kept = {n: a for n, a in arrays.items() if n in trained or _touches(a, arrays, trained)}
        check_apart(kept)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _placeholder(self, node: Any) -> Any:
        import torch

        exported = self.exported
        if (name := exported.parameters.get(node.name)) is not None:
            p = self.module.get_parameter(name)
            return Weight(self._first[name], tuple(p.shape), dtype_of(p), p.requires_grad)
        if (name := exported.buffers.get(node.name)) is not None:
            if name in exported.updated:
                return self._state(self._first[name])
            return self._stored(name, self.module.get_buffer(name))
        if node.name in exported.constants:
            return self._stored("", exported.constants[node.name])
        value = self.exported.results.get(node)
        if isinstance(value, torch.Tensor):
            made = self._input(node.name, tuple(value.shape), dtype_of(value))
            self.inputs[made.name] = made
            return made
        return value

    def _input(self, name: str, shape: tuple[int, ...], dtype: str) -> LogicalRegion:
        """An argument of forward; primes tell it from a weight of its name."""
        try:
            return self.graph.input(self.book.free_name(name), shape, dtype)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"from_torch: the input '{name}' is {dtype} {shape}: {one_line(error)}"
            ) from error

    def _state(self, name: str) -> LogicalRegion:
        """The region of a buffer that forward changes."""
        if name not in self.graph.regions:
            buffer = self.module.get_buffer(name)
            self.graph.parameter(
                name,
                tuple(buffer.shape),
                0.0,
                dtype_of(buffer),
                trainable=False,
            )
        return self.graph.regions[name]

    def _stored(self, name: str, tensor: Any) -> Any:
        """A copy of a tensor of the module, which is found again by where it begins."""
        copy = tensor.detach().clone()
        if name:
            self.book.tensors[copy.untyped_storage().data_ptr()] = name, copy
        return copy

    def _outputs(self, node: Any) -> tuple[LogicalRegion, ...]:
        import torch

        if self.unknown:
            raise ValueError(
                f"from_torch: there is no operator for {'; '.join(dict.fromkeys(self.unknown))}"
            )
        results = self._kept_apart(list(self._resolve(node.args[0])))
        count = len(self.exported.updated)
        for name, value in zip(self.exported.updated, results[:count], strict=True):
            self._update(node, name, value)
        outputs = list[LogicalRegion]()
        for value in results[count:]:
            if value is None:
                continue
            if isinstance(value, Missing):
                raise ValueError(f"from_torch: forward returns {value.what}, which is not computed")
            if isinstance(value, torch.Tensor) and not value.numel():
                raise ValueError(
                    f"from_torch: forward returns a tensor without elements, {tuple(value.shape)}"
                )
            made = self._site(node, f"output{len(outputs)}").region(value)
            if not isinstance(made, LogicalRegion):
                raise ValueError(
                    f"from_torch: forward returns a {type(made).__name__}, tensors are needed"
                )
            outputs.append(made)
        return tuple(outputs)

    def _kept_apart(self, results: list[Any]) -> list[Any]:
        """What forward gives, with what a buffer held before where that is given, or may be read by a gradient."""
        updates = zip(self.exported.updated, results)
        for name in [name for name, value in updates if not isinstance(value, Updated)]:
            state = self._state(self._first[name])
            if state.is_floating or any(value is state for value in results):
                old = keep_first(state, self.book.free_name(f"{state.name}.before"))
                results = [old if value is state else value for value in results]
        return results

    def _update(self, node: Any, name: str, value: Any) -> None:
        """A buffer has another value after forward; the operators of normalisation write theirs themselves."""
        import torch

        if isinstance(value, Updated):
            return
        if isinstance(value, Missing):
            raise ValueError(
                f"from_torch: forward makes '{name}' {value.what}, which is not computed"
            )
        state = self._state(self._first[name])
        site = self._site(node, f"{name}.value")
        made = site.constant(value) if isinstance(value, torch.Tensor) else site.region(value)
        if made is not state:
            overwrite(state, made)

    def _call(self, node: Any) -> Any:
        """Regions where regions or parameters go in; else what torch gives."""
        args = self._resolve(node.args)
        kwargs = self._resolve(node.kwargs)
        name = getattr(node.target, "__name__", str(node.target))
        packet = name.partition(".")[0]
        if packet in _ASSERTS:
            return None
        if packet == "getitem":
            return args[0][args[1]]
        try:
            if packet not in _NEVER_KNOWN and not any(map(_is_open, _leaves((args, kwargs)))):
                return self._compute(node, args)
            if (empty := self._without_elements(node)) is not None:
                return empty
            if packet in _OF_VALUES:
                raise ValueError("what forward does depends on the value of a tensor")
            return self._by_rule(node, name, args, kwargs)
        except Exception as error:
            raise Refused(node.target, f"from_torch: {place(node)}: {one_line(error)}") from error

    def _by_rule(self, node: Any, name: str, args: Any, kwargs: Any) -> Any:
        """What the rule of a call makes, or that it is missing."""
        rule, is_raw = _rule(name)
        if rule is None:
            self.unknown.append(self.exported.origins.get(node.stack_trace or "", place(node)))
        if rule is None or self.unknown:
            return Missing(node.name)
        _check_computed((args, kwargs))
        refuse_unread(rule, node.target, args, kwargs)
        kwargs = {k: v for k, v in kwargs.items() if k not in HARMLESS}
        site = self._site(node)
        if not is_raw:
            args = _mapped(site.region, args)
            kwargs = _mapped(site.region, kwargs)
        return self._checked(node, rule(site, *args, **kwargs))

    def _compute(self, node: Any, args: Any) -> Any:
        """What torch gives."""
        import torch

        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags:
            raise ValueError(
                "forward draws random numbers other than by dropout, which is not supported"
            )
        with torch.no_grad():
            return node.target(*args, **self._resolve(node.kwargs))

    def _without_elements(self, node: Any) -> Any:
        """The result if it has no elements: it is known, and has no gradient."""
        import torch

        value = self.exported.results.get(node)
        if not isinstance(value, torch.Tensor) or value.numel():
            return None
        return torch.empty(value.shape, dtype=value.dtype)

    def _checked(self, node: Any, result: Any) -> Any:
        """The result, which has to have torch's shape and dtype."""
        expected = self.exported.results.get(node)
        for value, example in zip(_as_list(result), _as_list(expected), strict=False):
            if isinstance(value, LogicalRegion):
                ours = (value.shape, value.dtype)
                theirs = (tuple(example.shape), dtype_of(example))
                if ours != theirs:
                    raise Unsupported(f"a result {ours} where torch's is {theirs}")
        return result

    def _site(self, node: Any, more: str = "") -> Site:
        """The call is named after the innermost module that it is in: as that, if it is a layer of torch."""
        value: Any = next(iter(_as_list(self.exported.results.get(node))), None)
        shape = tuple(value.shape) if hasattr(value, "shape") else ()
        dtype = dtype_of(value) if hasattr(value, "dtype") else ""
        return Site(self.book, self._name(node, more), shape, dtype)

    def _name(self, node: Any, more: str) -> str:
        path = path_of(node)
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        kind = stack[-1][1] if stack else ""
        short = more or getattr(node.target, "__name__", node.name).partition(".")[0].strip("_")
        if path and "torch.nn.modules" in str(kind) and not more:
            return path
        return f"{path}.{short}" if path else short

    def _resolve(self, value: Any) -> Any:
        """Arguments of a node with the values of other nodes in their places."""
        return _mapped(
            lambda v: self.values[v] if v.__hash__ is not None and v in self.values else v, value
        )

    def _prune(self) -> None:
        """Operators that lead to no output are left out, and weights and constants that nobody reads."""
        wanted = {r.name for r in self.outputs}
        kept = []
        for op in reversed(self.graph.operators):
            if op.writes or any(r.name in wanted for r in op.outputs):
                wanted.update(r.name for r in op.inputs)
                kept.append(op)
        self.graph.operators[:] = kept[::-1]
        used = wanted | {r.name for op in kept for r in op.outputs}
        for name in [
            n for n, r in self.graph.regions.items() if r.role != "input" and n not in used
        ]:
            del self.graph.regions[name]
            self.book.constants.pop(name, None)


def first_names(module: Any) -> dict[str, str]:
    """Every name of a parameter or buffer -> the first one of the same parameter, or of the same buffer."""
    first_of = dict[str, str]()
    for named in (module.named_parameters, module.named_buffers):
        first: dict[object, str] = {}
        first_of |= {
            name: first.setdefault(_place_of(t), name) for name, t in named(remove_duplicate=False)
        }
    return first_of


def _place_of(tensor: Any) -> object:
    if not tensor.numel():
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _touches(value: Array, others: dict[str, Array], trained: set[str]) -> bool:
    """Whether a tensor that is not trained shares memory with one that is."""
    return any(
        np.may_share_memory(value, other) for name, other in others.items() if name in trained
    )


def is_known(target: Any) -> bool:
    """Whether a call has a rule."""
    name = getattr(target, "__name__", str(target))
    return _rule(name)[0] is not None or name.partition(".")[0] in _ASSERTS | _OF_VALUES | {
        "getitem"
    }


def _rule(name: str) -> tuple[Callable[..., Any] | None, bool]:
    """What makes operators of a call, and whether it takes weights and tensors as they are."""
    packet, _, overload = name.partition(".")
    for key in (f"{packet}.{overload}", packet):
        if key in RULES:
            return RULES[key], key in _RAW
    return None, False


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """`function` of every value in tuples, lists, slices and dictionaries."""
    if isinstance(value, tuple | list):
        return (
            [_mapped(function, v) for v in value]
            if isinstance(value, list)
            else tuple(map(partial(_mapped, function), value))
        )
    if isinstance(value, dict):
        return {k: _mapped(function, v) for k, v in value.items()}
    return function(value)


def _is_open(value: Any) -> bool:
    """Whether a value is not known while the module is read."""
    return isinstance(value, LogicalRegion | Weight | Missing | Updated)


def _check_computed(arguments: Any) -> None:
    for value in _leaves(arguments):
        if isinstance(value, Missing):
            raise Unsupported(f"{value.what} is not computed, which")
        if isinstance(value, Updated):
            raise Unsupported(
                "reading new statistics of batch norm, or another dtype of them, is not supported"
            )


def _leaves(value: Any) -> Iterator[Any]:
    leaves: list[Any] = []
    _mapped(leaves.append, value)
    return iter(leaves)
