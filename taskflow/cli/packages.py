"""Packages of the same names as ours: OpenStack's `taskflow`, Canonical's `ops`, a user's own `ops.py`.

Distributions of the same package name are written over each other by pip, and what lies in the current folder comes
before what is installed. So ours are known by what is in them.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from taskflow.core.version import DISTRIBUTION, installed

OPS_MARK = Path("dense", "linear.py")  # in our `ops`


def foreign_ops() -> Path | None:
    """The file of the package `ops` that programs here import, where it is not ours; an empty path: there is none.

    A command looks up a user's model from the current folder first.
    """
    if (loaded := sys.modules.get("ops")) is not None:
        place = getattr(loaded, "__file__", None)
    else:
        spec = PathFinder.find_spec("ops", [str(Path.cwd())]) or find_spec("ops")
        place = spec and spec.origin
    if place is None:
        return Path()
    return None if (Path(place).parent / OPS_MARK).is_file() else Path(place)


def explain_foreign_ops(place: Path) -> tuple[str, str]:
    """What is wrong with that file, and the command that mends it."""
    again = f"pip install --force-reinstall --no-deps {DISTRIBUTION}"
    if place == Path():
        return "the package 'ops' is not there", again
    if installed("ops") and place.name == "__init__.py":
        return (
            f"'ops' is Canonical's ({place}), which was installed over ours",
            f"pip uninstall -y ops && {again}",
        )
    new = place.parent if place.name == "__init__.py" else place
    return (
        f"'ops' is a module of your own ({place}), which hides ours",
        f"mv {new} {new.with_stem('my_ops')}",
    )
