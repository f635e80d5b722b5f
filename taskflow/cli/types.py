"""Types of the command line: of its arguments, for argparse, and of what subcommands are added to."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
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


def positive_seconds(text: str) -> float:
    """A time above zero."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"is a positive number of seconds, not '{text}'")
    return seconds
