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
from tests import tiny
from tests.lowered import network
from tests.refusals import each_refused, of_values

NAN, INF = math.nan, math.inf
TWO = MachineModel.uniform(2)
COSTS = CostModel.analytic(TWO)
NO_WHOLE = (NAN, INF, -1, True, "1", 1.5, np.float32(2))
NO_FLAG = (NAN, 0, 1, "yes", None, np.int64(1))


def pipeline():
    graph = network()
    return lower(graph, stages(graph, TWO, count=2, parts=2), TWO)


def one_layer():
    return tiny.linear(Graph().input("x", (4, 4)), 4).graph


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


def lowered(rule=data_parallel, **options):
    return lower(network(), rule(network(), TWO), TWO, **options)


# What is said of a value, and a call that takes one.
FROM_0 = "{!r}, a whole number from 0 is needed"
FROM_1 = "{!r}, a whole number from 1 is needed"
WHOLE = {
    f"random_strategy: seed is {FROM_0}": lambda n: random_strategy(network(), TWO, n),
    f"search: seed is {FROM_0}": lambda n: search(network(), TWO, COSTS, proposals=1, seed=n),
    f"search_schedule: seed is {FROM_0}": lambda n: search_schedule(
        pipeline(), COSTS, seconds=0.01, seed=n
    ),
    f"batches: seed is {FROM_0}": lambda n: Batches({"x": np.ones((4, 2))}, 2, seed=n),
    f"trainer: proposals is {FROM_1}": lambda n: trainer(proposals=n),
    "micro-batches: {!r} of them; a positive number is needed": lambda n: trainer(accumulate=n),
    f"by_parts: parts is {FROM_1}": lambda n: by_parts(gradients(), n),
    f"exhaustive search: most_visits is {FROM_1}": lambda n: search_exhaustively(
        one_layer(), TWO, COSTS, most_visits=n
    ),
    f"explain: alternatives is {FROM_0}": lambda n: explain(
        network(), data_parallel(network(), TWO), TWO, COSTS, alternatives=n
    ),
    f"homes: least_bytes is {FROM_0}": lambda n: homes(network(), least_bytes=n),
    "stages: {!r} micro-batches; at least one": lambda n: stages(network(), TWO, count=2, parts=n),
    f"stages: count is {FROM_1}": lambda n: stages(network(), TWO, count=n),
    "local machine: has at least one device, not {!r}": lambda n: MachineModel.local(n, "cpu"),
    "machine preset 'v100': nodes is a positive number, not {}": lambda n: MachineModel.preset(
        "v100", n
    ),
    "machine 'uniform': has 2 devices, not {}": lambda n: TWO.take(n),
    f"machine 'torus': an extent is {FROM_1}": lambda n: topology.torus((2, n)),
    f"machine 'fat tree': an extent is {FROM_1}": lambda n: topology.fat_tree(2, n),
    f"machine 'dragonfly': an extent is {FROM_1}": lambda n: topology.dragonfly(n, 1, 2),
    "space: device_lists name device {!r} of 2": lambda n: Space(
        network(), TWO, device_lists=[(0,), (0, n)]
    ),
}
FLAGS = {
    "cpu device of host 0: sends_by_link": lambda value: Device(sends_by_link=value),
    "batches: shuffle": lambda value: Batches({"x": np.ones((4, 2))}, 2, shuffle=value),
    "batches: drop_last": lambda value: Batches({"x": np.ones((4, 2))}, 2, drop_last=value),
    "homes: again": lambda value: homes(network(), again=value),
}
NO_TIMES = NAN, "1", True, None
NO_MEMORY = NAN, -1.0, True, "9"
NO_EXTENTS = NAN, INF, -INF
NO_BUDGETS = True, "1", NAN, 0
LIBRARY = "library: all-reduce among {} devices on 1 hosts"
REFUSED = [
    *(row for said, call in WHOLE.items() for row in of_values(said, call, NO_WHOLE)),
    *(
        row
        for where, call in FLAGS.items()
        for row in of_values(where + " is {!r}, True or False is needed", call, NO_FLAG, TypeError)
    ),
    *of_values(
        "link 0->{0}: ends at a number of a device or the name of a switch, not {0!r}",
        lambda end: Link((0, end), 1e9),
        (NAN, True, 1.5, None, np.float32(1)),
    ),
    *of_values(
        "scale 'flops': its factor is a positive number, not {!r}",
        lambda factor: scale_machine(TWO, {"flops": factor}),
        (True, NAN, "2", 0, -2.0, np.float64(0)),
    ),
    *of_values(
        LIBRARY + ": 2 devices or more, as many on every host",
        lambda value: times(devices=value),
        (*NO_TIMES, -1),
    ),
    *of_values(
        LIBRARY.format(2) + ": a time is {!r}, a finite number is needed",
        lambda value: times(seconds=(1e-5, value)),
        NO_TIMES,
    ),
    *of_values(
        "schedule: memory is {!r}, a number from 0 is needed",
        lambda value: search_schedule(pipeline(), COSTS, value, seconds=0.01),
        NO_MEMORY,
    ),
    *(
        (
            f"memory of a device, {value!r}",
            lambda value=value: search_schedule(pipeline(), COSTS, [1e9, value], seconds=0.01),
            f"schedule: memory is {value!r}, a number from 0 is needed",
        )
        for value in NO_MEMORY
    ),
    (
        "memory of too many devices",
        lambda: search_schedule(pipeline(), COSTS, [1e9] * 3, seconds=0.01),
        "schedule: memory of 3 devices, blocks are on 2",
    ),
    *of_values(
        "region 'x': shape: {!r} is given, whole numbers are needed",
        lambda value: Graph().input("x", (value, 2)),
        NO_EXTENTS,
        TypeError,
    ),
    *of_values(
        "repeat: {!r} is given, whole numbers are needed",
        lambda value: lowered(repeat=value),
        NO_EXTENTS,
        TypeError,
    ),
    *of_values(
        "window of axis 'a': size is {!r}, a whole number is needed",
        lambda value: Window("a", size=value),
        NO_EXTENTS,
        TypeError,
    ),
    *of_values(
        "lower: piece_bytes is at least 1, not {}",
        lambda value: lowered(piece_bytes=value),
        (0, INF, "1", True, 1.5, 10**30),
    ),
    *of_values(
        "lower: bucket_bytes is at least 1, not {}",
        lambda value: lowered(bucket_bytes=value),
        (0, INF, "1", True, 1.5, 10**30),
    ),
    *of_values(
        "save: keep is at least 1, not {!r}",
        lambda value, tmp_path: saved(tmp_path, value),
        (0, NAN, INF, "1", True, 1.5),
    ),
    *of_values(
        "search: the budget is at least one proposal, not {}",
        lambda value: search(network(), TWO, COSTS, proposals=value),
        NO_BUDGETS,
    ),
    *of_values(
        "search: the budget is a positive number of seconds, not {}",
        lambda value: search(network(), TWO, COSTS, seconds=value),
        NO_BUDGETS,
    ),
    (
        "visits that judge nothing",
        lambda: search_exhaustively(one_layer(), TWO, COSTS, most_visits=1),
        "exhaustive search: no strategy was judged in 1 visits",
    ),
    (
        "points that are too many",
        lambda: ParallelConfig({"b": 10**30}),
        f"ParallelConfig: {{'b': {10**30}}} has {10**30} points, at most {1 << 31} are possible",
    ),
]
test_refused = each_refused(REFUSED)


@pytest.mark.parametrize("said", WHOLE)
def test_whole_numbers_of_numpy(said):
    """Visits of a search that judge a strategy are more than one."""
    assert WHOLE[said](np.int64(100 if "visits" in said else 1)) is not None


@pytest.mark.parametrize("where", FLAGS)
def test_flags_of_numpy(where):
    assert FLAGS[where](np.bool_(True)) is not None


def test_numbers_of_numpy_are_those_of_python():
    assert Link((np.int64(0), "s"), 1e9) == Link((0, "s"), 1e9)
    assert scale_machine(TWO, {"flops": np.float32(0.5)}) == scale_machine(TWO, {"flops": 0.5})
    assert scale_machine(TWO, {"flops": np.int64(2)}) == scale_machine(TWO, {"flops": 2.0})
    graph, two = network(), np.int64(2)
    assert stages(graph, TWO, count=two, parts=two) == stages(graph, TWO, count=2, parts=2)
    assert trainer(accumulate=two).plan == trainer(accumulate=2).plan
