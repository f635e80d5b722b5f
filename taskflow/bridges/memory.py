"""Memory as other systems have it: what they take of a device beside tensors, and what our executor does not take.

A machine says what the driver takes, and a communicator of the library. A system has communicators that no row of a
plan uses, and buffers.

* Megatron-LM: groups of the model, of embeddings and of embeddings of positions beside those of its degrees
  (modelscope/ms-swift pull request 9602, June 2026).
* torchtitan: the group of all ranks, in which losses and norms are summed.
* DeepSpeed: that group, and buckets of 5e8 elements for gathers and for sums, two bytes each, by default
  (`zero_optimization` in its `docs/_pages/config-json.md`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from taskflow.machine import MachineModel


class SystemMemory(NamedTuple):
    """More of it on every device: communicators, and buffers in bytes."""

    communicators: int
    buffer_bytes: int = 0


MEMORY = {
    "megatron": SystemMemory(3),
    "torchtitan": SystemMemory(1),
    "deepspeed": SystemMemory(1, 2 * 2 * 500_000_000),
}


def under_system(machine: MachineModel, name: str) -> MachineModel:
    """The machine, whose devices have as much memory for tensors as under that system."""
    more = MEMORY[name]
    devices = (
        replace(
            device,
            reserved_bytes=device.reserved_bytes
            + more.communicators * device.communicator_bytes
            + more.buffer_bytes,
        )
        for device in machine.devices
    )
    return replace(machine, devices=tuple(devices))
