"""Programs for GPUs on fake streams, one device a rank: mapped memory, a library, staged messages, and mixtures."""

from dataclasses import replace

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Executor,
    Graph,
    Kind,
    MachineModel,
    data_parallel,
    lower,
    precision,
    reorder,
)
from taskflow.backend.timing import DeviceClock
from taskflow.comm.transport import connect
from taskflow.cost import measure_gpu
from taskflow.cost.measure_library import measure_library
from taskflow.execute.progress import foldable_in_place
from taskflow.machine.library import COLLECTIVES
from taskflow.schedule import program
from taskflow.tasks.calls import is_by_library
from tests import laws
from tests.collectives import fed, one_collective
from tests.cost.test_measure_gpu import ModelStreams
from tests.execute.gpu.test_streamed import feeds, network
from tests.fake_gpu.streams import FakeStreams
from tests.strategies import Model, feeds_of, random_strategy


def on_gpus():
    return MachineModel.uniform(connect().size, None).with_rates(kind="cuda")


@pytest.mark.parametrize("transport", ["shared", "nccl"])
def test_a_step_of_several_ranks_is_one_graph(transport):
    model, machine = Model(network(), feeds()[0]), on_gpus()
    task_graph = lower(model.graph, random_strategy(model.graph, machine, 5), machine)
    backend = FakeStreams()
    options = {
        "backend": backend,
        "record": False,
        "transport": transport,
        "allow_nan": True,
    }  # a guard parts it in two
    with Executor(task_graph, **options) as step:
        launches = [step(feed) and backend.launches for feed in feeds(4)]
        kinds = [part.is_captured for part in step._streamed.replay.segments]
    assert launches == [0, 1, 2, 3] and kinds == [True]


@pytest.mark.two_ranks
@pytest.mark.parametrize("is_mapped", [True, False])
def test_links_are_timed_between_ranks(is_mapped, monkeypatch):
    large = (
        1 << 16 if is_mapped else 1 << 27
    )  # where it is timed for real, it takes longer than ranks wait by chance
    monkeypatch.setattr(measure_gpu, "_LARGE", large)
    monkeypatch.setattr(measure_gpu, "_SIZES", (1 << 12, large))
    backend = ModelStreams()
    if not is_mapped:
        backend.shared_zeros = lambda *args: None
    machine = on_gpus()
    found = measure_gpu._link(
        backend, connect(), DeviceClock(backend, connect().rank), len(machine.devices)
    )
    assert (found is None) == (connect().size == 1)
    if found and is_mapped:
        assert found == pytest.approx({"latency_seconds": 2e-6, "bandwidth": 0.5e12}, rel=0.01)
    elif connect().rank == 0 and found:
        assert found["latency_seconds"] > 0


class HungryStreams(FakeStreams):
    """A library that takes memory for every peer."""

    def communicator_bytes(self, peers):
        return 1_000_000 * peers


@pytest.mark.skipif(connect().size == 1, reason="one rank has no peers")
def test_memory_of_the_library_is_in_the_account():
    model, machine = classifier("float32"), on_gpus()
    task_graph, rank = (
        lower(model.graph, data_parallel(model.graph, machine), machine),
        connect().rank,
    )
    with Executor(task_graph, backend=HungryStreams(), transport="nccl") as step:
        expected = step._streamed.ledger.expected[rank]["buffers of NCCL"]
        text = step._streamed.ledger.describe(rank)
    assert expected >= 1_000_000 and expected % 1_000_000 == 0
    assert f"about {expected} of buffers of NCCL" in text
    with Executor(task_graph, backend=HungryStreams(), transport="shared") as step:
        assert not step._streamed.ledger.expected[rank]


def test_a_library_that_finds_no_memory_is_refused_with_numbers(monkeypatch):
    def fail(self, *args):
        raise MemoryError("buffers of NCCL")

    model, machine = classifier("float32"), on_gpus()
    task_graph = lower(model.graph, data_parallel(model.graph, machine), machine)
    if connect().size > 1:
        monkeypatch.setattr(HungryStreams, "communicators", fail)
        with pytest.raises(
            ValueError,
            match=r"no room for \d+000000 bytes of buffers of NCCL; this executor holds .*",
        ):
            Executor(task_graph, backend=HungryStreams(), transport="nccl")


def classifier(dtype):
    graph = Graph()
    x, t = graph.input("x", (8, 6)), graph.input("t", (8,), "int32")
    loss = ops.softmax_cross_entropy(ops.linear(ops.tanh(ops.linear(x, 10)), 4), t)
    if dtype != "float32":
        graph = precision(graph, dtype)
    ops.sgd(graph.regions[loss.name], lr=0.1)
    return Model(graph, feeds_of(graph))


@pytest.mark.skipif(connect().size == 1, reason="one rank folds nothing of others")
@pytest.mark.two_ranks
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_folds_read_partial_sums_in_place_with_the_same_bits(dtype):
    model, machine = classifier(dtype), on_gpus()
    task_graph = lower(model.graph, data_parallel(model.graph, machine), machine)
    expected = laws.run(task_graph, model.feeds, 3, backend=FakeStreams(), transport="messages")
    for record in (True, False):
        found = laws.run(
            task_graph, model.feeds, 3, backend=FakeStreams(5), transport="shared", record=record
        )
        laws.assert_equal(found, expected)
    with Executor(task_graph, backend=FakeStreams(), transport="shared") as step:
        rows = step._rows
        copied = {item.row for item in step._streamed.issue.items if item.role == "receive"}
        read = {row for row in foldable_in_place(rows) if rows.device[row] == connect().rank}
    assert read and not read & copied


@pytest.mark.skipif(connect().size == 1, reason="one rank exchanges nothing")
@pytest.mark.parametrize(
    "options, transport, message",
    [
        ({"gpu": "a"}, "nccl", None),  # asked for: NCCL takes the ranks for hosts of their own
        (
            {"library": False},
            "nccl",
            "executor: transport='nccl' is not possible: ranks {all} have no NCCL",
        ),
    ],
)
def test_a_carrier_that_is_not_possible_is_refused(options, transport, message):
    model, machine = Model(network(), feeds()[0]), on_gpus()
    task_graph = lower(model.graph, random_strategy(model.graph, machine, 5), machine)
    backend = FakeStreams(**options)
    if message is None:
        Executor(task_graph, backend=backend, transport=transport).close()
        return
    with pytest.raises(ValueError) as error:
        Executor(task_graph, backend=backend, transport=transport)
    assert str(error.value) == message.format(all=list(range(connect().size)))


@pytest.mark.skipif(connect().size == 1, reason="one rank sums nothing")
def test_gradients_of_a_bucket_are_one_call_with_the_same_bits():
    machine = on_gpus().with_library("nccl").with_collectives({"all-reduce": "library"})
    model, costs, found = classifier("float32"), CostModel.analytic(machine), []
    strategy = data_parallel(model.graph, machine)
    for bucket_bytes in (None, 1 << 20):
        task_graph = lower(model.graph, strategy, machine, bucket_bytes=bucket_bytes)
        task_graph, backend = reorder(task_graph, costs, program), FakeStreams()
        options = {"backend": backend, "transport": "nccl", "record": False}
        with Executor(task_graph, **options) as step:
            items = step._streamed.issue.items
            losses = [step(model.feeds)["loss"].tobytes() for _ in range(3)]
        found.append((losses, sum(item.role == "together" for item in items)))
    (expected, alone), (losses, together) = found
    assert losses == expected
    assert 2 * alone == 5 * together  # the loss; weights and biases of two layers


def test_a_library_is_measured_and_then_chosen():
    size, backend = connect().size, FakeStreams(connect().rank)
    measured = measure_library(backend, connect(), (1 << 10, 1 << 12))
    assert {times.devices for times in measured} == ({size} if size > 1 else set())
    assert {times.collective for times in measured} == (set(COLLECTIVES) if size > 1 else set())
    if size == 1:
        return
    times = (replace(each, seconds=(1e-9, 2e-9)) for each in measured)
    machine = replace(on_gpus(), library=tuple(times)).with_collectives({"all-reduce": "fastest"})
    x = np.random.default_rng(7).standard_normal((size, 64, 3))
    for name, algorithm in (
        ("all-reduce", "library"),
        ("all-reduce", "ring"),
        ("reduce-scatter", "library"),
    ):
        task_graph, found = one_collective(name, algorithm, machine, (64, 3))
        assert found[name] == algorithm
        with Executor(task_graph, backend=backend) as step:
            assert (step._rows.kind == Kind.COLLECTIVE).sum() == is_by_library(task_graph).sum()
            assert np.allclose(step(fed(name, x))["whole"], x.sum(axis=0), rtol=1e-12)
