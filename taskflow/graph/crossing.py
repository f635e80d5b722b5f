"""Which operators carry something between the memory of devices and that of their hosts; see `offload`."""

from __future__ import annotations

from taskflow.graph.graph import Operator
from taskflow.machine.hostmemory import AWAY, BACK


def crossing(op: Operator) -> int:
    """AWAY: it writes what lies in the memory of hosts; BACK: it reads such; -1: it does neither."""
    if any(region.is_on_host for region in op.written):
        return AWAY
    return BACK if any(region.is_on_host for region in op.inputs) else -1
