"""Cost files: the seconds of kernels that were timed on one processor."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from taskflow.core.files import (
    fit,
    fit_each,
    naming,
    parse_json,
    read_text,
    replace_file,
    without_head,
)

FORMAT, VERSION = "taskflow-costs", 1
_Seconds = Annotated[float, Meta(gt=0, le=86_400)]  # of one kernel


class CostTable(Struct, forbid_unknown_fields=True):
    """A cost file."""

    kernels: dict[str, Any]
    processor: str = ""


def read_costs(path: Path) -> dict[str, float]:
    """Key of a kernel -> seconds; ValueError: no such file, or it is malformed (named)."""
    with naming(f"cost file '{path}'"):
        table = fit(without_head(parse_json(read_text(path)), FORMAT, VERSION), CostTable)
        return fit_each(table.kernels, _Seconds, "kernel")


def write_costs(path: Path, kernels: Mapping[str, float]) -> None:
    """Write a file, atomically; of kernels that took no time by the clock it says nothing."""
    kernels = {key: seconds for key, seconds in kernels.items() if seconds > 0}
    table = {
        "format": FORMAT,
        "version": VERSION,
        "processor": platform.processor(),
        "kernels": kernels,
    }
    replace_file(path, json.dumps(table, indent=0) + "\n")
