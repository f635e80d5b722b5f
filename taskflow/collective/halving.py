"""Halving and doubling: log2(p) rounds in which what a member has doubles (backwards: halves); few messages.

Where p is no power of two, each of the first members that are too many is joined to the one before it, which takes its
part in between. Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
2005.
"""

from __future__ import annotations

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, steps_of


def halving_doubling(group: Group, owners: Array) -> Steps:
    """`owners`, ascending: all members, or those of `core_members`."""
    core = core_members(group)
    rounds, pieces = len(core).bit_length() - 1, np.arange(len(owners))
    block = np.searchsorted(core, owners, "right") - 1  # of every piece: the core member that takes part for its owner
    joined = np.flatnonzero(core[block] != owners)
    found = [(np.zeros_like(joined), owners[joined], core[block[joined]], pieces[joined])]
    for k in range(rounds):
        has = np.arange(len(core))[:, None] >> k == block >> k
        member, piece = np.nonzero(has)
        found.append((np.full(len(member), k + 1), core[member], core[member ^ (1 << k)], piece))
    extra = np.setdiff1d(np.arange(group.count), core)
    member, piece = np.nonzero(extra[:, None] != owners)
    found.append((np.full(len(member), rounds + 1), extra[member] - 1, extra[member], piece))
    return steps_of(owners, *(np.concatenate(columns) for columns in zip(*found, strict=True)))


def core_members(group: Group) -> Array:
    """The members that halve and double: as many as the largest power of two."""
    power = 1 << (group.count.bit_length() - 1)
    at = np.arange(power)
    core: Array = at + np.minimum(at, group.count - power)
    return core
