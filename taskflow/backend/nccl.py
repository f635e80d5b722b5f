"""Calls of NCCL, through CuPy's binding, which whoever makes a communicator passes in.

Not yet run on hardware; tests/backend/test_nccl.py has the arguments of every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from taskflow.backend.ranks import SUMS, Communicator, Part


class NcclRanks(Communicator):
    """See `Communicator`; a call is one group of NCCL.

    Args:
        group, rank, unique_id: whose they are, and who this is; `unique_id` is the same in all of the group.
        library: the module `cupy.cuda.nccl`.
        current_stream: the stream on which a call is launched, as a pointer.
    """

    def __init__(
        self,
        group: tuple[int, ...],
        rank: int,
        unique_id: bytes,
        library: Any,
        current_stream: Callable[[], int],
    ) -> None:
        self._nccl, self._current_stream = library, current_stream
        self.group = group
        self._comm = self._nccl.NcclCommunicator(len(group), unique_id, group.index(rank))

    def calls(self, parts: Sequence[Part]) -> Sequence[Callable[[], object]]:
        """See `Communicator.calls`."""
        made = [self._bind(part) for part in parts]
        return [partial(self._launch, made)] if made else []

    def _launch(self, calls: Sequence[Callable[[int], object]]) -> None:
        stream = self._current_stream()
        self._nccl.groupStart()
        try:
            for call in calls:
                call(stream)
        finally:
            self._nccl.groupEnd()

    def _bind(self, part: Part) -> Callable[[int], object]:
        """The call of one part, but for its stream; what is only moved travels as bytes."""
        source, target = (_pointer(a) for a in (part.source, part.target))
        count, kind, peer = self._extent(part), self._kind(part), self._peer(part)
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

    def _extent(self, part: Part) -> int:
        """Numbers that are summed, or bytes that are moved: those of one rank."""
        array: Any = part.target if part.kind in ("reduce_scatter", "receive") else part.source
        if array is None:
            array = part.target
        return int(array.size if part.kind in SUMS else array.nbytes)

    def _kind(self, part: Part) -> int:
        array: Any = part.target if part.source is None else part.source
        name = array.dtype.name if part.kind in SUMS else "uint8"
        return int(getattr(self._nccl, f"NCCL_{name.upper()}"))

    def _peer(self, part: Part) -> int:
        return self.group.index(part.peer) if part.peer >= 0 else -1


def _pointer(array: Any) -> int:
    return 0 if array is None else int(array.data.ptr)
