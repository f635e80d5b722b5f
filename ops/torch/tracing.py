"""What torch.fx says of a module's forward, and what forward does besides computing: that is refused.

A graph changes no attribute, draws no numbers that torch does not name, and has no memory that two tensors share; a
comparison on example inputs may miss all three.
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def trace(module: Any) -> Any:
    """The torch.fx graph of forward."""
    from torch import fx

    tracer = fx.Tracer()
    tracer.record_stack_traces = tracer.proxy_buffer_attributes = True
    try:
        return tracer.trace(module)
    except Exception as error:
        text = str(error).splitlines()
        raise ValueError(f"from_torch: torch.fx cannot trace the module: {text[0] if text else error!r}") from error


def is_of_user(filename: str) -> bool:
    """Whether a source file belongs neither to torch, nor to Python itself, nor to this package."""
    import torch

    paths = sysconfig.get_paths()
    own = str(Path(torch.__file__).parent), paths["stdlib"], str(Path(__file__).parent)
    is_installed = filename.startswith((paths["purelib"], paths["platlib"]))  # below the folder of Python itself
    return not filename.startswith(("<", own[0], own[2])) and (is_installed or not filename.startswith(own[1]))


def place(node: Any) -> str:
    """What a node calls, and the last source line on the way there that is not torch's own."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    lines = (node.stack_trace or "").splitlines()
    frames = [(k, line.strip()) for k, line in enumerate(lines) if line.strip().startswith('File "')]
    outside = [(k, frame) for k, frame in frames if is_of_user(frame.removeprefix('File "').partition('"')[0])]
    if not outside:
        return f"{node.op} '{name}'"
    k, frame = outside[-1]
    where = ", ".join(frame.split(", ")[:2]).removeprefix("File ")
    return f"{node.op} '{name}' ({where}: {lines[k + 1].strip() if k + 1 < len(lines) else ''})"


@contextmanager
def only_computing(module: Any) -> Iterator[None]:
    """ValueError where forward changes an attribute or draws random numbers; attributes are then as before."""
    import torch

    def generators() -> tuple[Any, ...]:
        kind, *state = np.random.get_state()  # noqa: NPY002, the one that modules draw from
        return random.getstate(), kind, [np.asarray(s).tolist() for s in state], torch.get_rng_state().tolist()

    drawn, before = generators(), [(name, vars(each), _kept(each)) for name, each in module.named_modules()]
    changed = list[str]()
    try:
        yield
    finally:
        for name, now, then in before:
            for key in [key for key in {**then, **now} if not _is_same(then.get(key, now), now.get(key, then))]:
                changed.append(f"{name}.{key}".removeprefix("."))
                now[key] = then.get(key)
                if key not in then:
                    del now[key]
    if changed:
        raise ValueError(f"from_torch: forward changes '{changed[0]}', which is not supported")
    if generators() != drawn:
        raise ValueError("from_torch: forward draws random numbers other than by dropout, which is not supported")


@contextmanager
def without_dropout(module: Any) -> Iterator[None]:
    """Dropout keeps every element meanwhile: in torch, and in a graph that is traced."""
    import torch
    from torch.nn import functional

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is functional.dropout:
                return args[0] if args else kwargs["input"]
            if function is functional.scaled_dot_product_attention:
                args, kwargs = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args, kwargs or {}
                kwargs = {**kwargs, "dropout_p": 0.0} if "dropout_p" in kwargs else kwargs
            return function(*args, **(kwargs or {}))

    fields = {torch.nn.Dropout: "p", torch.nn.MultiheadAttention: "dropout", torch.nn.RNNBase: "dropout"}
    found = [
        (m, name, getattr(m, name)) for m in module.modules() for kind, name in fields.items() if isinstance(m, kind)
    ]
    try:
        for each, name, _ in found:
            setattr(each, name, 0.0)
        with Mode():
            yield
    finally:
        for each, name, value in found:
            setattr(each, name, value)


def _kept(module: Any) -> dict[str, Any]:
    """The attributes of a module; lists and dictionaries are copied."""
    return {key: copy(value) if isinstance(value, dict | list) else value for key, value in vars(module).items()}


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(v is new[key] for key, v in old.items())
    if isinstance(old, list | tuple) and type(old) is type(new):  # torch.export makes them anew
        return len(old) == len(new) and all(_is_same(v, w) for v, w in zip(old, new))
    return old is new or (isinstance(old, _PLAIN) and type(old) is type(new) and old == new)


def refuse_changed_reads(module: Any, graph: Any, examples: Sequence[Any]) -> None:
    """ValueError where a node reads what another one has changed in place; torch itself runs the traced graph."""
    import torch
    from torch import fx

    versions, changed = dict[Any, Any](), list[str]()

    def versions_of(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [versions_of(v) for v in value]
        return value._version if isinstance(value, torch.Tensor) else 0

    class Versions(fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            changed.extend(place(node) for n in node.all_input_nodes if versions_of(self.env[n]) != versions[n])
            result = super().run_node(node)
            versions[node] = versions_of(result)
            return result

    buffers = [(b, b.detach().clone()) for b in module.buffers()]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            Versions(module, graph=graph).run(*(each.clone() for each in examples))
        except Exception as error:
            text = str(error).splitlines()
            raise ValueError(f"from_torch: torch cannot run the module: {text[0] if text else error!r}") from error
        finally:
            for buffer, value in buffers:
                buffer.copy_(value)
    if changed:
        raise ValueError(f"from_torch: {changed[0]} reads what was changed in place, which is not supported")
