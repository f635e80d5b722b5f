"""Where a call stands in the user's source, and in which module."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any


def is_of_user(filename: str) -> bool:
    """Whether a source file belongs neither to torch, nor to Python itself, nor to this package."""
    import torch

    paths = sysconfig.get_paths()
    folders = str(Path(torch.__file__).parent), paths["stdlib"], str(Path(__file__).parent)
    is_installed = filename.startswith(
        (paths["purelib"], paths["platlib"])
    )  # below the folder of Python itself
    return not filename.startswith(("<", folders[0], folders[2])) and (
        is_installed or not filename.startswith(folders[1])
    )


def place(node: Any) -> str:
    """What a node calls, in which module, and the last source line on the way there that is not torch's own."""
    name = (
        node.target
        if isinstance(node.target, str)
        else getattr(node.target, "__name__", str(node.target))
    )
    within = f" in '{path}'" if (path := path_of(node)) else ""
    lines = (node.stack_trace or "").splitlines()
    outside = [
        k
        for k, line in enumerate(map(str.strip, lines))
        if line.startswith('File "') and is_of_user(line.removeprefix('File "').partition('"')[0])
    ]
    if not outside:
        return f"{node.op} '{name}'{within}"
    k = outside[-1]
    where = ", ".join(lines[k].strip().split(", ")[:2]).removeprefix("File ")
    return f"{node.op} '{name}'{within} ({where}: {lines[k + 1].strip() if k + 1 < len(lines) else ''})"


def path_of(node: Any) -> str:
    """The innermost module that a node is in, as `named_modules` calls it."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]).removeprefix("L['self']").strip(".") if stack else ""
