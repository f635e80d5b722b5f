"""Types of the command line: of its arguments, for argparse, and of what subcommands are added to."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_UNITS = {"K": 10, "M": 20, "G": 30}
Act = Callable[[argparse.Namespace], int]  # what a subcommand does; gives the exit status


def positive(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is a positive number, not '{text}'")
    return int(text)


def natural(text: str) -> int:
    """A whole number, zero included."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"is a number, not '{text}'")
    return int(text)


def size_bytes(text: str) -> int:
    """Bytes: a whole number above zero, or one of binary thousands, millions or milliards, as in 64M."""
    digits, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "")
    return positive(digits) << _UNITS.get(unit, 0)


def positive_seconds(text: str) -> float:
    """A time above zero."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"is a positive number of seconds, not '{text}'")
    return seconds
