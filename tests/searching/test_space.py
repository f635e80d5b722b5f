"""The space of a search: what it holds, that draws are uniform, and placements that have the machine's structure."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import (
    Device,
    Graph,
    MachineModel,
    ParallelConfig,
    data_parallel,
    lower,
    single_device,
)
from taskflow.searching.placement import Placements, turn
from taskflow.searching.space import Space, count_strategies, power_of_two
from taskflow.strategy.partition import partition
from taskflow.strategy.strategy import check_config
from tests import tiny
from tests.refusals import assert_refused
from tests.strategies import graphs

FOUR = MachineModel.uniform(4)


def hosts_of(*sizes):
    """A machine whose hosts have these numbers of devices."""
    hosts = [host for host, size in enumerate(sizes) for _ in range(size)]
    machine = MachineModel.uniform(len(hosts))
    return replace(machine, devices=tuple(Device(host=host) for host in hosts))


def linear(batch=8, width=6, out=4):
    graph = Graph()
    tiny.linear(graph.input("x", (batch, width)), out)
    return graph


def devices_of(machine, degrees):
    return [p.devices for p in Placements(machine).of(degrees)]


# -- placements --------------------------------------------------------------------------------------------------------


def test_one_point_may_be_on_any_device():
    assert devices_of(FOUR, []) == [(0,), (1,), (2,), (3,)]


def test_two_points_are_on_aligned_lattices_or_on_one_device():
    pairs = [(0, 1), (2, 3), (0, 2), (1, 3)]
    assert devices_of(FOUR, [2]) == [*pairs, (0, 0), (1, 1), (2, 2), (3, 3)]
    assert devices_of(hosts_of(4, 4), [2])[:4] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_numbers_that_do_not_divide_stay_inside_a_host():
    assert devices_of(hosts_of(4, 4), [3]) == [(0, 1, 2), (1, 2, 3), (4, 5, 6), (5, 6, 7)]
    assert devices_of(hosts_of(2, 2, 2), [4])[:2] == [(0, 1, 2, 3), (2, 3, 4, 5)]
    assert devices_of(hosts_of(4, 4), [5]) == []


def test_one_device_of_each_host():
    assert (1, 5, 9, 13) in devices_of(hosts_of(4, 4, 4, 4), [4])


def test_devices_are_counted_host_by_host():
    machine = replace(FOUR, devices=tuple(Device(host=d % 2) for d in range(4)))
    assert devices_of(machine, [2])[:2] == [(0, 2), (1, 3)]


def test_over_several_hosts_either_axis_may_stay_inside():
    found = devices_of(hosts_of(2, 2), [2, 2])
    assert found == [(0, 1, 2, 3)] * 2
    assert [p.is_turned for p in Placements(hosts_of(2, 2)).of([2, 2])] == [False, True]
    assert turn((0, 1, 2, 3, 4, 5), (2, 3)) == (0, 2, 4, 1, 3, 5)


def test_unequal_devices_get_parts_in_proportion():
    slow, fast = Device(), Device(flops_per_second=15e10)
    machine = replace(MachineModel.uniform(2), devices=(slow, fast))
    fractions = {p.fractions for p in Placements(machine).of([2]) if p.devices == (0, 1)}
    assert fractions == {None, (0.25, 0.75)}


def test_large_machines_use_divisors():
    lists = Placements(MachineModel.uniform(20))
    assert [k for k in range(2, 21) if any(len(set(p.devices)) == k for p in lists.of([k]))] == [
        2,
        4,
        5,
        10,
        20,
    ]


# -- the set of an operator --------------------------------------------------------------------------------------------


def test_all_axes_and_all_degrees():
    space = Space(linear(), FOUR)
    splits = {tuple(d for d in c.degrees) for c in space.configs("fc")}
    expected = {()}
    expected |= {((axis, d),) for axis in "bio" for d in (2, 3, 4)}
    expected |= {((a, 2), (b, 2)) for a, b in ("bi", "bo", "io")}
    assert splits == expected


def test_fixed_axes_and_axes_of_one_point_are_not_split():
    graph = Graph()
    tiny.centre(graph.input("x", (1, 6)))
    space = Space(graph, FOUR)
    assert [str(c) for c in space.configs("centre")] == [f"whole on {d}" for d in range(4)]


def test_degrees_are_at_most_the_extent():
    space = Space(linear(batch=3, width=1, out=2), FOUR)
    assert {dict(c.degrees).get("b", 1) for c in space.configs("fc")} == {1, 2, 3}


def test_an_axis_inside_a_group_is_split_when_those_left_of_it_are_points():
    graph = Graph()
    x = graph.input("x", (4, 6), "float64")
    tiny.sgd(tiny.mean_square(tiny.split_heads(tiny.linear(x, 6), 2)))
    splits = {tuple(c.degrees) for c in Space(graph, FOUR).configs("heads")}
    assert (("d", 2),) not in splits and (("h", 2), ("d", 2)) in splits and (("h", 2),) in splits


def test_restricted_to_powers_of_two_and_given_lists():
    space = Space(linear(), FOUR, power_of_two, [(0,), (0, 1), (0, 1, 2, 3)])
    assert space.size("fc") == 1 + 3 + 3 + 3
    assert count_strategies(space) == 10
    assert {c.devices for c in space.configs("fc")} == {(0,), (0, 1), (0, 1, 2, 3)}


@given(graphs(steps=3), st.sampled_from([hosts_of(3), hosts_of(2, 2), hosts_of(1, 2)]))
def test_every_configuration_is_legal_and_stands_once(model, machine):
    space = Space(model.graph, machine)
    for op in space.operators:
        configs = list(space.configs(op.name))
        assert len(set(configs)) == len(configs) == space.size(op.name)
        family = [op, *(other for other in model.graph.operators if other.follows == op.name)]
        for config in configs[:: max(len(configs) // 30, 1)]:
            check_config(op, config, len(machine.devices))
            assert all(len(partition(member, config)) for member in family)
            assert space.find(op.name, config) is config


@given(graphs(steps=3), st.integers(0, 2**32 - 1))
def test_drawn_strategies_can_be_lowered(model, seed):
    strategy = Space(model.graph, FOUR).draw_strategy(np.random.default_rng(seed))
    assert len(lower(model.graph, strategy, FOUR))


def test_draws_are_uniform():
    space, generator = Space(linear(), MachineModel.uniform(2)), np.random.default_rng(0)
    count, draws = space.size("fc"), 20_000
    seen = Counter(space.draw("fc", generator) for _ in range(draws))
    assert len(seen) == count
    spread = 5 * math.sqrt(draws / count)
    assert all(abs(n - draws / count) < spread for n in seen.values())


def test_equal_configurations_are_one_object():
    graph = Graph()
    tiny.linear(tiny.linear(graph.input("x", (8, 6)), 6, name="fc1"), 4, name="fc2")
    space = Space(graph, FOUR)
    ones = {c: c for c in space.configs("fc1")}
    assert all(ones[c] is c for c in space.configs("fc2"))


def test_a_strategy_that_is_included():
    graph = linear()
    space = Space(graph, FOUR)
    size = space.size("fc")
    own = space.include(data_parallel(graph, FOUR))
    assert space.size("fc") == size and own["fc"] is space.find("fc", ParallelConfig({"b": 4}))
    odd = single_device(graph, FOUR)
    odd["fc"] = ParallelConfig({"o": 2, "i": 1}, (3, 0))
    assert space.find("fc", odd["fc"]) is None
    own = space.include(odd)
    assert space.size("fc") == size + 1 and own["fc"] == ParallelConfig({"o": 2}, (3, 0))
    assert space.find("fc", odd["fc"]) is own["fc"] and own["fc"] in list(space.configs("fc"))


def test_no_list_fits():
    message = "space: no list of devices has as many as operator 'fc' may have points"
    assert_refused(
        message, lambda: Space(linear(), MachineModel.uniform(97), device_lists=[range(97)])
    )


@pytest.mark.parametrize("degrees", [(("b", 2), ("o", 2)), (("b", 4),), ()])
def test_find_gives_what_config_gives(degrees):
    space = Space(linear(), hosts_of(2, 2))
    held = [c for c in space.configs("fc") if c.degrees == degrees]
    assert held and all(
        space.find("fc", ParallelConfig(dict(c.degrees), c.devices)) is c for c in held
    )
