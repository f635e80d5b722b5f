"""Public names of a package, each imported when it is first asked for: a rank, or a command, needs a part of them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from inspect import getsource


def on_demand(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """What gives a package its public names, and their list: `__getattr__, __dir__ = on_demand(__name__)`.

    They are those that its `__init__.py` imports under `if TYPE_CHECKING`. What is no such name may be a module in it.

    Args:
        package: its name; it is being imported.
    """
    module = sys.modules[package]
    places = _places(ast.parse(getsource(module)))

    def get(name: str) -> object:
        home, attribute = places.get(name, (f"{package}.{name}", ""))
        if not attribute and (name.startswith("_") or find_spec(home) is None):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == package:  # a module in it is among its public names
            home = f"{package}.{attribute}"
            attribute = ""
        holder = import_module(home)
        value = getattr(holder, attribute, None) if attribute else holder
        if value is None:  # a module in another one, which nobody imported so far
            value = import_module(f"{home}.{attribute}")
        setattr(module, name, value)
        return value

    return get, lambda: sorted(places)


def _places(program: ast.Module) -> dict[str, tuple[str, str]]:
    """Name -> module and name in it, of what is imported under a condition."""
    blocks = (block.body for block in program.body if isinstance(block, ast.If))
    lines = (line for block in blocks for line in block if isinstance(line, ast.ImportFrom))
    return {
        alias.asname or alias.name: (line.module or "", alias.name)
        for line in lines
        for alias in line.names
    }
