"""How GPUs of different ranks meet: what a rank says of its GPU, flags in shared memory, calls of a library.

A rank writes into the memory of another rank's GPU only its flags: counts of 8 bytes that grow by one with every
signal. Whoever awaits one counts, too, so that nothing has to be set back and a captured graph needs no number of the
step. One slot of a `Flags` is one signal in a step, from one rank to another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from taskflow.backend.context import Array

FLAG_BYTES = 8
COUNTERS = 3  # of a slot: signals that arrived, those that were awaited, those that were sent


@dataclass(frozen=True)
class RankGpu:
    """What a rank says of its GPU.

    Attributes:
        host: name of its host.
        gpu: identity of its GPU, the same in every process.
        reaches: identities of the GPUs whose memory its own can read, its own included.
        library: version of NCCL, 0 where there is none.
    """

    host: str
    gpu: str
    reaches: tuple[str, ...]
    library: int


def why_no_library(gpus: Sequence[RankGpu], is_asked_for: bool = False) -> str:
    """Why NCCL cannot be used; empty where it can. Ranks that share a GPU use it only when asked to: it is slow."""
    without = [r for r, gpu in enumerate(gpus) if not gpu.library]
    if without:
        return f"ranks {without} have no NCCL"
    shared = [
        gpu for (_, gpu), count in Counter((p.host, p.gpu) for p in gpus).items() if count > 1
    ]
    return f"several ranks share the GPU {shared[0]}" if shared and not is_asked_for else ""


@dataclass(frozen=True)
class GroupCall:
    """One call of a library that moves data among the ranks of a group; arrays are contiguous.

    Attributes:
        kind: all_reduce, reduce, reduce_scatter, all_gather, broadcast, send or receive.
        source: what this rank gives, None where it gives nothing.
        target: where this rank's result goes, None where it gets none; the two may be the same memory.
        peer: rank of the one that a broadcast comes from, or a reduce, send or receive goes to or comes from.
        combine: `sum` or `max`.
    """

    kind: str
    source: Array | None = None
    target: Array | None = None
    peer: int = -1
    combine: str = "sum"


SUMS = ("all_reduce", "reduce", "reduce_scatter")
SUMMED = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
)  # dtypes that a library can add


class Communicator(ABC):
    """The ranks of a group, who make the same calls in the same order, all on one stream.

    Attributes:
        group: the ranks, in the order in which tiles are numbered.
    """

    group: tuple[int, ...]

    @abstractmethod
    def calls(self, parts: Sequence[GroupCall]) -> Sequence[Callable[[], object]]:
        """What a stream does, in order, to carry out `parts` together: none waits for another one of them."""
