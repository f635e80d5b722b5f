"""Law 8: the seconds of a collective are those of the rows that run in its place, links shared fairly."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import CostModel, Kind, MachineModel, ParallelConfig, Strategy, lower
from taskflow.collective.algorithms import serving
from taskflow.collective.price import SMALL, CollectiveCosts, tried
from taskflow.execute.expand import expand
from taskflow.machine.topology import torus
from taskflow.simulation.sharing import links_of_exchange, schedule_fairly
from taskflow.tasks import moves
from taskflow.tasks.moves import even_outline
from tests import tiny
from tests.collectives import NAMED, by_copies, one_collective
from tests.lowered import matrix
from tests.strategies import examples, graphs, random_strategy


def by_steps(name, hosts):
    """A preset on which no library moves anything."""
    return MachineModel.preset(name, nodes=hosts).with_library("own")


MACHINES = [
    by_steps("v100", 2).take(11),
    by_steps("p100", 2),
    MachineModel.uniform(6),
    torus((2, 3)),
]


@examples(10)
@given(data=st.data())
def test_a_row_takes_what_its_steps_take(data):
    """Any roots, partial groups, uneven tiles and boxes of few elements; bounds are below, the best is chosen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moves, "ROOM_BYTES", data.draw(st.sampled_from([0, 40, 200])))
        machine = by_copies(data.draw(st.sampled_from(MACHINES)), 1)
        graph = data.draw(graphs()).graph
        task_graph = lower(
            graph, random_strategy(graph, machine, data.draw(st.integers(0, 2**32 - 1))), machine
        )
        searched = CollectiveCosts.of_search(machine)
        for row, seconds in check_prices(task_graph):
            check_choice(task_graph, row, seconds)
            check_estimate(task_graph, row, seconds, searched)


def check_prices(task_graph):
    """Some collective rows and their seconds, which are those of their steps."""
    costs, rows = CostModel.analytic(task_graph.machine), expand(task_graph)
    seconds, of_rows = costs.seconds(task_graph), costs.seconds(rows.task_graph)
    found = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE)[:6].tolist()
    for row in found:
        own = rows.origin == row
        start, end, _ = schedule_fairly(rows.task_graph, np.where(own, of_rows, 0.0))
        assert seconds[row] == pytest.approx(end[own].max() - start[own].min(), rel=1e-9)
    return zip(found, seconds[found], strict=True)


def test_a_search_tries_what_is_the_fastest_in_a_group_of_its_machine():
    """Of a machine of many devices; of a small one it tries all."""
    machine = by_steps("p100", 3)
    searched, every = CollectiveCosts.of_search(machine), CollectiveCosts(machine)
    groups = range(12), range(4), range(0, 12, 4)
    for name in ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce"):
        outline = even_outline(name, (0,) * 4, 1 << 20)
        assert set(tried(outline, searched.few)) < set(tried(outline))
        for group, size in product(groups, (1 << 14, 1 << 20, 1 << 25)):
            found, expected = (
                costs.prices(tuple(group)).choose(name, size) for costs in (searched, every)
            )
            assert found == expected
    small = CollectiveCosts.of_search(machine.take(SMALL))
    assert tried(outline, small.few) == tried(outline)


@pytest.mark.parametrize("name, algorithm", NAMED)
def test_every_algorithm_takes_what_its_steps_take(name, algorithm):
    """On shared links: a message of several tiles is one copy, whether they lay there or arrived."""
    machine = by_steps("v100", 2)
    task_graph, found = one_collective(name, algorithm, machine, (16, 6144))
    assert found[name] == algorithm
    list(check_prices(task_graph))


@pytest.mark.parametrize("algorithm", serving("reduce-scatter"))
def test_a_sum_with_outsiders_is_carried_out_as_named(algorithm):
    """Nine tiles for nine devices of three hosts; three of them have no part of the sum."""
    graph = tiny.copy(tiny.column_sum(matrix(6, 72), "sum"), "read").graph
    machine = by_steps("p100", 3).take(9).with_collectives({"reduce-scatter": algorithm})
    strategy = {
        "sum": ParallelConfig({"b": 6}, range(6)),
        "read": ParallelConfig({"c": 9}, range(9)),
    }
    task_graph = lower(graph, Strategy.of_graph(graph, strategy), machine)
    ((row, _),) = check_prices(task_graph)
    x = task_graph.exchange(row)
    assert (x.name, len(x.outline(8).outsiders)) == ("reduce-scatter", 3)
    assert task_graph.ways[task_graph.algorithm[row]].algorithm == algorithm
    assert {x.devices[step.target] for step in x.steps()} == set(range(9))


def check_choice(task_graph, row, seconds):
    x, itemsize = task_graph.exchange(row), task_graph.regions[int(task_graph.region[row])].itemsize
    if x.is_regular:
        prices, outline = (
            CollectiveCosts(task_graph.machine).prices(tuple(x.members)),
            x.outline(itemsize),
        )
        able = [*serving(x.name), *([] if outline.is_even else [""])]
        every = {each: prices.seconds_of(outline, each) for each in able}
        assert seconds == min(every[each] for each in tried(outline))
        named = min(every[each] for each in able if each)
        assert seconds <= 1.6 * named if outline.outsiders else seconds == min(every.values())
        if outline.is_even:
            assert all(prices.bound_of(outline, each) <= taken for each, taken in every.items())


def check_estimate(task_graph, row, seconds, searched):
    """What a search is told: of a machine of many devices by one of few algorithms, on the links that this crosses."""
    machine, x = task_graph.machine, task_graph.exchange(row)
    found = searched.carried(x, task_graph.regions[int(task_graph.region[row])].itemsize)
    is_small = len(machine.devices) <= SMALL
    assert (
        seconds <= found.seconds * (1 + 1e-9)
        and found.seconds <= (1.0 + 1e-9 if is_small else 1.5) * seconds
    )
    if is_small or found.seconds == seconds:
        links, parts = links_of_exchange(machine, x)
        np.testing.assert_array_equal(found.links, links)
        np.testing.assert_allclose(found.parts, parts)
