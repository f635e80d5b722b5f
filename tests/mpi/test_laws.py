"""Any strategy gives the numbers of one device: every law of `tests/laws.py` for every way of `tests/ways.py`.

Alone and under mpirun; there the reference runs through MPI, too: rank 0 computes it, and everything that is fetched or
read reaches all ranks. HYPOTHESIS_PROFILE=thorough draws 200 times as many examples.
"""

from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from taskflow import Graph, MachineModel, Plan
from taskflow.schedule import POLICIES
from taskflow.schedule.orders import NAMED
from taskflow.testing import check_operator
from tests import laws, tiny
from tests.ops.strategies import operator_graphs
from tests.strategies import (
    Model,
    beside_each_other,
    graphs,
    plans_in_time,
    whole_plans,
    with_homes,
)
from tests.ways import SEEDS, SIZE, WAYS

GRAPHS = {"tiny": graphs(), "operators": operator_graphs()}
NUMBERS = st.integers(0, 99)


# -- laws of what is drawn ---------------------------------------------------------------------------------------------


def any_strategy(draw, way, models, options):
    laws.any_strategy_is_one_device(*way.placed(draw, models), steps=3, **options)


def any_order(draw, way, models, options):
    laws.any_order_is_the_same(*way.placed(draw, models), seed=draw(NUMBERS), **options)


def runs(draw, way, models, options):
    laws.runs_are_the_same(*way.placed(draw, models), **options)


def driver(draw, way, models, options):
    """Whoever drives a device."""
    placed = way.placed(draw, models)
    laws.whoever_drives_a_device_gives_its_bits(*placed, seed=draw(NUMBERS), **options)


def own_rows(draw, way, models, options):
    """Halos, uneven splits and updates among them; and jobs, of which some ranks have no device."""
    models = draw(
        st.sampled_from((models, st.lists(models, min_size=2, max_size=2).map(beside_each_other)))
    )
    laws.own_rows_give_the_bits_of_all(*way.placed(draw, models), **options)


def own_plans(draw, way, models, options):
    """Micro-batches, stages and orders; memory is checked in some."""
    model, machine = draw(models), way.machine(draw)
    placed, machine, strategy = draw(plans_in_time(model, machine))
    plan = Plan(strategy, schedule=draw(st.sampled_from(sorted(NAMED))))
    options = options | {"watch": draw(st.booleans())}
    laws.own_plans_give_the_bits_of_all(placed, machine, plan, **options)


def repeated_steps(draw, way, models, options):
    piece_bytes = draw(st.sampled_from((None, 16, 100)))
    collectives = {"all-reduce": "fastest"} if piece_bytes else {}
    lowering = {"piece_bytes": piece_bytes, "collectives": collectives}
    placed, repeat = way.placed(draw, models), draw(st.integers(2, 3))
    laws.repeated_steps_are_single_ones(*placed, repeat, draw(NUMBERS), lowering, **options)


def shared_regions(draw, way, models, options):
    laws.shared_regions_are_one(*way.placed(draw, models), draw(NUMBERS), **options)


def jobs_beside(draw, way, models, options):
    """Two or three, each under a strategy of its own, in any order."""
    drawn, machine = [draw(models) for _ in range(draw(st.integers(2, 3)))], way.machine(draw)
    strategies = [laws.random_strategy(model.graph, machine, draw(SEEDS)) for model in drawn]
    order = draw(st.sampled_from(sorted(set(NAMED) - set(POLICIES))))
    laws.jobs_beside_each_other_are_as_alone(drawn, machine, strategies, order, **options)


def given_up_steps(draw, way, models, options):
    """A step on what is not finite changes nothing; the two executors have a backend each."""
    model, machine, strategy = way.placed(draw, models)
    others = {name: value for name, value in options.items() if name != "backend"}
    is_given_up = laws.given_up_steps_change_nothing(
        model, machine, strategy, lambda: way.backend_options(draw), **others
    )
    assert is_given_up or not model.graph.parameters


def homes(draw, way, models, options):
    """Homes, updates and what is offloaded are on any device."""
    model, machine = draw(models), way.machine(draw)
    graph = with_homes(draw, model.graph, np.random.default_rng(draw(NUMBERS)), machine)
    strategy = laws.random_strategy(graph, machine, draw(SEEDS))
    laws.any_strategy_is_one_device(Model(graph, model.feeds), machine, strategy, 2, **options)


def schedules(draw, way, models, options):
    """Micro-batches, stages, recomputation, schedules."""
    model, machine = draw(models), way.machine(draw)
    expected = laws.one_device(model, MachineModel.uniform(SIZE), 2)
    placed = draw(plans_in_time(model, machine))
    laws.any_plan_in_time_is_one_device(*placed, expected, draw(NUMBERS), **options)


def plans(draw, way, models, options):
    """Strategy, micro-batches, order, recomputation, homes and collectives, through a file."""
    model, machine = draw(models), way.machine(draw)
    expected = laws.one_device(model, MachineModel.uniform(SIZE), 2)
    placed = draw(whole_plans(model.graph, machine))
    with TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        laws.any_plan_is_one_device(model, *placed, expected, path, **options)


# Way -> law -> per cent of the profile's examples, of each kind of models, shared by the transports; one at least. Half
# of them on more than two ranks, and of two kinds of models one, by turns, where that is one already.
ALONE = {
    "NumPy": {
        any_strategy: 140,
        any_order: 70,
        runs: 60,
        repeated_steps: 30,
        shared_regions: 70,
        jobs_beside: 20,
        given_up_steps: 20,
        schedules: 90,
        plans: 90,
    },
    "checked memory": {any_strategy: 100, shared_regions: 10, schedules: 20},
    "emulated": {any_strategy: 20, schedules: 10},
    "GPU": {
        any_strategy: 60,
        any_order: 10,
        repeated_steps: 10,
        shared_regions: 10,
        given_up_steps: 5,
        homes: 10,
        schedules: 20,
    },
    "GPU's kernels": {any_strategy: 25},
}
TOGETHER = {
    "NumPy": {
        any_strategy: 160,
        any_order: 10,
        runs: 10,
        driver: 10,
        repeated_steps: 10,
        shared_regions: 40,
        jobs_beside: 6,
        given_up_steps: 4,
        homes: 40,
        schedules: 20,
        plans: 20,
    },
    "checked memory": {any_strategy: 40},
    "several devices": {
        any_strategy: 16,
        any_order: 10,
        driver: 10,
        shared_regions: 16,
        given_up_steps: 4,
        schedules: 10,
    },
    "uneven pace": {any_strategy: 40},
    "hosts": {
        any_strategy: 40,
        own_rows: 80,
        own_plans: 30,
        given_up_steps: 10,
        shared_regions: 20,
    },
    "emulated": {any_strategy: 20, given_up_steps: 2},
    "GPU": {any_strategy: 40, any_order: 10, shared_regions: 10, given_up_steps: 6, schedules: 10},
}
TURNS = count()
CASES = [
    pytest.param(
        way,
        transport,
        law,
        models,
        percent // len(WAYS[way].transports),
        id=f"{way}-{transport}-{law.__name__}-{models}",
    )
    for way, shares in (ALONE if SIZE == 1 else TOGETHER).items()
    for transport in WAYS[way].transports
    for law, percent in shares.items()
    for models in GRAPHS
    if (way, models) != ("GPU's kernels", "tiny")  # they have kernels for NumPy alone
    and (SIZE <= 2 or percent >= 100 or next(TURNS) // 2 % 2 != (models == "tiny"))
]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "transport", "law", "models", "percent"), CASES)
def test_law(way, transport, law, models, percent, for_examples, request):
    tried = WAYS[way]
    if tried.missing:
        pytest.skip(tried.missing)

    def holds(data):
        options = {"transport": transport} | tried.options(data.draw)
        options |= tried.backend_options(data.draw)
        with tried.setting(data.draw):
            law(data.draw, tried, GRAPHS[models], options)

    count = settings().max_examples * percent // (100 if SIZE <= 2 else 200)
    for_examples(max(1, count), holds, crc32(request.node.name.encode()))


def test_an_operator_of_ones_own_is_checked():
    """By every rank alike, though its splits have more devices than there may be ranks."""

    def build():
        graph = Graph()
        return graph, tiny.linear(graph.input("x", (4, 3), "float64"), 2)

    assert ("fc", "b", 3) in check_operator(build)
