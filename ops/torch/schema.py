"""The arguments of an ATen call, held against what a rule reads of them: what no rule reads has its default.

A rule's parameters stand in the order of the schema's; keywords have the schema's names. `_name`, `*_` and `**_` are
not read, all others are (a test looks into the rules); `*of_result` is what the shape and dtype of the result say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter, signature
from typing import Any

from ops.torch.refusals import Unsupported

# They say where a result lies, how it is computed or what else comes of it, and change no number.
HARMLESS = {
    *(
        "layout",
        "device",
        "pin_memory",
        "memory_format",
        "non_blocking",
        "generator",
        "copy",
        "implicit",
        "path",
    ),
    *("cudnn_enable", "cudnn_enabled", "sparse", "sparse_grad", "sorted", "stable", "output_size"),
}


def refuse_unread(
    rule: Callable[..., Any], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Unsupported for an argument that differs from its default and that the rule does not read."""
    for argument, value in _given(target, args, kwargs):
        is_harmless = argument.name in HARMLESS or is_read(rule, target, argument)
        if not is_harmless and not _is_default(value, argument):
            raise Unsupported(f"the argument {argument.name}={value!r} is not supported")


def is_read(rule: Callable[..., Any], target: Any, argument: Any) -> bool:
    """Whether a rule reads an argument of a schema."""
    _, *parameters = signature(rule).parameters.values()  # after the site
    kinds = {p.kind: p for p in parameters}
    if argument.kwarg_only:
        named = [p for p in parameters if p.name == argument.name]
        reader = named[0] if named else kinds.get(Parameter.VAR_KEYWORD)
    else:
        place = [p.name for p in target._schema.arguments].index(argument.name)
        named = [p for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        reader = named[place] if place < len(named) else kinds.get(Parameter.VAR_POSITIONAL)
    return reader is not None and not reader.name.startswith("_")


def _given(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The schema's arguments that are given, and their values."""
    for k, argument in enumerate(target._schema.arguments if hasattr(target, "_schema") else ()):
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]
        elif k < len(args) and not argument.kwarg_only:
            yield argument, args[k]


def _is_default(value: Any, argument: Any) -> bool:
    return (
        argument.has_default_value()
        and type(value) is type(argument.default_value)
        and value == argument.default_value
    )
