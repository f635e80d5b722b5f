"""What runs streams: the interface behind which a GPU and a fake of it stand.

A stream is a queue that works in order; streams work side by side and wait for each other through events only. Whoever
runs something here returns at once; `synchronize` is the one call that waits.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any

import numpy as np

from taskflow.backend.choices import OWN, Choices, choice_key
from taskflow.backend.context import Array
from taskflow.backend.cuda.cudnn import CudnnPlan
from taskflow.backend.cuda.launches import (
    fold_kernel,
    inspect_kernel,
    not_finite_kernel,
    poison_kernel,
)
from taskflow.backend.ranks import Communicator, RankGpu
from taskflow.backend.sources import CudaSource
from taskflow.comm.transport import Transport

Call = Callable[[], object]
Launcher = Callable[
    [int, int, Sequence[Array | np.generic]], object
]  # of blocks, threads in each, and arguments
Stream = Any
Event = Any

MOST_BLOCKS = (1 << 31) - 1
MOST_THREADS = 1024  # of a launch along one dimension, and of a block


class NotCapturable(Exception):
    """What was launched cannot be part of a captured graph."""


class NoRoom(MemoryError):
    """A device has no room for so many bytes of `purpose`."""

    def __init__(self, size_bytes: int, purpose: str) -> None:
        super().__init__(f"{size_bytes} bytes of {purpose}")
        self.size_bytes = size_bytes


class StreamBackend(ABC):
    """Streams, events, memory and graphs of the GPUs of one process; device numbers are those of the task graph.

    Attributes:
        xp: the array module that kernels get as `ctx.xp`.
        uses_variants: whether operators run the kernel that they declare for CUDA instead of the NumPy one.
        is_capturing: whether what is launched now goes into a graph.
        uses_tf32: whether float32 products may round their operands to TensorFloat-32.
        uses_cudnn: whether operators may ask for a `library_plan`.
        choices: by which a library or an own kernel does it.
        planned: the keys of what a library was chosen for, and does.
    """

    xp: Any = np
    uses_variants: bool = True
    is_capturing: bool = False
    is_profiled: bool = False
    uses_tf32: bool = False
    uses_cudnn: bool = True
    choices: Choices = Choices()

    @cached_property
    def planned(self) -> set[str]:
        """See the class."""
        return set()

    @abstractmethod
    def name(self, device: int) -> str:
        """What kind of GPU a device is."""

    def l2_bytes(self, device: int) -> int:
        """What the cache of a device holds that its kernels share; 0: nobody knows."""
        return 0

    @abstractmethod
    def make_stream(self, device: int, name: str) -> Stream:
        """A new stream of a device."""

    @abstractmethod
    def make_event(self, device: int, timed: bool = False) -> Event:
        """A new event, recorded on streams of this device alone; only timed ones can be given to `seconds_between`."""

    @abstractmethod
    def run(self, stream: Stream, call: Call) -> None:
        """Have `stream` do what `call` launches."""

    @abstractmethod
    def record(self, stream: Stream, event: Event) -> None:
        """`event` stands for all that `stream` was given so far."""

    @abstractmethod
    def wait(self, stream: Stream, event: Event) -> None:
        """What `stream` is given from now on starts when what `event` stands for is over."""

    @abstractmethod
    def synchronize(self, event: Event) -> None:
        """Return when what `event` stands for is over."""

    @abstractmethod
    def seconds_between(self, first: Event, second: Event) -> float:
        """Seconds from one timed event that is over to another of the same clock."""

    def clock(self, device: int) -> int:
        """Devices of one number have one clock: the time between their events is known."""
        return 0

    @abstractmethod
    def zeros(self, device: int, size_bytes: int) -> Array:
        """A zeroed byte array in the memory of a device.

        Raises:
            MemoryError: there is no room.
        """

    @abstractmethod
    def memory(self, device: int) -> tuple[int, int]:
        """Bytes of a device that are free, and all of them."""

    def library_bytes(self, device: int) -> Mapping[str, int]:
        """What libraries hold of a device as workspaces of their own, as far as is known: purpose -> bytes."""
        return {}

    @abstractmethod
    def pinned(self, size_bytes: int) -> Array:
        """A zeroed byte array of the host, from and to which streams copy."""

    @abstractmethod
    def mapped(self, device: int, size_bytes: int) -> Array:
        """A zeroed byte array of the host, as one that kernels of a device read and write over its link."""

    @abstractmethod
    def copy(self, target: Array, source: Array) -> Call:
        """A call that launches the copy of a contiguous array; either may be `pinned`, or a part of it."""

    @abstractmethod
    def kernel(self, source: CudaSource, name: str) -> Launcher:
        """The CUDA kernel `name` of a source, for the current stream: it takes arguments that were held to it."""

    def launch(
        self, source: CudaSource, name: str, threads: int, args: Sequence[object], block: int = 256
    ) -> None:
        """Launch `kernel` with at least so many threads on the current stream, unless there is nothing to do.

        Raises:
            TypeError: an argument is no array of the parameter's dtype, or no number.
            ValueError: a number does not fit into the parameter, or there are more blocks or threads than GPUs have.
        """
        if not threads:
            return
        blocks = -(-threads // block)
        if not (0 < blocks <= MOST_BLOCKS and 0 < block <= MOST_THREADS):
            most = f"at most {MOST_BLOCKS} of at most {MOST_THREADS} threads"
            raise ValueError(
                f"CUDA kernel '{name}': {blocks} blocks of {block} threads; GPUs have {most}"
            )
        self.kernel(source, name)(blocks, block, source.signature(name).hold(args))

    def fold(self, combine: str, target: Array, parts: Sequence[Array]) -> Call:
        """A call that launches target = the sum or maximum (`combine`) of `parts`; the first may be `target`."""
        return partial(self.launch, *fold_kernel(combine, target, parts))

    def poison(self, array: Array) -> Call:
        """A call that launches: fill an array with the pattern of checked memory."""
        return partial(self.launch, *poison_kernel(array))

    def inspect(self, array: Array, out: Array) -> Call:
        """A call that launches: out[0] = how many elements hold the pattern, out[1] = a sum over all bits; 64-bit."""
        return partial(self.launch, *inspect_kernel(array, out))

    def note_not_finite(self, array: Array, flag: Array) -> Call:
        """A call that launches: flag[0] = 1 if a number of an array is not finite; 64-bit."""
        return partial(self.launch, *not_finite_kernel(array, flag))

    @contextmanager
    def tf32(self, is_used: bool) -> Iterator[None]:
        """What is launched within the block may round to TensorFloat-32, or may not."""
        before = self.uses_tf32
        self.uses_tf32 = is_used
        try:
            yield
        finally:
            self.uses_tf32 = before

    def library_plan(
        self,
        operation: str,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        options: Mapping[str, Any],
    ) -> CudnnPlan | None:
        """What a library does on the current stream, if it is chosen; None where it is not there or cannot."""
        key = choice_key(operation, inputs, options, self.uses_tf32)
        if self.choices.way(key) == OWN:
            return None
        plan = self.find_plan(operation, inputs, outputs, options)
        if plan is not None:
            self.planned.add(key)
        return plan

    def find_plan(
        self,
        operation: str,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        options: Mapping[str, Any],
    ) -> CudnnPlan | None:
        """What cuDNN does on the current stream (see `cudnn.OPERATIONS`); None where it is not there or cannot."""
        return None

    @contextmanager
    def choosing(self, choices: Choices) -> Iterator[None]:
        """What is issued within the block goes by these choices."""
        before = self.choices
        self.choices = choices
        try:
            yield
        finally:
            self.choices = before

    def resident(self, stream: Stream, value: Any) -> Array | None:
        """The array on a GPU that a value is (by DLPack), which `stream` may read from now on; None: it is none."""
        return None

    @abstractmethod
    def read(self, array: Array) -> Array:
        """A copy in the host's memory; waits for every stream. For use between steps."""

    @abstractmethod
    def write(self, array: Array, value: Array) -> None:
        """Overwrite with an array of the host; waits for every stream. For use between steps."""

    @abstractmethod
    def capture(self, lead: Stream, issue: Call) -> Call:
        """Make a graph of what `issue` launches on `lead` and on streams that wait for it; nothing of it runs.

        Returns:
            A call that launches the graph on `lead`.

        Raises:
            NotCapturable: something in it cannot be captured.
        """

    # -- other ranks -----------------------------------------------------------------------------------------------

    @abstractmethod
    def rank_gpu(self, device: int) -> RankGpu:
        """Where this rank works: host, GPU and what that reaches."""

    @abstractmethod
    def shared_zeros(self, device: int, size_bytes: int, ranks: Transport) -> list[Array] | None:
        """One zeroed byte array in the memory of every rank's GPU, which the streams of all ranks read and write.

        All ranks call it, each with a device and the size of its own array; None where that is not possible.
        """

    @abstractmethod
    def signal(self, there: Array, sent: Array) -> Call:
        """A call that adds one to the flag `there` of another rank once all before it on its stream is over.

        Both are of one number of 8 bytes, see `taskflow.backend.ranks`; `sent` counts on this side.
        """

    @abstractmethod
    def awaits(self, here: Array, awaited: Array) -> Call:
        """A call that holds its stream until the flag `here` has had one more signal than `awaited` has counted."""

    @abstractmethod
    def communicators(
        self, device: int, groups: Sequence[tuple[int, ...]], ranks: Transport, most_bytes: int
    ) -> dict[tuple[int, ...], Communicator]:
        """A communicator for each of `groups` that has this rank; all ranks call it with the same arguments.

        `most_bytes` is the most that a rank gives to others in one call.
        """

    def communicator_bytes(self, peers: int) -> int:
        """An estimate of what a communicator takes of a device on a rank that has so many peers in it."""
        return 0

    def host_waits(self, is_over: Callable[[], bool]) -> None:
        """Return when something that no stream does is over."""
        while not is_over():
            os.sched_yield()

    def range(self, name: str) -> AbstractContextManager[object]:
        """What is issued within the block is shown under this name by a profiler, if `is_profiled`."""
        return nullcontext()

    def warm_step(self) -> AbstractContextManager[object]:
        """Within the block nothing may be allocated and nobody may wait for a stream, when this is checked."""
        return nullcontext()
