"""Collectives across ranks: any two ranks sum and gather in one row, which runs as messages or in shared memory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Device, Executor, MachineModel
from taskflow.comm import transport
from taskflow.tasks import moves
from tests import laws
from tests.collectives import NAMED, by_copies, fed, one_collective
from tests.fake_gpu.streams import FakeStreams
from tests.mpi.test_laws import EMULATED, SIZE, TRANSPORTS, examples
from tests.strategies import graphs, random_strategy


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("carrier", TRANSPORTS)
@examples(20)
@given(data=st.data())
def test_collectives_give_the_numbers_of_one_device(carrier, record, data):
    each = data.draw(st.integers(1, SIZE))  # devices a host: rings where there are several
    devices = tuple(Device(host=d // each) for d in range(SIZE))
    machine = by_copies(MachineModel(devices, MachineModel.uniform(SIZE).links), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moves, "ROOM_BYTES", data.draw(st.sampled_from([0, 40, 200])))
        on_hosts(patch, data.draw(st.integers(1, 2)))
        model = data.draw(graphs())
        strategy = random_strategy(model.graph, machine, data.draw(st.integers(0, 2**32 - 1)))
        laws.any_strategy_is_one_device(
            model, machine, strategy, steps=2, transport=carrier, record=record
        )
        laws.any_strategy_is_one_device(
            model, machine, strategy, steps=2, transport=carrier, check=True
        )


def on_hosts(patch, count):
    """Deal the ranks out to hosts: those of one share memory, and have messages, in small pieces, for others."""
    patch.setattr(transport, "_PIECE_BYTES", 100)
    patch.setattr(transport.connect(), "hosts", [rank * count // SIZE for rank in range(SIZE)])


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
