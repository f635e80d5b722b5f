"""A module in torch itself: what it gives on some inputs, with gradients, buffers and the weights that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ops.torch.refusals import dtype_of
from taskflow import Array

TOLERANCES = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}  # of the largest value
_NUDGE = 0.1  # of the tolerance, relative


def array_of(tensor: Any) -> Array:
    """The tensor's values; they share its memory where it is that of the host."""
    tensor = tensor.detach().cpu()
    tensor = tensor if str(tensor.layout) == "torch.strided" else tensor.to_dense()
    is_bfloat16 = dtype_of(tensor) == "bfloat16"
    values: Array = (tensor.float() if is_bfloat16 else tensor).numpy(
        force=True
    )  # a gradient may have no memory
    return values.astype("bfloat16") if is_bfloat16 else values


def tensors_of(values: Sequence[Any]) -> list[Any]:
    """The tensors among values."""
    import torch

    return [value for value in values if isinstance(value, torch.Tensor)]


@dataclass(frozen=True)
class Answer:
    """What torch gives.

    Attributes:
        outputs: tensors, in the order of torch's pytree.
        buffers: as they are after forward, by name.
        gradients: by parameter, and by number of the input ("input 0").
    """

    outputs: list[Any]
    buffers: dict[str, Array]
    gradients: dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A module in torch.

    Attributes:
        module: with the weights that the graph gets.
        spec: of its arguments, in torch's pytree.
        followed: the numbers of the inputs that get gradients.
        probes: output -> random factors; the gradients are those of the sum of all outputs times these.
    """

    module: Any
    spec: Any
    followed: frozenset[int] = frozenset()
    probes: dict[int, Array] = field(default_factory=dict)

    @staticmethod
    def of(module: Any, spec: Any, inputs: Sequence[Any]) -> Peer:
        """One that follows the inputs of floating point, but those that torch cannot differentiate by."""
        floats = frozenset(k for k, x in enumerate(tensors_of(inputs)) if x.is_floating_point())
        if not floats or Peer(module, spec, floats)._differentiates(inputs):
            return Peer(module, spec, floats)
        return Peer(
            module,
            spec,
            frozenset(
                k for k in floats if Peer(module, spec, frozenset([k]))._differentiates(inputs)
            ),
        )

    def _differentiates(self, inputs: Sequence[Any]) -> bool:
        try:
            self.run(inputs)
        except RuntimeError:
            return False
        return True

    def run(self, inputs: Sequence[Any], nudged: str = "") -> Answer:
        """What comes of these inputs; "weights", or "all" numbers, may be nudged: be a little different.

        Raises:
            ValueError: forward changes an input in place.
        """
        import torch

        leaves = self._leaves(inputs, _nudged if nudged == "all" else _same)
        passed = [x.clone() if isinstance(x, torch.Tensor) else x for x in leaves]
        sources = dict(self.module.named_parameters())
        sources |= {f"input {k}": x for k, x in enumerate(tensors_of(leaves))}
        change = _nudged if nudged else _same
        with changed_weights(self.module, change), _own_buffers(self.module), torch.enable_grad():
            answer = self._answer(passed, sources)
        for k, x in enumerate(tensors_of(passed)):
            if x._version:
                raise ValueError(
                    f"from_torch: forward changes its input {k} in place, which is not supported"
                )
        return answer

    def _leaves(self, inputs: Sequence[Any], change: Callable[[Any], Any]) -> list[Any]:
        """Changed copies, which those of the followed inputs have gradients of."""
        followed = [x for k, x in enumerate(tensors_of(inputs)) if k in self.followed]
        return [_leaf(x, change, any(x is other for other in followed)) for x in inputs]

    def _answer(self, passed: Sequence[Any], sources: Mapping[str, Any]) -> Answer:
        """Of forward; gradients are by those of the sources that ask for one."""
        import torch

        args, kwargs = torch.utils._pytree.tree_unflatten(passed, self.spec)
        leaves = torch.utils._pytree.tree_leaves(self.module(*args, **kwargs))
        outputs = [x for x in leaves if x is not None]
        by = {name: x for name, x in sources.items() if x.requires_grad}
        return Answer(
            outputs,
            gradients=self._gradients(outputs, by),
            buffers={name: array_of(x).copy() for name, x in self.module.named_buffers()},
        )

    def _gradients(self, outputs: Sequence[Any], wanted: dict[str, Any]) -> dict[str, Any]:
        import torch

        parts = []
        for k, tensor in enumerate(outputs):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                factors = torch.tensor(
                    self.probe(k, tensor).astype(float), dtype=tensor.dtype, device=tensor.device
                )
                parts.append((tensor * factors).sum())
        if not parts or not wanted:
            return {}
        made = torch.autograd.grad(sum(parts), list(wanted.values()), allow_unused=True)
        return {name: g for name, g in zip(wanted, made) if g is not None}

    def probe(self, k: int, tensor: Any) -> Array:
        """The factors of output `k`."""
        if k not in self.probes:
            random = np.random.default_rng(k)
            self.probes[k] = random.standard_normal(tuple(tensor.shape)).astype(dtype_of(tensor))
        return self.probes[k]


def _leaf(value: Any, change: Callable[[Any], Any], is_followed: bool) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    copied = change(value.detach()).clone()
    return copied.requires_grad_(is_followed)


def _same(value: Any) -> Any:
    return value


def _nudged(value: Any) -> Any:
    """Numbers that differ by a part of the tolerance; zeros stay, and what is equal."""
    import torch

    if not value.is_floating_point():
        return value
    kinds = torch.frexp(value.double())[
        0
    ]  # the same for equal numbers, and otherwise hardly related
    return (value * (1 + torch.sin(1e4 * kinds) * _NUDGE * TOLERANCES[dtype_of(value)])).to(
        value.dtype
    )


def near(value: Any) -> Any:
    """A weight near the module's, and not zero: what is multiplied by zero cannot be compared."""
    import torch

    drawn = torch.rand(value.shape, generator=torch.Generator().manual_seed(value.numel())).to(
        value
    )
    return torch.where(value == 0, 0.05 * drawn + 0.01, value * (0.95 + 0.1 * drawn))


@contextmanager
def changed_weights(module: Any, change: Callable[[Any], Any]) -> Iterator[None]:
    """The module with other values in its parameters, for a while; torch does not count it as a change."""
    import torch

    kept = [(p.data, p.detach().clone()) for p in module.parameters()]
    try:
        with torch.no_grad():
            for memory, value in kept:
                memory.copy_(change(value))
        yield
    finally:
        with torch.no_grad():
            for memory, value in kept:
                memory.copy_(value)


@contextmanager
def _own_buffers(module: Any) -> Iterator[None]:
    """The module with copies of its buffers, for a while; those that are one tensor are one copy."""
    kept = [(part, dict(part._buffers)) for part in module.modules()]
    copies = {
        id(b): b.detach().clone() for _, buffers in kept for b in buffers.values() if b is not None
    }
    try:
        for part, buffers in kept:
            part._buffers.update(
                {name: b if b is None else copies[id(b)] for name, b in buffers.items()}
            )
        yield
    finally:
        for part, buffers in kept:
            part._buffers.clear()
            part._buffers.update(buffers)
