"""Cost files: the seconds of kernels that were timed on one processor, and of two for one thing."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast

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

FORMAT = "taskflow-costs"
VERSION = 1
ByWay = dict[str, dict[str, float]]
_Seconds = Annotated[float, Meta(gt=0, le=86_400)]  # of one kernel


class CostTable(Struct, forbid_unknown_fields=True):
    """A cost file."""

    kernels: dict[str, Any]
    processor: str = ""
    choices: dict[str, Any] = {}


@dataclass(frozen=True)
class Costs:
    """What a cost file says.

    Attributes:
        kernels: key of a kernel -> seconds.
        choices: GPU -> key of what a library or an own kernel does -> way -> seconds (`taskflow.backend.choices`).
    """

    kernels: dict[str, float] = field(default_factory=dict)
    choices: dict[str, ByWay] = field(default_factory=dict)

    def beside(self, others: Costs) -> Costs:
        """These, and of others what these lack."""
        gpus = {*self.choices, *others.choices}
        choices = {g: others.choices.get(g, {}) | self.choices.get(g, {}) for g in sorted(gpus)}
        return Costs(others.kernels | self.kernels, choices)


def read_costs(path: Path) -> Costs:
    """ValueError: no such file, or it is malformed (named)."""
    with naming(f"cost file '{path}'"):
        table = fit(without_head(parse_json(read_text(path)), FORMAT, VERSION), CostTable)
        kernels = fit_each(table.kernels, _Seconds, "kernel")
        choices = fit_each(
            table.choices, dict[str, dict[Literal["library", "own"], _Seconds]], "GPU"
        )
        return Costs(kernels, cast("dict[str, ByWay]", choices))


def write_costs(path: Path, costs: Costs) -> None:
    """Write a file, atomically; of kernels that took no time by the clock it says nothing."""
    kernels = {key: seconds for key, seconds in costs.kernels.items() if seconds > 0}
    table = {
        "format": FORMAT,
        "version": VERSION,
        "processor": platform.processor(),
        "kernels": kernels,
        **({"choices": costs.choices} if costs.choices else {}),
    }
    replace_file(path, json.dumps(table, indent=0) + "\n")
