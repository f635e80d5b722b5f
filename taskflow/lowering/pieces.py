"""Pieces of a region that devices hold, each of which one or several hold, compiled by numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskflow.core.compiling import inner, leaf
from taskflow.lowering.sorting import bits, sort
from taskflow.lowering.state import State
from taskflow.lowering.tiles import numbered
from taskflow.tasks.turns import new_turns, whose_turn


class HeldPieces(NamedTuple):
    """Who holds what, by pieces (equal boxes) and then by devices.

    Attributes:
        held, device: numbers of held boxes, and where each is.
        ptr: the holders of piece t are `held[ptr[t] : ptr[t + 1]]`.
        box: of every piece.
        turns: see `taskflow.tasks.turns`.
    """

    held: Any
    device: Any
    ptr: Any
    box: Any
    turns: Any


@inner
def pieces_of(s: State, held: Any, box: Any) -> HeldPieces:
    """The pieces that some held boxes are, or parts of which they are; `box`: that of each."""
    piece, first = numbered(box)
    ptr = np.zeros(len(first) + 1, np.int64)
    key = np.empty(len(held), np.int64)
    shift = bits(len(held))
    for i in range(len(held)):
        ptr[piece[i] + 1] += 1
        key[i] = ((piece[i] * s.devices + s.held[held[i]].device) << shift) + i
    order = sort(key) & ((1 << shift) - 1)
    device = np.empty(len(held), np.int64)
    for i in range(len(held)):
        device[i] = s.held[held[order[i]]].device
    return HeldPieces(held[order], device, np.cumsum(ptr), box[first], new_turns(len(held)))


@leaf
def giver_of(s: State, pieces: HeldPieces, t: int, reader: int) -> int:
    """Which of `pieces.held` a device takes piece `t` from; its own, if it has it."""
    span = pieces.ptr[t], pieces.ptr[t + 1]
    return int(whose_turn(s.device["host"], pieces.device, span, reader, pieces.turns))
