"""Ring: pieces go from neighbour to neighbour; the least bytes on every link, p - 1 rounds."""

from __future__ import annotations

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, steps_of


def ring(group: Group, owners: Array) -> Steps:
    """In round k every piece goes from the k-th member behind its owner to the next."""
    return _round_ring(group, owners, np.ones(len(owners), np.int64))


def bidirectional_ring(group: Group, owners: Array) -> Steps:
    """Half of every piece goes one way round, the other half the other way: for links that carry both ways at once."""
    return _round_ring(group, np.repeat(owners, 2), np.tile([1, -1], len(owners)))


def _round_ring(group: Group, owner: Array, direction: Array) -> Steps:
    k = np.arange(group.count - 1)[:, None]
    source, target = (owner + direction * k) % group.count, (owner + direction * (k + 1)) % group.count
    return steps_of(owner, k, source, target, np.arange(len(owner)))
