"""The PyTorch side of `cpu_step`: the same models, weights, batch and update, eager, one thread a process."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn

Array = np.ndarray[Any, np.dtype[Any]]


def steps(
    model: str, weights: Sequence[Array], feeds: Mapping[str, Array], rates: Mapping[str, float], comm: MPI.Comm
) -> dict[str, Callable[[], float]]:
    """Name -> one training step that gives the loss; several processes share the batch of `feeds`."""
    torch.set_num_threads(1)
    if comm.size > 1 and not dist.is_initialized():
        _join(comm)
    variants = {"torch": {}, "torch fused optimizer": {"fused": True}}
    if model == "cnn":
        variants["torch channels-last"] = {"memory_format": torch.channels_last}
    return {name: _step(model, weights, feeds, rates, comm, **options) for name, options in variants.items()}


def _join(comm: MPI.Comm) -> None:
    """Make a gloo group of the processes of `comm`, on this host."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if comm.rank == 0 else None
    port = comm.bcast(store.port if store else None)
    if store is None:
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)


def _step(
    model: str,
    weights: Sequence[Array],
    feeds: Mapping[str, Array],
    rates: Mapping[str, float],
    comm: MPI.Comm,
    fused: bool = False,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Callable[[], float]:
    net = _mlp() if model == "mlp" else _cnn()
    with torch.no_grad():
        for parameter, weight in zip(net.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
    net = net.to(memory_format=memory_format)
    trained: nn.Module = nn.parallel.DistributedDataParallel(net) if comm.size > 1 else net
    optimizer = torch.optim.SGD(trained.parameters(), **rates, **({"fused": True} if fused else {}))
    x = torch.from_numpy(np.array_split(feeds["x"], comm.size)[comm.rank].copy())
    t = torch.from_numpy(np.array_split(feeds["t"], comm.size)[comm.rank].astype(np.int64))
    if x.ndim == 4:
        x = x.to(memory_format=memory_format)

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained(x), t)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))


def _cnn() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 128, 256):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 4 * 4, 256), nn.ReLU(), nn.Linear(256, 10))
