"""Collectives across ranks: any two ranks sum and gather in one row, which runs as messages or in shared memory."""

from dataclasses import replace

import numpy as np
import pytest

from taskflow import Executor, MachineModel
from tests.collectives import NAMED, fed, one_collective
from tests.fake_gpu.streams import FakeStreams
from tests.ways import EMULATED, SIZE, on_hosts

RUNS = [
    ("cpu", "shared"),
    ("cpu", "messages"),
    ("cpu", "hosts"),
    ("emulated", "shared"),
    ("cuda", "shared"),
]


@pytest.mark.parametrize(("name", "algorithm"), NAMED)
def test_every_algorithm_gives_numpys_sum_and_the_same_bits(name, algorithm):
    """Of uneven pieces, on two unequal hosts, one device a rank or several, of every kind, over both transports."""
    count, found = max(4, SIZE), []
    x = np.random.default_rng(7).standard_normal((count, 37, 11))
    for kind, carrier in RUNS:
        if kind != "cpu" and (
            algorithm not in ("ring", "tree") or (kind == "cuda" and SIZE not in (1, count))
        ):
            continue  # benchmarks/collective_runs.py has all of them; a rank drives one GPU
        devices = tuple(
            replace(EMULATED.devices[0], kind=kind, host=int(2 * d > count)) for d in range(count)
        )
        machine = MachineModel(devices, MachineModel.uniform(count).links)
        task_graph, algorithms = one_collective(name, algorithm, machine, (37, 11))
        assert algorithms[name] == algorithm
        backend = FakeStreams() if kind == "cuda" else None
        with pytest.MonkeyPatch.context() as patch:
            on_hosts(patch, 1 + (carrier == "hosts"))
            carrier = "auto" if carrier == "hosts" else carrier
            with Executor(task_graph, transport=carrier, backend=backend) as step:
                found.append(step(fed(name, x))["whole"])
    np.testing.assert_allclose(found[0] - x.sum(axis=0), 0, atol=1e-13)
    assert all(np.array_equal(found[0], other) for other in found[1:])
