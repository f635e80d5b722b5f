"""What cannot be lowered here: bytes beyond 64 bits, and more rows than there is memory for."""

from __future__ import annotations

from collections.abc import Sequence

from taskflow.core.system import free_bytes, unused_bytes
from taskflow.graph.graph import LogicalRegion
from taskflow.machine import MachineModel

ROW_BYTES = 1_500  # that a row takes at most while it is made


def check_bytes(regions: Sequence[LogicalRegion], devices: int) -> None:
    """ValueError where bytes do not fit into 64 bits, in which all is counted: of all regions whole on each device."""
    total = devices * sum(region.size_bytes for region in regions)
    if total >= 2**63:
        most = max(regions, key=lambda region: region.size_bytes)
        raise ValueError(
            f"lower: all regions on {devices} devices are {total} bytes, and bytes are counted up to 2^63 - 1; "
            f"the largest is '{most.name}', {most.shape} of {most.dtype}"
        )


def check_host_memory(regions: Sequence[LogicalRegion], machine: MachineModel) -> None:
    """ValueError where something lies in the memory of hosts, and the machine has none."""
    away = next((region.name for region in regions if region.is_on_host), "")
    if away and not machine.memories:
        raise ValueError(
            f"lower: '{away}' is kept in the memory of hosts, and machine '{machine.name}' says nothing of that; see "
            "`MachineModel.with_host_memory`"
        )


def check_room(rows: int) -> None:
    """MemoryError where so many rows take more memory than is free: a process that takes it all the same is killed."""
    needed = rows * ROW_BYTES
    if needed > unused_bytes() and needed > (free := free_bytes()):
        raise MemoryError(
            f"lower: {rows} rows take {needed / 1e9:.0f} GB, and {free / 1e9:.0f} are free"
        )
