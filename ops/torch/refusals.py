"""What a rule says of a call that it cannot make, and what of a result that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Unsupported(Exception):
    """Arguments that the operators do not cover."""


@dataclass(frozen=True)
class Missing:
    """A result that torch gives and we do not; an error where it is used."""

    what: str

    def __getitem__(self, key: object) -> Missing:
        return self


def need(fact: bool, what: str) -> None:
    """Unsupported unless it is so."""
    if not fact:
        raise Unsupported(f"{what} is not supported")


def one_line(error: BaseException) -> str:
    """The first line of what an exception says."""
    return (str(error).splitlines() or [repr(error)])[0]


def dtype_of(tensor: Any) -> str:
    """The NumPy name of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")
