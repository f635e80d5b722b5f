"""What forward does besides computing is refused.

A graph changes no attribute and draws no numbers that torch does not name; a comparison on example inputs may miss
both. Attributes are compared by value, and as deep as they go: what is made anew and equal is not changed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

import numpy as np

_SEQUENCES = (list, tuple, deque)
_OPAQUE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


@contextmanager
def only_computing(module: Any) -> Iterator[None]:
    """ValueError where forward changes an attribute or draws random numbers; attributes are then as before."""
    by_id = dict[int, Kept]()
    drawn = _generators()
    before = [(name, Kept.of(vars(part), by_id)) for name, part in module.named_modules()]
    changed = list[str]()
    try:
        yield
    finally:
        for name, kept in before:
            changed += [f"{name}.{key}".removeprefix(".") for key in kept.changed()]
            kept.restore()
        if changed:  # whatever came of it
            raise ValueError(f"from_torch: forward changes '{changed[0]}', which is not supported")
    if _generators() != drawn:
        raise ValueError(
            "from_torch: forward draws random numbers other than by dropout, which is not supported"
        )


def _generators() -> tuple[Any, ...]:
    """Their states."""
    import torch

    kind, *state = np.random.get_state()  # noqa: NPY002, the one that modules draw from
    return (
        random.getstate(),
        kind,
        [np.asarray(s).tolist() for s in state],
        torch.get_rng_state().tolist(),
    )


class Kept:
    """A value as it was: what it held, part by part, or a copy of it, or a tensor and how often that was written."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.parts: dict[Any, Kept] | None = None
        self.copy = value.copy() if isinstance(value, np.ndarray | set) else None
        self.version = value._version if _is_tensor(value) and not value.is_inference() else 0

    @staticmethod
    def of(value: Any, by_id: dict[int, Kept]) -> Kept:
        """The value and all that it holds, each once."""
        if id(value) not in by_id:
            by_id[id(value)] = made = Kept(value)
            parts = _parts(value)
            made.parts = (
                None
                if parts is None
                else {key: Kept.of(part, by_id) for key, part in parts.items()}
            )
        return by_id[id(value)]

    def changed(self) -> list[Any]:
        """The keys under which it holds something else now."""
        parts = self.parts or {}
        now = _parts(self.value) or {}
        keys = {**parts, **now}
        return [
            k for k in keys if k not in parts or k not in now or not parts[k].is_now(now[k], set())
        ]

    def is_now(self, new: Any, met: set[int]) -> bool:
        """Whether a value of now is what this one was."""
        if id(self) in met:
            return True
        met.add(id(self))
        if self.parts is None or type(self.value) is not type(new):
            return self._is_leaf_now(new)
        parts = _parts(new) or {}
        return parts.keys() == self.parts.keys() and all(
            part.is_now(parts[k], met) for k, part in self.parts.items()
        )

    def _is_leaf_now(self, new: Any) -> bool:
        old = self.value
        if _is_tensor(old):
            return self._is_same_tensor(new)
        if isinstance(old, np.ndarray):
            return (
                isinstance(new, np.ndarray) and old.dtype == new.dtype and _is_equal(self.copy, new)
            )
        if isinstance(old, set):
            return type(new) is set and self.copy == new
        if old is new or type(old) is not type(new):
            return old is new
        if isinstance(old, ref):  # holds nothing: torch's recurrent layers renew theirs
            return True
        is_nan = isinstance(old, float) and old != old and new != new
        return is_nan or (old == new) is True

    def _is_same_tensor(self, new: Any) -> bool:
        import torch

        if not _is_tensor(new) or (
            not self.value.is_inference() and self.value._version != self.version
        ):
            return False
        is_alike = (
            type(self.value) is type(new)
            and self.value.dtype == new.dtype
            and self.value.shape == new.shape
        )
        return self.value is new or (is_alike and not new.is_meta and torch.equal(self.value, new))

    def restore(self, met: set[int] | None = None) -> None:
        """Put back what it held."""
        met = set() if met is None else met
        if id(self) in met:
            return
        met.add(id(self))
        value = self.value
        for part in (self.parts or {}).values():
            part.restore(met)
        if self.copy is not None and isinstance(value, set):
            value.clear()
            value.update(self.copy)
        elif self.copy is not None:
            value[...] = self.copy
        elif self.parts is not None:
            _fill(value, {key: part.value for key, part in self.parts.items()})


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_equal(a: Any, b: Any) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _parts(value: Any) -> dict[Any, Any] | None:
    """What a container or an object of the user holds, by key; None for what is one value."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, _SEQUENCES):
        return dict(enumerate(value))
    import torch

    is_one = isinstance(value, (*_OPAQUE, torch.nn.Module, torch.Tensor)) or not hasattr(
        value, "__dict__"
    )
    return (
        None
        if is_one or type(value).__module__.partition(".")[0] in ("torch", "builtins")
        else dict(vars(value))
    )


def _fill(value: Any, parts: dict[Any, Any]) -> None:
    """Give a container what it held, in place."""
    now = _parts(value) or {}
    if isinstance(value, tuple) or (
        now.keys() == parts.keys() and all(now[key] is part for key, part in parts.items())
    ):
        return
    if isinstance(value, list | deque):
        value.clear()
        value.extend(parts.values())
    else:
        held = value if isinstance(value, dict) else vars(value)
        held.clear()
        held.update(parts)


@contextmanager
def without_dropout() -> Iterator[None]:
    """Dropout keeps every element meanwhile: what torch draws for it is always the chance to stay.

    So a call is known when torch computes it, below all Python: a mode that sees functions would change them (torch's
    `l1_loss` loses its weight on the way).
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if function is torch.ops.aten.bernoulli_.float:
                return args[0].fill_(args[1] if len(args) > 1 else kwargs.get("p", 0.5))
            return function(*args, **kwargs)

    with Mode():
        yield
