"""Machines: devices, links, and the routes between them; from files, presets, measurements, or the machine at hand."""

from taskflow.machine.device import Device, Link
from taskflow.machine.model import MachineModel

__all__ = ["Device", "Link", "MachineModel"]
