"""What the parts of `gpu` share: on what they run, how they report, PyTorch if there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gpu_models
from gpu_models import CASES, Case

import taskflow
from taskflow import Device, Executor, Graph, MachineModel, lower
from taskflow.backend import StreamBackend, make_backend


@dataclass(frozen=True)
class Setting:
    """A GPU, or a fake of it with tiny models and few steps."""

    is_fake: bool = False

    def backend(self) -> StreamBackend:
        """What runs the streams; of one executor."""
        if not self.is_fake:
            return make_backend()
        from tests.fake_gpu.streams import FakeStreams

        return FakeStreams()

    def machine(self, devices: int = 1) -> MachineModel:
        """The GPU at hand, once for every rank."""
        if self.is_fake:
            return MachineModel.uniform(devices, Device("cuda", memory_bytes=1 << 40))
        return MachineModel.local(devices, "cuda")

    def cases(self) -> Mapping[str, Case]:
        """The models that are timed."""
        return gpu_models.tiny_cases() if self.is_fake else CASES

    def count(self, number: int) -> int:
        """So many steps, or few."""
        return min(number, 3) if self.is_fake else number

    def executor(self, graph: Graph, **options: Any) -> Executor:
        """One device runs a graph; steps are captured."""
        machine = self.machine()
        task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
        return Executor(
            task_graph, backend=self.backend(), **{"record": False, "allow_nan": True, **options}
        )


def verdict(is_met: bool, wanted: str) -> str:
    """The end of a line."""
    return f"asked {wanted}: {'yes' if is_met else 'NO'}"


def record(**values: object) -> None:
    """A figure for the result file of a run: a line of JSON, beside what is said for people."""
    say(json.dumps(values))


def say(*words: object) -> None:
    """Print at once: what a part printed is kept when it is stopped."""
    print(*words, flush=True)


def find_torch(setting: Setting) -> Any:
    """The PyTorch side, None where it cannot be imported or the device is a fake."""
    if setting.is_fake:
        return None
    try:
        import gpu_torch
    except ImportError as error:
        say(f"  no PyTorch: {error}")
        return None
    return gpu_torch
