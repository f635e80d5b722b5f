"""Calls of NCCL, through CuPy's binding, which whoever makes a communicator passes in.

On one H200 (2026-11-27, docs/cuda.md) two ranks that shared the GPU were not over after 110 s while five other jobs ran
there; a sum over one rank was not asked for. tests/backend/test_nccl.py has the arguments of every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from taskflow.backend.context import pointer
from taskflow.backend.ranks import SUMS, Communicator, GroupCall
from taskflow.core.numbers import MIB

_GRAIN_BYTES = 2 * MIB  # of what cuMemCreate gives
_LL_BYTES, _LL128_BYTES = (
    8 * 512 * 8 * 16,
    120 * 640 * 8 * 8,
)  # buffers of the two protocols for small messages
_CUDA_ERROR = 1  # ncclUnhandledCudaError: also that there was no memory


@dataclass(frozen=True)
class NcclBuffers:
    """What NCCL takes of a GPU, at most: buffers of a fixed size for every channel and peer of a communicator.

    A receiver has a buffer for each protocol, 4 MiB + 512 KiB + 4800 KiB by default (computeBuffSizes of init.cc),
    which one allocation of whole grains of 2 MiB holds, and a sender has one grain: 10485760 and 2097152 bytes, as
    NCCL's own log lists them (NVIDIA/nccl#1685). Rings have two connections whatever their length, and what is taken is
    linear in the channels (#986), of which 32 have been seen. Algorithms in switches and networks may take more.

    Attributes:
        buffer_bytes: of the protocol for large messages.
        channels: at most.
    """

    buffer_bytes: int = 4 * MIB
    channels: int = 32

    @staticmethod
    def of(environment: Mapping[str, str]) -> NcclBuffers:
        """As the variables of NCCL in an environment say."""
        usual = NcclBuffers()
        size = environment.get("NCCL_BUFFSIZE", "")
        channels = environment.get("NCCL_MAX_NCHANNELS", "")
        return NcclBuffers(
            int(size) if size.isdecimal() else usual.buffer_bytes,
            min(int(channels), usual.channels) if channels.isdecimal() else usual.channels,
        )

    def bytes_for(self, peers: int) -> int:
        """Of one communicator, on a rank that exchanges data with so many others in it."""
        whole = self.buffer_bytes + _LL_BYTES + _LL128_BYTES
        return peers * self.channels * (-(-whole // _GRAIN_BYTES) * _GRAIN_BYTES + _GRAIN_BYTES)


def is_short_of_memory(error: Exception, free_bytes: int, needed_bytes: int) -> bool:
    """Whether an error of NCCL is, in all likelihood, that a GPU has no memory left."""
    return getattr(error, "status", None) == _CUDA_ERROR and free_bytes < needed_bytes


class NcclRanks(Communicator):
    """See `Communicator`; a call is one group of NCCL.

    Args:
        group, rank, unique_id: whose they are, and who this is; `unique_id` is the same in all of the group.
        library: the module `cupy.cuda.nccl`.
        current_stream: the stream on which a call is launched, as a pointer.
        is_short: whether an error means that there was no memory (the first call connects ranks): a MemoryError then.
    """

    def __init__(
        self,
        group: tuple[int, ...],
        rank: int,
        unique_id: bytes,
        library: Any,
        current_stream: Callable[[], int],
        is_short: Callable[[Exception], bool] = lambda error: False,
    ) -> None:
        self._nccl = library
        self._current_stream = current_stream
        self._is_short = is_short
        self.group = group
        self._comm = self._nccl.NcclCommunicator(len(group), unique_id, group.index(rank))

    def calls(self, parts: Sequence[GroupCall]) -> Sequence[Callable[[], object]]:
        """See `Communicator.calls`."""
        made = [self._bind(part) for part in parts]
        return [partial(self._launch, made)] if made else []

    def _launch(self, calls: Sequence[Callable[[int], object]]) -> None:
        stream = self._current_stream()
        try:
            self._nccl.groupStart()
            try:
                for call in calls:
                    call(stream)
            finally:
                self._nccl.groupEnd()
        except Exception as error:
            if self._is_short(error):
                raise MemoryError("buffers of NCCL") from error
            raise

    def _bind(self, part: GroupCall) -> Callable[[int], object]:
        """The call of one part, but for its stream; what is only moved travels as bytes. Counts are those of a rank."""
        source, target = (0 if a is None else pointer(a) for a in (part.source, part.target))
        array = (
            part.target
            if part.kind in ("reduce_scatter", "receive") or part.source is None
            else part.source
        )
        assert array is not None, "a part has a source or a target"
        count, name = (
            (array.size, array.dtype.name) if part.kind in SUMS else (array.nbytes, "uint8")
        )
        kind = int(getattr(self._nccl, f"NCCL_{name.upper()}"))
        peer = self.group.index(part.peer) if part.peer >= 0 else -1
        op = self._nccl.NCCL_MAX if part.combine == "max" else self._nccl.NCCL_SUM
        comm = self._comm
        calls: dict[str, tuple[Any, ...]] = {
            "all_reduce": (comm.allReduce, source, target, count, kind, op),
            "reduce": (comm.reduce, source, target, count, kind, op, peer),
            "reduce_scatter": (comm.reduceScatter, source, target, count, kind, op),
            "all_gather": (comm.allGather, source, target, count, kind),
            "broadcast": (comm.broadcast, source or target, target or source, count, kind, peer),
            "send": (comm.send, source, count, kind, peer),
            "receive": (comm.recv, target, count, kind, peer),
        }
        call, *args = calls[part.kind]
        return partial(call, *args)
