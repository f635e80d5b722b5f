"""Halving and doubling: log2(p) rounds in which what a member has doubles (backwards: halves); few messages.

Where p is no power of two, each of the first members that are too many is joined to the one before it, which takes its
part in between. Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
2005.
"""

from __future__ import annotations

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, in_order


def halving_doubling(group: Group, owners: Array) -> Steps:
    """`owners`, ascending: all members, or those of `core_members`."""
    core = core_members(group)
    block = (
        np.searchsorted(core, owners, "right") - 1
    )  # of every piece: the core member that takes part for its owner
    joined = np.flatnonzero(core[block] != owners)
    at = np.arange(len(core))
    messages = [(np.zeros_like(joined), owners[joined], core[block[joined]], joined, joined + 1)]
    rounds = len(core).bit_length() - 1
    for k in range(rounds):
        first, last = (np.searchsorted(block, ((at >> k) + more) << k) for more in (0, 1))
        messages.append((np.full_like(at, k + 1), core, core[at ^ (1 << k)], first, last))
    extra = np.setdiff1d(np.arange(group.count), core)
    begin, end = (
        np.searchsorted(owners, extra, side) for side in ("left", "right")
    )  # of their own pieces
    has_none = begin == end
    begin[has_none] = end[has_none] = len(owners)
    for first, last in ((np.zeros_like(begin), begin), (end, np.full_like(end, len(owners)))):
        messages.append((np.full_like(extra, rounds + 1), extra - 1, extra, first, last))
    return in_order(owners, *(np.concatenate(columns) for columns in zip(*messages, strict=True)))


def core_members(group: Group) -> Array:
    """The members that halve and double: as many as the largest power of two."""
    power = 1 << (group.count.bit_length() - 1)
    at = np.arange(power)
    core: Array = at + np.minimum(at, group.count - power)
    return core
