"""GPUs of different ranks: where each works, and communicators of NCCL; `mapped` has memory that they share.

NCCL facts: calls of one rank must be on one stream in the order
that all ranks share (`execute.gpu.together` sees to it); two ranks on one GPU are refused as "duplicate" unless
NCCL takes them for two hosts (NCCL_HOSTID), when it moves everything through sockets: slow, but right (measured on an
H200 with NCCL 2.28.9).

On one H200 (2026-11-27, docs/cuda.md) ranks that share the GPU did not run to their end: `auto` and `shared` failed
after 54 s, `messages` and `nccl` were not over after 110 s while five other jobs ran there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cupy
from cupy.cuda import runtime

from taskflow.backend.cuda.nccl import NcclBuffers, NcclRanks, is_short_of_memory
from taskflow.backend.ranks import Communicator, RankGpu
from taskflow.backend.sources import CudaSource
from taskflow.comm.transport import Transport
from taskflow.core.system import host_name

FLAGS = CudaSource(Path(__file__).with_name("flags.cu"))


def rank_gpu_of(gpu: int) -> RankGpu:
    """Where a rank with this GPU works."""
    from cupy.cuda import nccl

    library = int(nccl.get_version()) if nccl.available else 0
    reaches = [
        k
        for k in range(runtime.getDeviceCount())
        if k == gpu or runtime.deviceCanAccessPeer(gpu, k)
    ]
    return RankGpu(host_name(), _identity(gpu), tuple(map(_identity, reaches)), library)


def _identity(gpu: int) -> str:
    facts = runtime.getDeviceProperties(gpu)
    address = "{pciDomainID:04x}:{pciBusID:02x}:{pciDeviceID:02x}".format(**facts)
    return f"{address} {facts.get('uuid')!r}"


# -- NCCL --------------------------------------------------------------------------------------------------------------


def make_communicators(
    gpu: int, groups: Sequence[tuple[int, ...]], ranks: Transport
) -> dict[tuple[int, ...], Communicator]:
    """A communicator for each group with this rank, made in the order of `groups`; all ranks call it."""
    from cupy.cuda import nccl

    identities = ranks.gather(_identity(gpu) + host_name())
    if len(set(identities)) < len(identities):
        os.environ["NCCL_HOSTID"] = f"rank {ranks.rank}"
    ids = ranks.gather(
        {k: nccl.get_unique_id() for k, g in enumerate(groups) if g[0] == ranks.rank}
    )
    with cupy.cuda.Device(gpu):
        try:
            return {
                group: NcclRanks(
                    group, ranks.rank, ids[group[0]][k], nccl, _current_stream, _is_short
                )
                for k, group in enumerate(groups)
                if ranks.rank in group
            }
        except nccl.NcclError as error:
            if _is_short(error):
                raise MemoryError("buffers of NCCL") from error
            raise


def _is_short(error: Exception) -> bool:
    return is_short_of_memory(error, int(runtime.memGetInfo()[0]), communicator_bytes(1))


def communicator_bytes(peers: int) -> int:
    """See `StreamBackend.communicator_bytes`."""
    return NcclBuffers.of(os.environ).bytes_for(peers)


def _current_stream() -> int:
    return int(cupy.cuda.get_current_stream().ptr)
