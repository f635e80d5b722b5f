"""Straight: every owner sends its piece to all others, one after the other; the least latency where links are many."""

from __future__ import annotations

import numpy as np

from taskflow.collective.group import Group
from taskflow.core.columns import Array
from taskflow.tasks.steps import Steps, steps_of


def straight(group: Group, owners: Array) -> Steps:
    """In round k every owner sends to the k-th member behind it, so that each sends and receives one at a time."""
    away = np.arange(1, group.count)[:, None]
    return steps_of(owners, away, owners, (owners + away) % group.count, np.arange(len(owners)))
