"""Binomial tree: in every round those that have a piece send it on, each to one that lacks it; log2(p) rounds."""

from __future__ import annotations

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, steps_of


def binomial_tree(group: Group, owners: Array) -> Steps:
    """The k-th member behind the owner hangs below the one whose number lacks the lowest bit of k.

    What hangs below a member are those right behind it, so few branches cross between hosts.
    """
    k = np.arange(1, group.count)[:, None]
    lowest = k & -k
    round_ = group.count.bit_length() - np.log2(lowest).astype(np.int64)
    above = (owners + k - lowest) % group.count
    below = (owners + k) % group.count
    return steps_of(owners, round_, above, below, np.arange(len(owners)))
