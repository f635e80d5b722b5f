"""Laws 1 to 3 across ranks: a machine of as many devices as there are ranks, against device 0 alone.

The reference runs through MPI too: rank 0 computes it, and everything fetched or read reaches all ranks.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskflow import Device, Graph, MachineModel, lower
from taskflow.comm.transport import LocalTransport
from taskflow.core.system import world_size
from taskflow.execute import agreement
from taskflow.testing import check_operator
from tests import laws, tiny
from tests.fake_gpu.streams import FakeStreams
from tests.ops.strategies import operator_graphs
from tests.strategies import Model, graphs, random_strategy, with_homes

SIZE = world_size()
GRAPHS = {"tiny": graphs(), "operators": operator_graphs()}
TRANSPORTS = ["shared", "messages"]
MANY = MachineModel.uniform(2 * SIZE + 1)


def examples(percent):
    """That share of the profile's examples; half of them on more ranks than a small machine has cores."""
    return settings(
        max_examples=max(1, settings().max_examples * percent // (100 if SIZE <= 2 else 200))
    )


EMULATED = MachineModel.uniform(SIZE, Device("emulated", 0, 1 << 34, 1e11, 1e11, 1e-6), 1e10, 1e-5)


@st.composite
def placed(draw, models, machine=MachineModel.uniform(SIZE)):  # noqa: B008 - a machine is frozen
    """A model, the machine of all ranks, and a strategy."""
    model = draw(models)
    return model, machine, random_strategy(model.graph, machine, draw(st.integers(0, 2**32 - 1)))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("models", GRAPHS)
@examples(90)
@given(data=st.data())
def test_any_strategy_gives_the_numbers_of_one_device(models, transport, data):
    laws.any_strategy_is_one_device(
        *data.draw(placed(GRAPHS[models])), steps=3, transport=transport
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(8)
@given(data=st.data(), seed=st.integers(0, 99))
def test_a_rank_may_drive_several_devices(transport, data, seed):
    """An odd number of them more than there are ranks, so ranks have different ones; fused calls and checked memory."""
    example = data.draw(placed(GRAPHS["operators"], MANY))
    laws.any_strategy_is_one_device(*example, steps=2, transport=transport, record=False)
    laws.any_order_is_the_same(*example, orders=1, seed=seed, transport=transport, check=True)
    laws.shared_regions_are_one(*example, random=seed, transport=transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(5)
@given(example=placed(GRAPHS["operators"], MANY), seed=st.integers(0, 99))
def test_ranks_give_the_bits_of_one_process(transport, example, seed):
    """Whoever drives a device, and in whatever order its rows are."""
    model, machine, strategy = example
    task_graph = lower(model.graph, strategy, machine)
    order = laws.random_order(task_graph, np.random.default_rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "connect", LocalTransport)
        expected = laws.run(task_graph, model.feeds, 2)
    laws.assert_equal(
        laws.run(task_graph.reordered(order), model.feeds, 2, transport=transport), expected
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(20)
@given(data=st.data())
def test_homes_updates_and_what_is_offloaded_lie_on_any_rank(transport, data):
    model, seed = data.draw(GRAPHS["tiny"]), data.draw(st.integers(0, 2**32 - 1))
    graph = with_homes(data.draw, model.graph, np.random.default_rng(seed))
    machine = MachineModel.uniform(SIZE)
    strategy = random_strategy(graph, machine, seed)
    laws.any_strategy_is_one_device(
        Model(graph, model.feeds), machine, strategy, steps=2, transport=transport
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(5)
@given(example=placed(GRAPHS["operators"]), seed=st.integers(0, 99))
def test_repeated_steps_are_single_ones(transport, example, seed):
    laws.repeated_steps_are_single_ones(*example, seed=seed, transport=transport)


GUARDED = [
    ("cpu", "shared"),
    ("cpu", "messages"),
    ("emulated", "auto"),
    *(("cuda", w) for w in (*TRANSPORTS, "nccl")),
]


@pytest.mark.parametrize(("kind", "transport"), GUARDED)
@examples(2)
@given(data=st.data(), record=st.booleans())
def test_a_step_that_is_given_up_changes_nothing(kind, transport, data, record):
    machine = {
        "cpu": MANY,
        "emulated": EMULATED,
        "cuda": MachineModel.uniform(SIZE, Device(kind="cuda")),
    }[kind]
    example, options = (
        data.draw(placed(GRAPHS["operators"], machine)),
        {"transport": transport, "record": record},
    )
    backend = (lambda: {"backend": FakeStreams()}) if kind == "cuda" else dict
    given_up = laws.given_up_steps_change_nothing(*example, backend, **options)
    assert given_up or not example[0].graph.parameters


@examples(5)
@given(data=st.data())
def test_a_rank_may_drive_several_emulated_devices(data):
    many = MachineModel.uniform(2 * SIZE + 1, EMULATED.devices[0], 1e10, 1e-5)
    laws.any_strategy_is_one_device(*data.draw(placed(GRAPHS["tiny"], many)), steps=2)


@pytest.mark.parametrize("models", GRAPHS)
@examples(30)
@given(data=st.data())
def test_emulated_devices_give_the_numbers_of_one_device(models, data):
    laws.any_strategy_is_one_device(*data.draw(placed(GRAPHS[models], EMULATED)), steps=2)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("models", GRAPHS)
@examples(20)
@given(data=st.data())
def test_checked_memory_finds_nothing(models, transport, data):
    laws.any_strategy_is_one_device(
        *data.draw(placed(GRAPHS[models])), steps=2, check=True, transport=transport
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("models", GRAPHS)
@examples(5)
@given(data=st.data(), seed=st.integers(0, 99))
def test_any_order_gives_the_same_numbers(models, transport, data, seed):
    laws.any_order_is_the_same(
        *data.draw(placed(GRAPHS[models])), orders=5, seed=seed, transport=transport
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("models", GRAPHS)
@examples(5)
@given(data=st.data())
def test_runs_are_the_same_to_the_bit(models, transport, data):
    laws.runs_are_the_same(*data.draw(placed(GRAPHS[models])), transport=transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("models", GRAPHS)
@examples(20)
@given(data=st.data(), seed=st.integers(0, 99))
def test_shared_regions_are_one(models, transport, data, seed):
    laws.shared_regions_are_one(
        *data.draw(placed(GRAPHS[models])), random=seed, transport=transport
    )


def test_an_operator_of_ones_own_is_checked():
    """By every rank alike, though its splits have more devices than there may be ranks."""

    def build():
        graph = Graph()
        return graph, tiny.linear(graph.input("x", (4, 3), "float64"), 2)

    assert ("fc", "b", 3) in check_operator(build)
