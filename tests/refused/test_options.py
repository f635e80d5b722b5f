"""Options of public functions: every number that is none, not finite or cannot be meant is refused where it is given.

Numbers of NumPy are taken as those of Python are.
"""

import math

import numpy as np
import pytest

import ops
from taskflow import (
    Batches,
    CostModel,
    Device,
    Executor,
    Graph,
    Link,
    MachineModel,
    ParallelConfig,
    Space,
    Trainer,
    Window,
    by_parts,
    checkpoint,
    data_parallel,
    differentiate,
    dynamic_programming,
    explain,
    homes,
    lower,
    random_strategy,
    scale_machine,
    search,
    search_exhaustively,
    search_schedule,
    stages,
)
from taskflow.machine import topology
from taskflow.machine.library import LibraryTimes
from tests.lowered import network
from tests.refusals import assert_refused

NAN, INF = math.nan, math.inf
TWO = MachineModel.uniform(2)
COSTS = CostModel.analytic(TWO)
NO_WHOLE = (NAN, INF, -1, True, "1", 1.5, np.float32(2))
NO_FLAG = (NAN, 0, 1, "yes", None, np.int64(1))


def pipeline():
    graph = network()
    return lower(graph, stages(graph, TWO, count=2, parts=2), TWO)


def gradients():
    graph = Graph()
    loss = ops.mean(ops.linear(graph.input("x", (8, 4)), 2))
    return differentiate(loss, graph.parameters).values()


def times(**options):
    given = {"hosts": 1, "devices": 2, "bytes": (1, 2), "seconds": (1e-5, 2e-5), **options}
    return LibraryTimes("all-reduce", **given)


def trainer(**options):
    return Trainer(
        network(), machine=TWO, strategy=data_parallel, costs=COSTS, quiet=True, **options
    )


def saved(folder, keep):
    with Executor(lower(network(), data_parallel(network(), TWO), TWO)) as step:
        checkpoint.save(step, folder, keep)


# Where and what -> a call with the value; a number of NumPy that is taken, or None; more values that are not.
WHOLE = {
    "random_strategy: seed is {}, a whole number from 0 is needed": (
        lambda n: random_strategy(network(), TWO, n),
        0,
    ),
    "search: seed is {}, a whole number from 0 is needed": (
        lambda n: search(network(), TWO, COSTS, proposals=1, seed=n),
        0,
    ),
    "search_schedule: seed is {}, a whole number from 0 is needed": (
        lambda n: search_schedule(pipeline(), COSTS, seconds=0.01, seed=n),
        0,
    ),
    "batches: seed is {}, a whole number from 0 is needed": (
        lambda n: Batches({"x": np.ones((4, 2))}, 2, seed=n),
        0,
    ),
    "trainer: proposals is {}, a whole number from 1 is needed": (
        lambda n: trainer(proposals=n),
        1,
    ),
    "micro-batches: {} of them; a positive number is needed": (lambda n: trainer(accumulate=n), 1),
    "by_parts: parts is {}, a whole number from 1 is needed": (
        lambda n: by_parts(gradients(), n),
        1,
    ),
    "dynamic_programming: configs is {}, a whole number from 1 is needed": (
        lambda n: dynamic_programming(network(), TWO, COSTS, configs=n),
        1,
    ),
    "exhaustive search: most_visits is {}, a whole number from 1 is needed": (
        lambda n: search_exhaustively(network(), TWO, COSTS, most_visits=n),
        100,
    ),
    "explain: alternatives is {}, a whole number from 0 is needed": (
        lambda n: explain(network(), data_parallel(network(), TWO), TWO, COSTS, alternatives=n),
        0,
    ),
    "homes: least_bytes is {}, a whole number from 0 is needed": (
        lambda n: homes(network(), least_bytes=n),
        0,
    ),
    "stages: {} micro-batches; at least one": (
        lambda n: stages(network(), TWO, count=2, parts=n),
        1,
    ),
    "stages: count is {}, a whole number from 1 is needed": (
        lambda n: stages(network(), TWO, count=n),
        1,
    ),
    "local machine: has at least one device, not {}": (lambda n: MachineModel.local(n, "cpu"), 1),
    "machine preset 'v100': nodes is a positive number, not {}": (
        lambda n: MachineModel.preset("v100", n),
        1,
    ),
    "machine 'uniform': has 2 devices, not {}": (lambda n: TWO.take(n), 1),
    "machine 'torus': an extent is {}, a whole number from 1 is needed": (
        lambda n: topology.torus((2, n)),
        1,
    ),
    "machine 'fat tree': an extent is {}, a whole number from 1 is needed": (
        lambda n: topology.fat_tree(2, n),
        1,
    ),
    "machine 'dragonfly': an extent is {}, a whole number from 1 is needed": (
        lambda n: topology.dragonfly(n, 1, 2),
        1,
    ),
    "space: device_lists name device {} of 2": (
        lambda n: Space(network(), TWO, device_lists=[(0,), (0, n)]),
        1,
    ),
}
STR = {
    "machine preset 'v100': nodes is a positive number, not {}",
    "machine 'uniform': has 2 devices, not {}",
}


@pytest.mark.parametrize("message", WHOLE)
def test_whole_numbers(message):
    call, least = WHOLE[message]
    call(np.int64(max(least, 1)))
    for value in NO_WHOLE:
        said = value if message in STR else repr(value)
        assert_refused(message.format(said), lambda value=value: call(value))


FLAGS = {
    "cpu device of host 0: sends_by_link": lambda value: Device(sends_by_link=value),
    "batches: shuffle": lambda value: Batches({"x": np.ones((4, 2))}, 2, shuffle=value),
    "batches: drop_last": lambda value: Batches({"x": np.ones((4, 2))}, 2, drop_last=value),
    "homes: again": lambda value: homes(network(), again=value),
}


@pytest.mark.parametrize("where", FLAGS)
def test_flags(where):
    FLAGS[where](np.bool_(True))
    for value in NO_FLAG:
        message = f"{where} is {value!r}, True or False is needed"
        assert_refused(message, lambda value=value: FLAGS[where](value), TypeError)


def test_ends_of_links():
    assert Link((np.int64(0), "s"), 1e9) == Link((0, "s"), 1e9)
    for end in (NAN, True, 1.5, None, np.float32(1)):
        message = (
            f"link 0->{end}: ends at a number of a device or the name of a switch, not {end!r}"
        )
        assert_refused(message, lambda end=end: Link((0, end), 1e9))


def test_factors_of_scales():
    assert scale_machine(TWO, {"flops": np.float32(0.5)}) == scale_machine(TWO, {"flops": 0.5})
    assert scale_machine(TWO, {"flops": np.int64(2)}) == scale_machine(TWO, {"flops": 2.0})
    for factor in (True, NAN, "2", np.float64(0)):
        message = f"scale 'flops': its factor is a positive number, not {factor!r}"
        assert_refused(message, lambda factor=factor: scale_machine(TWO, {"flops": factor}))


@pytest.mark.parametrize("value", [NAN, "1", True, None, -1])
def test_times_of_a_library(value):
    where = f"library: all-reduce among {value} devices on 1 hosts"
    assert_refused(
        f"{where}: 2 devices or more, as many on every host", lambda: times(devices=value)
    )
    if value != -1:
        where = "library: all-reduce among 2 devices on 1 hosts"
        message = f"{where}: a time is {value!r}, a finite number is needed"
        assert_refused(message, lambda: times(seconds=(1e-5, value)))


@pytest.mark.parametrize("value", [NAN, -1.0, True, "9"])
def test_memory_of_schedules(value):
    message = f"schedule: memory is {value!r}, a number from 0 is needed"
    assert_refused(message, lambda: search_schedule(pipeline(), COSTS, value, seconds=0.01))
    assert_refused(message, lambda: search_schedule(pipeline(), COSTS, [1e9, value], seconds=0.01))
    message = "schedule: memory of 3 devices, blocks are on 2"
    assert_refused(message, lambda: search_schedule(pipeline(), COSTS, [1e9] * 3, seconds=0.01))


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_extents_are_finite(value):
    def said(where):
        return f"{where}: {value!r} is given, whole numbers are needed"

    assert_refused(said("region 'x': shape"), lambda: Graph().input("x", (value, 2)), TypeError)
    assert_refused(
        said("repeat"),
        lambda: lower(network(), data_parallel(network(), TWO), TWO, repeat=value),
        TypeError,
    )
    assert_refused(
        f"window of axis 'a': size is {value!r}, a whole number is needed",
        lambda: Window("a", size=value),
        TypeError,
    )


@pytest.mark.parametrize("value", [0, INF, "1", True, 1.5, 10**30])
def test_bytes_of_pieces(value):
    message = f"lower: piece_bytes is at least 1, not {value}"
    assert_refused(
        message, lambda: lower(network(), data_parallel(network(), TWO), TWO, piece_bytes=value)
    )


@pytest.mark.parametrize("value", [0, NAN, INF, "1", True, 1.5])
def test_checkpoints_that_are_kept(value, tmp_path):
    assert_refused(f"save: keep is at least 1, not {value!r}", lambda: saved(tmp_path, value))


@pytest.mark.parametrize("value", [True, "1", NAN, 0])
def test_budgets(value):
    message = f"search: the budget is at least one proposal, not {value}"
    assert_refused(message, lambda: search(network(), TWO, COSTS, proposals=value))
    message = f"search: the budget is a positive number of seconds, not {value}"
    assert_refused(message, lambda: search(network(), TWO, COSTS, seconds=value))


def test_visits_that_judge_nothing():
    message = "exhaustive search: no strategy was judged in 1 visits"
    assert_refused(message, lambda: search_exhaustively(network(), TWO, COSTS, most_visits=1))


def test_points_that_are_too_many():
    message = (
        f"ParallelConfig: {{'b': {10**30}}} has {10**30} points, at most {1 << 31} are possible"
    )
    assert_refused(message, lambda: ParallelConfig({"b": 10**30}))


def test_numbers_of_numpy_in_plans():
    graph, two = network(), np.int64(2)
    assert stages(graph, TWO, count=two, parts=two) == stages(graph, TWO, count=2, parts=2)
    assert trainer(accumulate=two).plan == trainer(accumulate=2).plan
