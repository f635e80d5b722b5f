"""What the subcommands print for programs: one line of JSON, behind `--json`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from taskflow.machine import MachineModel
from taskflow.strategy.strategy import ParallelConfig

VERSION = 1  # of all formats: they grow together
_AS_TEXT = ParallelConfig, MachineModel  # records that are said in words


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """The option of commands that call `show_data`; `what` they print."""
    parser.add_argument(
        "--json", action="store_true", help=f"print {what} as JSON, and nothing else"
    )


def show_data(form: str, value: Mapping[str, object]) -> None:
    """A table for programs: `format` and `version`, then `value`; numbers that JSON lacks are null."""
    table = {"format": f"taskflow-{form}", "version": VERSION, **value}
    sys.stdout.write(json.dumps(_plain(table), separators=(",", ":"), allow_nan=False) + "\n")


def record(value: object) -> dict[str, object]:
    """The fields of a record, for `show_data`."""
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]


def _plain(value: object) -> object:
    """The value with what JSON has: infinite and undefined numbers as None, records as their fields, others as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, _AS_TEXT):
        return {name: _plain(part) for name, part in record(value).items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, int | str | None) else str(value)
