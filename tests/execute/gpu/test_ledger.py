"""Memory that libraries take on GPUs by themselves: counted by name, and missed with numbers before the first step."""

import pytest

from taskflow import Device, Executor, Graph, MachineModel, lower, single_device
from taskflow.backend import NoRoom
from tests.fake_gpu.streams import FakeStreams

WORKSPACE = 1 << 16
NAME = "the workspace of a library"


class LibraryStreams(FakeStreams):
    """A library takes its workspace when it is first called, as cuBLAS does in `CudaStreams`."""

    held = 0

    def call_library(self):
        if not self.held:
            if self.memory(0)[0] < WORKSPACE:
                raise NoRoom(WORKSPACE, NAME)
            self._taken[0] += WORKSPACE
            self.held = WORKSPACE

    def library_bytes(self, device):
        return {NAME: self.held} if self.held else {}


def lowered(kernel):
    graph, machine = Graph(), MachineModel.uniform(1, Device(kind="cuda"))
    graph.output("y", graph.launch("y", "b -> b", [graph.input("x", (64,))], kernel=kernel))
    return lower(graph, single_device(graph, machine), machine)


def product(backend):
    """A task graph whose kernel needs the library, and scratch memory after that."""

    def kernel(ctx, x, y):
        backend.call_library()
        ctx.scratch("work", (1000,), "float64")

    return lowered(kernel)


def test_a_workspace_without_room_is_missed_before_the_first_step():
    backend = LibraryStreams(memory_bytes=WORKSPACE)
    message = rf"device 0: no room for {WORKSPACE} bytes of {NAME}; this executor holds \d+ of .* bytes are free"
    with pytest.raises(ValueError, match=message):
        Executor(product(backend), backend=backend)


def test_a_workspace_is_named_where_something_else_has_no_room():
    backend = LibraryStreams(memory_bytes=WORKSPACE + 4000)
    message = rf"device 0: no room for \d+ bytes of scratch memory; .* and {WORKSPACE} of {NAME}, and \d+ of"
    with pytest.raises(ValueError, match=message):
        Executor(product(backend), backend=backend)


def test_what_kernels_allocate_is_missed_with_numbers_too():
    def kernel(ctx, x, y):
        raise MemoryError("Out of memory allocating 512 bytes")

    message = r"no room for what a kernel allocates \(Out of memory allocating 512 bytes\); this executor holds \d+ of"
    with pytest.raises(ValueError, match=message):
        Executor(lowered(kernel), backend=FakeStreams())
