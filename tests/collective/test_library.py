"""A library's collectives: measured times in machine files, chosen where they are the least, refused where none is."""

from dataclasses import replace

import numpy as np
import pytest

from taskflow import CostModel, Executor, Kind, MachineModel, simulate
from taskflow.backend import RankGpu
from taskflow.collective.library import is_one_call
from taskflow.collective.price import CollectiveCosts
from taskflow.execute.gpu.carriers import choose_carriers
from taskflow.machine.library import COLLECTIVES, LibraryTimes
from taskflow.tasks.calls import is_by_library
from taskflow.tasks.moves import even_outline
from tests.collectives import fed, one_collective
from tests.fake_gpu.streams import FakeStreams
from tests.refusals import assert_refused

GPUS = tuple(RankGpu("a", f"gpu {k}", tuple(f"gpu {j}" for j in range(8)), 23000) for k in range(8))
FAST, SLOW = 1e-9, 1.0  # seconds: below and above all that steps take


def with_library(seconds, devices=8, name="all-reduce", hosts=1):
    times = LibraryTimes(name, hosts, devices, (1024, 2048), (seconds, 2 * seconds))
    return replace(MachineModel.uniform(8).with_rates(kind="cuda"), library=(times,))


def test_times_between_sizes_and_beyond():
    times = LibraryTimes("all-reduce", 1, 2, (100, 200, 400), (1.0, 3.0, 4.0))
    assert [times.curve.at(size) for size in (1, 100, 150, 300, 400, 800)] == [
        1.0,
        1.0,
        2.0,
        3.5,
        4.0,
        6.0,
    ]
    assert (
        LibraryTimes("all-reduce", 1, 2, (100, 200), (2.0, 1.0)).curve.at(1000) == 1.0
    )  # noise: never less than measured


@pytest.mark.parametrize(
    "name", ["all-reduce", "reduce-scatter", "reduce", "all-gather", "broadcast"]
)
@pytest.mark.parametrize("seconds, algorithm", [(FAST, "library"), (SLOW, None)])
def test_the_fastest_is_chosen_and_what_is_measured_is_predicted(name, seconds, algorithm):
    machine = with_library(seconds, name=name)
    task_graph, found = one_collective(name, "fastest", machine, (64, 3))
    assert (found[name] == "library") == (algorithm == "library")
    row = int(np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)[0])
    taken = CollectiveCosts(machine).of_row(task_graph, row).seconds
    whole = 64 * 3 * 8
    assert (taken == pytest.approx(machine.library[0].curve.at(whole))) == (algorithm == "library")
    assert simulate(task_graph, CostModel.analytic(machine)).seconds >= taken
    plans = choose_carriers(task_graph, GPUS, "auto").plans
    assert (row in plans) == (algorithm == "library")


def test_groups_of_other_sizes_and_uneven_tiles_are_their_steps():
    for machine in (
        with_library(FAST, devices=4),
        with_library(FAST, hosts=2),
        with_library(FAST, name="reduce"),
    ):
        assert (
            one_collective("all-reduce", "fastest", machine, (64, 3))[1]["all-reduce"] != "library"
        )
    assert one_collective(
        "reduce-scatter", "fastest", with_library(FAST, name="reduce-scatter"), (63, 3)
    )[1]["reduce-scatter"] not in ("library", "")


def test_it_is_an_even_slice_for_everyone():
    outline = even_outline("all-gather", (0,) * 4, 64)
    assert is_one_call(outline)
    for change in (
        {"boxes": ((0, 10), (10, 32), (32, 48), (48, 64))},  # not equal
        {"owners": (1, 0, 2, 3)},  # another order
        {"outsiders": ((3, 0),)},
        {"boxes": tuple((0, lo, 4, lo + 16) for lo in (0, 16, 32, 48))},  # of the second dimension
    ):
        assert not is_one_call(replace(outline, **change)), change


def test_what_is_not_measured_is_no_algorithm():
    with pytest.raises(ValueError, match="collectives: 'all-reduce' by 'library': "):
        one_collective("all-reduce", "library", MachineModel.uniform(8), (64, 3))


def test_without_the_library_its_rows_are_steps_and_so_is_their_price():
    """CPUs of a machine that was measured, and GPUs of one process: no NCCL."""
    machine = replace(with_library(FAST), devices=MachineModel.uniform(8).devices)
    x = np.random.default_rng(7).standard_normal((8, 64, 3))
    for each, backend in (
        (machine, None),
        (MachineModel.preset("h100"), FakeStreams()),
    ):
        task_graph, found = one_collective("all-reduce", "library", each, (64, 3))
        assert found["all-reduce"] == "library"
        with Executor(task_graph, backend=backend) as step:
            whole = step(fed("all-reduce", x))["whole"]
        assert np.abs(whole - x.sum(axis=0)).max() < 1e-12
        own = replace(each, library=(), collectives_by="own")
        expected = one_collective("all-reduce", "fastest", own, (64, 3))[0]
        ran = step.task_graph
        assert not is_by_library(ran).any()
        predicted = [simulate(g, CostModel.analytic(each)).seconds for g in (ran, expected)]
        assert predicted[0] == pytest.approx(predicted[1], rel=1e-12)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_emulated_devices_wait_what_a_call_takes(name):
    machine = MachineModel.preset("h100").with_rates(
        kind="emulated", reserved_bytes=0, communicator_bytes=0, bandwidth=5e7
    )
    task_graph, found = one_collective(name, "fastest", machine, (64, 3))
    assert found[name] == "library"
    x, costs = np.random.default_rng(7).standard_normal((8, 64, 3)), CostModel.analytic(machine)
    with Executor(task_graph, record=True) as step:
        whole, again = (step(fed(name, x))["whole"] for _ in range(2))
    assert np.abs(whole - x.sum(axis=0)).max() < 1e-12
    assert np.array_equal(whole, again)
    rows = np.flatnonzero(is_by_library(step.task_graph))
    taken, priced = step.timeline.end - step.timeline.start, costs.seconds(task_graph)
    assert len(rows) and np.all(taken[rows] >= priced[rows] * (1 - 1e-6))
    assert step.timeline.seconds >= simulate(task_graph, costs).seconds * (1 - 1e-6)


def test_it_is_kept_in_machine_files_and_parts(tmp_path):
    machine = with_library(2e-5)
    machine.save(tmp_path / "m.toml")
    assert MachineModel.load(tmp_path / "m.toml") == machine
    assert machine.take(4).library == machine.library
    assert MachineModel.join([machine, machine]).library == ()


@pytest.mark.parametrize(
    "change, why",
    [
        (
            {"collective": "scan"},
            f"collectives are {', '.join(COLLECTIVES)}, not 'scan'",
        ),
        (
            {"hosts": 3},
            "all-reduce among 8 devices on 3 hosts: 2 devices or more, as many on every host",
        ),
        (
            {"bytes": (1,)},
            "all-reduce among 8 devices on 2 hosts: 1 sizes and 2 times, not two or more of each",
        ),
        ({"bytes": (2, 1)}, "all-reduce among 8 devices on 2 hosts: sizes ascend, not [2, 1]"),
        (
            {"seconds": (0.0, 1.0)},
            "all-reduce among 8 devices on 2 hosts: a time, in us is a positive number, not 0.0",
        ),
    ],
)
def test_what_cannot_be_is_refused(change, why):
    fields = {
        "collective": "all-reduce",
        "hosts": 2,
        "devices": 8,
        "bytes": (1, 2),
        "seconds": (1.0, 2.0),
    }
    assert_refused(f"library: {why}", lambda: LibraryTimes(**{**fields, **change}))
