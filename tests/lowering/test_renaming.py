"""Renaming equal devices renames rows and changes nothing else (law 12), not even their order."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import (
    CostModel,
    Device,
    Kind,
    MachineModel,
    ParallelConfig,
    Strategy,
    lower,
    reorder,
    simulate,
)
from taskflow.machine.topology import of_name
from taskflow.schedule.orders import NAMED
from taskflow.schedule.policies import POLICIES
from taskflow.tasks.streams import STREAMS
from tests.collectives import by_copies
from tests.ops.strategies import operator_graphs
from tests.strategies import examples, graphs, plans_in_time, random_strategy

SAME = (  # columns that are equal
    *("kind", "launch", "point", "region", "ordinal", "collective", "algorithm", "bytes", "flops"),
    *("arg_ptr", "arg_instance", "arg_box", "arg_privilege", "dep_ptr", "dep_row"),
    *("instance_region", "instance_box", "instance_partial"),
)
OF_DEVICES = ("device", "source", "instance_device")  # these name devices


ORDERS = sorted(NAMED.keys() - POLICIES.keys())


def on_hosts(*sizes):
    """Equal devices with a link between any two, on hosts of these sizes."""
    hosts = np.repeat(np.arange(len(sizes)), sizes)
    machine = MachineModel.uniform(sum(sizes))
    return replace(machine, devices=tuple(Device(host=int(h)) for h in hosts))


def mixed(p100, k80):
    """Hosts of two kinds, of which devices send over network cards."""
    presets = MachineModel.preset("p100", nodes=p100), MachineModel.preset("k80", nodes=k80)
    return MachineModel.join(presets)


MACHINES = {
    "two": MachineModel.uniform(2),
    "copies": MachineModel.uniform(4),
    "hosts": on_hosts(2, 3, 3),
    "all by copies": by_copies(on_hosts(3, 3), 6),
    "collectives": by_copies(on_hosts(2, 2, 2, 2), 1),
    "two kinds": mixed(2, 1),
    "many": mixed(4, 2),
    "cube meshes": MachineModel.preset("v100", nodes=2),
    "relays": MachineModel.preset("h100", nodes=2).with_collectives({"all-to-all": "two-level"}),
    "fat tree": of_name("fat_tree:3x3"),
    "torus": of_name("torus:3x3"),
}


def links_renamed(machine, renamed):
    """What each link becomes, if routes and hosts are as before, and every device is as it was; else None."""
    count = len(machine.links)
    before, after = machine.routes, machine.routes[np.ix_(renamed, renamed)]
    found = np.full(count + 1, -1)
    found[before] = after
    is_kept = (found[before] == after).all() and found[-1] == -1
    named = found[:count][np.unique(before[before >= 0])]
    pairs = [(machine.devices[d], machine.devices[e]) for d, e in enumerate(renamed.tolist())]
    same = all(replace(a, host=0) == replace(b, host=0) for a, b in pairs)
    same = same and len({(a.host, b.host) for a, b in pairs}) == len(machine.hosts)
    rates = machine.link_bandwidth[found] == machine.link_bandwidth
    is_kept = is_kept and len(np.unique(named)) == len(named) and same
    is_kept = is_kept and rates[np.unique(before[before >= 0])].all()
    latency = machine.latency_seconds
    return found if is_kept and (latency == latency[np.ix_(renamed, renamed)]).all() else None


@st.composite
def renamings(draw, machine):
    """Device -> its new name: devices of a host change places, and hosts, if that changes nothing else."""
    renamed, count = np.arange(len(machine.devices)), len(machine.devices)
    for _ in range(draw(st.integers(1, 8))):
        first, second = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        pairs = [((first,), (second,))]
        hosts = [machine.hosts[machine.devices[d].host] for d in (first, second)]
        if len(hosts[0]) == len(hosts[1]):
            pairs.append(hosts)
        moved, (here, there) = np.arange(count), draw(st.sampled_from(pairs))
        moved[[*here, *there]] = [*there, *here]
        if links_renamed(machine, moved) is not None:
            renamed = moved[renamed]
    return renamed


def strategy_renamed(strategy, renamed):
    """The same points on the devices that have the new names."""
    return Strategy(
        {
            name: ParallelConfig(dict(config.degrees), renamed[list(config.devices)].tolist())
            for name, config in strategy.items()
        }
    )


def streams_renamed(rows, renamed):
    """The streams of every row, which those of devices and of links have become."""
    machine, count = rows.machine, len(rows.machine.devices)
    links = links_renamed(machine, renamed)
    first = STREAMS * count
    known = np.arange(first + len(machine.links) + 1)
    known[:first] = renamed[known[:first] % count] + count * (known[:first] // count)
    known[first:-1] = first + links[:-1]
    return [sorted(known[rows.streams_of(row)].tolist()) for row in range(len(rows))]


def places(named, renamed):
    """Of what is on devices, with the new names."""
    return {name: [(int(renamed[d]), *rest) for d, *rest in of] for name, of in named.items()}


def assert_renamed(graph, strategy, machine, renamed):
    """Rows, what they cost, and what they take of memory."""
    one = lower(graph, strategy, machine)
    other = lower(graph, strategy_renamed(strategy, renamed), machine)
    for name in SAME:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    for name in OF_DEVICES:
        np.testing.assert_array_equal(renamed[getattr(one, name)], getattr(other, name), name)
    assert streams_renamed(one, renamed) == streams_renamed(other, np.arange(len(renamed)))
    assert dict(one.homes) == dict(other.homes)
    assert places(one.fetches, renamed) == places(other.fetches, np.arange(len(renamed)))
    assert sorted(renamed[list(one.devices_used)].tolist()) == list(other.devices_used)
    for row in np.flatnonzero(one.kind == Kind.COLLECTIVE).tolist():
        a, b = one.exchange(row), other.exchange(row)
        assert (renamed[a.members].tolist(), a.outline(1)) == (b.members, b.outline(1))
    costs = CostModel.analytic(machine)
    a, b = simulate(one, costs), simulate(other, costs)
    np.testing.assert_allclose(a.end, b.end, 1e-12)
    np.testing.assert_array_equal(a.peak_bytes, b.peak_bytes[renamed])
    return one, other


@pytest.mark.parametrize("machine", MACHINES)
@examples(20)
@given(model=graphs() | operator_graphs(), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_rows_of_a_random_strategy_are_renamed(machine, model, seed, data):
    machine = MACHINES[machine]
    renamed = data.draw(renamings(machine))
    assert_renamed(model.graph, random_strategy(model.graph, machine, seed), machine, renamed)


@pytest.mark.parametrize("machine", ["hosts", "collectives", "two kinds"])
@examples(20)
@given(model=graphs(), data=st.data())
def test_rows_of_micro_batches_are_renamed_in_every_order(machine, model, data):
    machine = MACHINES[machine]
    staged, _, strategy = data.draw(plans_in_time(model, machine))
    renamed = data.draw(renamings(machine))
    one, other = assert_renamed(staged.graph, strategy, machine, renamed)
    costs, order = CostModel.analytic(machine), data.draw(st.sampled_from(ORDERS))
    one, other = reorder(one, costs, order), reorder(other, costs, order)
    for name in ("kind", "launch", "point", "region"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    np.testing.assert_array_equal(renamed[one.device], other.device)
