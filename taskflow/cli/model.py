"""A model from the command line: `MODULE:FUNCTION` with `--arg name=value` -> Graph.

The module is a dotted name, looked up from the current folder first, or a Python file. A `FILE.json` is a configuration
of Hugging Face, of which `ops.models.huggingface` makes the graph. What goes wrong in the user's
code is said in one line, with the place.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from taskflow.cli.packages import explain_foreign_ops, foreign_ops
from taskflow.graph.graph import Graph

Result = TypeVar("Result")
CONFIGURED = "ops.models.huggingface:build"  # makes graphs of configurations


def build_model(
    model: str, arguments: Sequence[str], sizes: Mapping[str, object] | None = None
) -> Graph:
    """The graph that the function of `MODULE:FUNCTION` builds, or that of a configuration, `FILE.json`.

    `sizes` are given to the parameters of these names that `arguments` leave out.

    Raises:
        ValueError: there is no such module or function, its arguments are others, it fails, or gives no graph.
    """
    if model.endswith(".json"):
        arguments = [f"config={model}", *arguments]
        model = CONFIGURED
    where = f"model '{model}'"
    function = _function_of(where, model)
    takes = inspect.signature(function)
    sizes = sizes or {}
    chosen = {name: sizes[name] for name in sizes if name in takes.parameters}
    chosen |= dict(map(_argument, arguments))
    try:
        takes.bind(**chosen)
    except TypeError as error:
        raise ValueError(f"{where}: {error}; it takes {takes}") from error
    graph = _guarded(where, lambda: function(**chosen))
    if not isinstance(graph, Graph):
        raise ValueError(f"{where}: gives a {type(graph).__name__}, not a Graph")
    return graph


def _function_of(where: str, model: str) -> Callable[..., Any]:
    """The function that MODULE:FUNCTION names."""
    module, _, name = model.rpartition(":")
    if not module or not name:
        raise ValueError(f"{where}: is MODULE:FUNCTION or FILE.json")
    return _function(where, _module(where, module), name)


def _argument(text: str) -> tuple[str, Any]:
    """`batch=64` as a Python value; what is no literal is a text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--arg is name=value, not '{text}'")
    try:
        return name, ast.literal_eval(value)
    except (
        ValueError,
        SyntaxError,
        RecursionError,
        MemoryError,
    ):  # the last two: brackets within brackets
        return name, value


def _module(where: str, name: str) -> ModuleType:
    """The module of that dotted name, or of that file."""
    if not name.endswith(".py"):
        return _guarded(where, lambda: _import(where, Path.cwd(), name))
    path = Path(name).resolve()
    if not path.is_file():
        raise ValueError(f"{where}: there is no file '{name}'")
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").exists():  # the packages that a file lies in belong to its name
        folder, name = folder.parent, f"{folder.name}.{name}"
    module = _guarded(where, lambda: _import(where, folder, name))
    if Path(module.__file__ or "").resolve() != path:
        raise ValueError(
            f"{where}: the module '{name}' is another file, {module.__file__}; rename one of them"
        )
    return module


def _import(where: str, folder: Path, name: str) -> ModuleType:
    """Import `name`, looked up in `folder` first."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if name.partition(".")[0] == "ops" and (place := foreign_ops()) is not None:
            why, mend = explain_foreign_ops(place)
            raise ValueError(f"{where}: {why}; {mend}") from error
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"{where}: there is no module '{error.name}'") from error
        raise


def _function(where: str, module: ModuleType, name: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    defined = (
        n
        for n, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
    )
    functions = [n for n in defined if callable(getattr(module, n)) and not n.startswith("_")]
    raise ValueError(
        f"{where}: the module has no function '{name}', it has {', '.join(functions) or 'none'}"
    )


def _guarded(where: str, call: Callable[[], Result]) -> Result:
    """What `call` gives; any failure of the user's code as a ValueError with its place."""
    try:
        return call()
    except ValueError as error:
        if str(error).startswith(where):
            raise
        raise _failure(where, error) from error
    except Exception as error:
        raise _failure(where, error) from error


def _failure(where: str, error: Exception) -> ValueError:
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}"
        return ValueError(f"{where}: {type(error).__name__}: {error.msg} ({place})")
    return ValueError(f"{where}: {type(error).__name__}: {error} ({_place(error)})")


def _place(error: Exception) -> str:
    """The user's line that failed, not the one in a library that it called: the last in the folder of the first."""
    others = str(Path(__file__).parents[1]), str(importlib.__file__), "<frozen"
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(others)
    ]
    if not frames:
        return "in taskflow"
    folder = Path(frames[0].filename).parent
    last = [frame for frame in frames if folder in Path(frame.filename).parents][-1]
    return f"{last.filename}, line {last.lineno}"
