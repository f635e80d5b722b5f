"""Whose turn it is: from which of those that hold a piece a reader takes it.

A reader takes what its own device holds. Else the k-th reader of a host takes from the k-th holder of that host; and of
those on whose host nobody holds the piece, the k-th takes from the k-th holder of all. Behind the last holder it is the
first one's turn again. So no holder serves more readers than another, whoever stands at the same place of its row
serves whoever stands there, and none is chosen by its number.

    holders 0 1 of host 0, readers 4 5 6 of host 1   ->   4 from 0, 5 from 1, 6 from 0
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.core.compiling import inner, leaf


@inner
def new_turns(holders: int) -> Any:
    """(holders, 2, 2): who took last where this is the first holder of a host, and of all, and as the how-manieth."""
    return np.full((holders, 2, 2), -1, np.int64)


@leaf
def whose_turn(hosts: Any, holder: Any, span: Any, reader: int, turns: Any) -> int:
    """Which of the holders of a piece a reader takes it from; it is noted that it does.

    Args:
        hosts: of every device.
        holder: devices that hold pieces.
        span: the first of them that holds this piece, and the one behind the last.
        reader: a device; one that asks again gets the same answer, as long as no other has asked.
        turns: see `new_turns`.
    """
    begin, end = span
    near = 0
    first = begin
    for i in range(begin, end):
        if holder[i] == reader:
            return int(i)
        if hosts[holder[i]] == hosts[reader]:
            first = i if near == 0 else first
            near += 1
    is_far = int(near == 0)
    turn = turns[first, is_far]
    turn[1] += turn[0] != reader
    turn[0] = reader
    left = turn[1] % (near if near else end - begin)
    for i in range(first, end):
        if is_far or hosts[holder[i]] == hosts[reader]:
            if left == 0:
                return int(i)
            left -= 1
    return -1
