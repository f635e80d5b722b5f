"""What torch.export says of a module's forward: a functional graph of ATen calls, and whose tensors they read.

Functional means that nothing is overwritten and nothing is a view: `run_decompositions` with an empty table sees to
that, and keeps the calls that we have operators for (linear, attention, norms) whole. Blocks under `torch.no_grad()`
would lose that on the way, so their results are detached first.
"""

from __future__ import annotations

import logging
import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from inspect import signature
from io import StringIO
from typing import Any

from ops.torch.places import is_of_user
from ops.torch.refusals import one_line


def export(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch's ExportedProgram of forward, functional; what blocks under `torch.no_grad()` give is detached.

    Raises:
        ValueError: torch.export cannot follow forward, which step forward takes depends on values, or forward updates
            an input in place.
    """
    import torch

    try:
        with quiet(), _patched():
            program = torch.export.export(module, args, kwargs, strict=False)
            _detach_without_gradient(program)
            program = program.run_decompositions({})
    except Exception as error:
        raise _refusal(error, module, args, kwargs) from error
    if changed := list(program.graph_signature.user_inputs_to_mutate.values()):
        raise ValueError(
            f"from_torch: forward changes its input '{changed[0]}' in place, which is not supported"
        )
    return program


def _detach_without_gradient(program: Any) -> None:
    """What a block under `torch.no_grad()` gives is detached, before the block is put in its place."""
    import torch

    graph = program.graph_module.graph
    for node in list(graph.nodes):
        is_block = getattr(node.target, "__name__", "") == "wrap_with_set_grad_enabled"
        if node.op != "call_function" or not is_block or node.args[0]:
            continue
        for result in [
            user for user in node.users if getattr(user.target, "__name__", "") == "getitem"
        ]:
            with graph.inserting_after(result):
                stopped = graph.call_function(torch.ops.aten.detach.default, (result,))
            stopped.meta = dict(result.meta)
            result.replace_all_uses_with(
                stopped, delete_user_cb=lambda user, detach=stopped: user is not detach
            )
            if result.op == "call_function":
                for spec in program.graph_signature.output_specs:
                    if getattr(spec.arg, "name", None) == result.name:
                        spec.arg.name = stopped.name
    program.graph_module.recompile()


@contextmanager
def _patched() -> Iterator[None]:
    """Functions of torch that an export cannot follow as they are, or not as well.

    Whether a mask is causal is read from its values: here it is a mask like any other, with the same numbers. The
    projections of attention are cut before their product, so that they may be split by heads. Dropout of whole channels
    is that of one number for each. And torch keeps only lines of functions called `forward` as the source of a call.
    """
    from torch.fx.proxy import TracerBase
    from torch.nn import functional
    from torch.nn.modules import transformer

    changed = [
        (
            transformer,
            "_detect_is_causal_mask",
            lambda mask, is_causal=None, size=None: is_causal is True,
        ),
        (functional, "_in_projection_packed", _project_apart),
        *((functional, f"dropout{n}d", partial(_drop_channels, n)) for n in (1, 2, 3)),
        (TracerBase, "_filter_traceback_frames", _from_forward_on),
    ]
    kept = [
        (owner, name, getattr(owner, name)) for owner, name, _ in changed if hasattr(owner, name)
    ]
    try:
        for owner, name, new in changed:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in kept:
            setattr(owner, name, old)


def _from_forward_on(tracer: Any, frames: Any) -> Any:
    """The frames of a call from the module's forward on."""
    first = next((k for k, frame in enumerate(frames) if frame.name == "forward"), len(frames))
    return traceback.StackSummary.from_list(frames[first:])


def _project_apart(q: Any, k: Any, v: Any, weight: Any, bias: Any = None) -> list[Any]:
    from torch.nn import functional

    biases = [None] * 3 if bias is None else bias.chunk(3)
    return [
        functional.linear(x, w, b)
        for x, w, b in zip((q, k, v), weight.chunk(3), biases, strict=True)
    ]


def _drop_channels(
    ndim: int, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    from torch.nn import functional

    kept = x.shape[: 2 if ndim == 2 or x.ndim == ndim + 2 else 1]  # dropout2d always has a batch
    ones = x.new_ones((*kept, *(1,) * (x.ndim - len(kept))))
    made = x * functional.dropout(ones, p, training) if training and p else x
    return x.copy_(made) if inplace else made


@contextmanager
def quiet() -> Iterator[None]:
    """torch.export logs and prints what it cannot do; here it is one line in an exception."""
    loggers = [
        logging.getLogger(name) for name in ("torch", "torch.fx", "torch.export", "torch._export")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _refusal(
    error: Exception, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ValueError:
    """One line: what torch says, the last line on the way there that is not torch's own, and the inputs."""
    where = _line_of(error)
    text = one_line(error)
    if "DataDependent" in type(error).__name__ or "data-dependent" in text:
        return ValueError(f"from_torch: what forward does depends on the value of a tensor{where}")
    if match := re.search(r"Found <class '(.*?)'> in output", text):
        has_cache = getattr(getattr(module, "config", None), "use_cache", False)
        advice = "; say use_cache=False in its configuration" if has_cache else ""
        return ValueError(f"from_torch: forward returns a {match[1]}, tensors are needed{advice}")
    return ValueError(
        f"from_torch: torch.export cannot follow the module: {text}{where}; its inputs are "
        f"{', '.join(_named(module, args, kwargs))}"
    )


def _named(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The arguments of forward as messages call them."""
    try:
        given = signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # too many, one is missing, or nobody knows their names
        given = {f"input {k}": x for k, x in enumerate((*args, *kwargs.values()))}
    return [
        f"'{name}' {str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
        if hasattr(x, "dtype")
        else f"'{name}'"
        for name, x in given.items()
    ]


def _line_of(error: BaseException | None) -> str:
    while error is not None:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if is_of_user(f.filename)]
        if frames:
            return f' ("{frames[-1].filename}", line {frames[-1].lineno}: {frames[-1].line})'
        error = error.__cause__ or error.__context__
    return ""
