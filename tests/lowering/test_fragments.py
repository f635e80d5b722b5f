"""Fragments: what is taken from those that are alike is what movement gives for the very points."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Graph, MachineModel, ParallelConfig, Strategy, single_device
from taskflow.graph.family import Family
from taskflow.lowering import Lowering
from taskflow.strategy.rules import leaders, random_config
from tests import tiny
from tests.lowered import network
from tests.strategies import examples, graphs

HOSTS = MachineModel.preset("p100", nodes=4)  # of 4 devices each


def on(config, first):
    """The configuration so many devices further on."""
    return ParallelConfig(dict(config.degrees), [d + first for d in config.devices])


def shifted(row, shift):
    """Rows that move data on other devices, so many further on."""
    found = row.copy()
    for name in ("source", "device"):
        found[name] += shift
    return found


def find(lowering, configs):
    """The fragments under `configs`, held to those that movement gives."""
    numbers = lowering.numbers(Strategy.of_graph(lowering.graph, configs))
    used = [np.unique(np.concatenate([lowering.store.points(n).device for n in numbers]))]
    found = lowering.fragments.find(numbers, used)
    world = lowering.mover.world(numbers, used, lowering.store)
    for region in range(len(lowering.regions)):
        expected = lowering.mover.move(region, world, used, lowering.store)
        fragment, shift = found.fragments[found.which[region]], found.shift[region]
        fragment = replace(
            fragment,
            instance_device=fragment.instance_device + shift,
            row=shifted(fragment.row, shift),
            fetches=fragment.fetches + shift * np.array([1, 0]),
        )
        for f in fields(expected):
            np.testing.assert_array_equal(
                getattr(fragment, f.name), getattr(expected, f.name), f.name
            )
    return found


@examples(40)
@given(
    model=graphs(), seed=st.integers(0, 2**32 - 1), first=st.lists(st.integers(1, 8), max_size=2)
)
def test_fragments_are_those_of_movement(model, seed, first):
    """A random strategy on two hosts, then the same further on: whole hosts, or so that parts change hosts."""
    machine, generator = HOSTS.take(15), np.random.default_rng(seed)
    lowering, few = Lowering(model.graph, machine), machine.take(7)
    configs = {op.name: random_config(Family.of(op), few, generator) for op in leaders(model.graph)}
    for shift in (0, 4, *first):
        find(lowering, {name: on(config, shift) for name, config in configs.items()})


def test_equal_layers_on_other_hosts_share_fragments():
    """Layer k on host k: but for the first two and the last two layers, each region is as the same one of layer 2."""
    graph = network(layers=6)
    lowering = Lowering(graph, MachineModel.preset("p100", nodes=6))
    configs = {f"fc{k}": on(ParallelConfig({"b": 4}), 4 * k) for k in range(6)}
    found = find(lowering, configs | {"loss": on(ParallelConfig({"b": 4}), 20)})
    number = {r.name: k for k, r in enumerate(lowering.regions)}
    for name in ("fc{}", "fc{}.weight", "fc{}.dx", "fc{}.dweight", "fc{}.weight.momentum"):
        second, third = number[name.format(2)], number[name.format(3)]
        assert found.which[second] == found.which[third], name
        assert found.shift[third] == found.shift[second] + 4


def test_replicas_of_partial_results_take_turns_alike_on_every_host():
    """Three devices hold each half of a bias gradient; which of them sends it is the same place of every host."""
    graph = Graph()
    h = tiny.linear(graph.input("x", (6, 6), "float64"), 6, "fc", bias=True)
    tiny.sgd(tiny.mean_square(h), own=("fc.bias",))
    lowering = Lowering(graph, MachineModel.preset("h100", nodes=2).with_library("own"))
    senders = []
    for first in (0, 8):
        configs = {
            "fc": ({"b": 2, "i": 3}, range(6)),
            "loss": (None, [0]),
            "fc.bias.update": (None, [7]),
        }
        found = find(lowering, {name: on(ParallelConfig(*c), first) for name, c in configs.items()})
        k = lowering.number["fc.dbias"]
        row, shift = found.fragments[found.which[k]].row, found.shift[k] - first
        senders.append((row["source"][row["source"] != row["device"]] + shift).tolist())
    assert senders == [[0, 3], [0, 3]]


@pytest.mark.parametrize(
    ("replicas", "reader", "expected"), [([6, 8], 7, [6, 9]), ([5, 7], 6, [5, 6])]
)
def test_replicas_serve_readers_on_their_host_first(replicas, reader, expected):
    """Weights live on two devices; the one between them asks the one of its host, whichever that is."""
    graph = Graph()
    h = tiny.linear(graph.input("x", (4, 4), "float64"), 4)
    tiny.tanh(graph.parameters[0], "aside")
    tiny.sgd(tiny.mean_square(h))
    lowering, sources = Lowering(graph, HOSTS), []
    for first in (0, 1):
        configs = {
            "fc": ({"b": 2}, replicas),
            "loss": (None, replicas[:1]),
            "aside": (None, [reader]),
        }
        found = find(lowering, {name: on(ParallelConfig(*c), first) for name, c in configs.items()})
        (row,) = found.fragments[found.which[lowering.number["fc.weight"]]].row
        sources.append(row["source"])
    assert sources == expected


def test_what_is_fetched_is_fetched_by_the_devices_in_use():
    """The same devices are in use both times, and the loss is elsewhere."""
    graph = network()
    lowering = Lowering(graph, HOSTS)
    for devices in ([4, 8, 4], [8, 4, 8]):
        find(
            lowering,
            {
                name: ParallelConfig(None, [d])
                for name, d in zip(("fc0", "fc1", "loss"), devices, strict=True)
            },
        )


def test_what_nobody_touches_is_kept_on_the_first_device_that_is_named():
    graph = Graph()
    graph.parameter("kept", (4, 4))
    tiny.tanh(graph.input("x", (4, 4)))
    lowering = Lowering(graph, HOSTS)
    for device in (4, 8):
        found = find(lowering, dict(single_device(graph, HOSTS, device)))
        k = lowering.number["kept"]
        assert (found.fragments[found.which[k]].instance_device + found.shift[k]).tolist() == [
            device
        ]


def test_which_argument_a_scalar_is_says_nothing_of_its_fragment():
    graph = network(batch=8, width=8)
    losses = [
        tiny.mean_square(tiny.linear(graph.regions["x"], 8, f"more{k}"), f"own{k}") for k in (0, 1)
    ]
    tiny.add(*losses, "total")
    kind = Lowering(graph, MachineModel.uniform(2)).life_kind
    number = {name: k for k, name in enumerate(graph.regions)}
    assert kind[number[losses[0].name]] == kind[number[losses[1].name]]
