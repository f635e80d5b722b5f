"""The one error that is ours, and two of the user's that must not be taken for others.

A user's mistake is a `ValueError` or a `TypeError` whose message says where, which rule and which values.
Whatever else goes wrong inside is an `InternalError`.
"""

from __future__ import annotations


class InternalError(Exception):
    """A fault of taskflow itself, never of the user."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message} (this is a fault in taskflow: please report it)")


class CostError(ValueError):
    """An operator has no cost: no strategy that runs it can be judged."""


class NoRoomError(ValueError):
    """Nothing that was tried fits into the memory of the devices."""
