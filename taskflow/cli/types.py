"""Types of command line arguments, for argparse."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number above zero."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"is a positive number, not '{text}'")
    return number
