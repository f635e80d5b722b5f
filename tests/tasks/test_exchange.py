"""Exchanges: carried out on plain arrays, they give every target the sum or the whole; and who sends how much."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import MachineModel
from taskflow.collective.algorithms import BY_STEPS, serving
from taskflow.collective.price import CollectiveCosts
from taskflow.core.geometry import Rect, balanced_bounds
from taskflow.tasks import moves
from taskflow.tasks.carry import COPY
from taskflow.tasks.exchange import Exchange
from tests.strategies import examples

SIZE = 24
WHOLE = Rect.of_shape((SIZE,))
HOSTS = {"one": (0,) * 8, "two": (0,) * 4 + (1,) * 4, "uneven": (0, 1, 1, 0, 1, 1, 1, 2)}


@cache
def costs_of(hosts):
    machine = MachineModel.uniform(8)
    devices = (replace(each, host=host) for each, host in zip(machine.devices, hosts, strict=True))
    return CollectiveCosts(replace(machine, devices=tuple(devices)))


def make(name, hosts, sources, targets, scratch=(), algorithm=None, parts=1, doors=0):
    """Arguments are (device, box); a target lies in the memory of its device's source, as lowering has it.

    A sum arrives in so many parts.
    """
    args = [*sources, *targets, *scratch]
    devices, boxes = [d for d, _ in args], [box for _, box in args]
    instances = [*devices[: len(sources) + len(targets)], *range(100, 100 + len(scratch))]
    door = np.zeros((8, 8), np.int64) + doors
    x = Exchange(
        name,
        costs_of(hosts).machine.equals,
        lambda source, device: door[source, device],
        devices,
        instances,
        boxes,
        len(sources),
        len(targets),
    )
    if algorithm is None:
        return x
    assert x.is_regular
    outline = x.outline(parts * moves.ROOM_BYTES // SIZE)
    return replace(
        x, messages=costs_of(hosts).prices(tuple(x.members)).messages(outline, algorithm)
    )


def run(exchange, values):
    """Instance -> what it holds in the end, where sources hold `values[device]` at first; pair -> elements sent."""
    memory = {k: np.full(SIZE, np.nan) for k in exchange.instances}
    for k in range(exchange.sources):
        box = exchange.boxes[k].slices()
        memory[exchange.instances[k]][box] = values[exchange.devices[k]][box]
    sent = Counter()

    def view(k, box, offset):
        """A box of an argument; in scratch memory it lies behind what came before it in its message."""
        found = memory[exchange.instances[k]]
        if k in exchange.scratch:
            return found[: exchange.boxes[k].volume][offset:][: box.volume]
        return found[box.slices()]

    for target, parts, box, _, offset in exchange.steps():
        view(target, box, offset)[:] = sum(view(k, box, offset) for k in parts)
        source, device = exchange.devices[parts[0]], exchange.devices[target]
        if len(parts) == 1:
            sent[source, device] += box.volume * (source != device)
        else:
            assert {exchange.devices[k] for k in parts} == {device}, "sums are local"
    return memory, sent


VALUES = np.random.default_rng(0).integers(0, 100, (8, SIZE)).astype(float)


@st.composite
def arguments(draw, name, algorithm):
    """Sources, targets, scratch memory and the parts of a sum, as lowering makes them.

    A member may have, or get, any number of tiles; some may have nothing at first, or get nothing.
    """
    some = st.lists(st.integers(0, 7), min_size=2, max_size=8, unique=True)
    few = st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True)
    edges = draw(st.lists(st.integers(1, SIZE - 1), min_size=1, max_size=9, unique=True))
    tiles = [Rect((a,), (b,)) for a, b in pairwise([0, *sorted(edges), SIZE])]
    members = [(d, WHOLE) for d in sorted(draw(some))]
    one = draw(st.integers(0, 7))
    if name == "broadcast":
        return [(one, WHOLE)], [each for each in members if each[0] != one], [], 1
    if name == "all-gather":
        owners = some if draw(st.booleans()) else few
        return [(d, box) for box in tiles for d in draw(owners)[:2]], members, [], 1
    if name == "reduce-scatter":
        owned = [(draw(st.integers(0, 7)), box) for box in tiles]
        most, adding = len(members), [d for d, _ in members]
    else:
        owned = [(one, WHOLE)]
        if name == "all-reduce":
            owned = [(d, WHOLE) for d in sorted(draw(some))]
        adding = sorted({d for d, _ in (*members, *owned)})
        most = len(owned) if len(owned) > 1 else len(adding) if algorithm else 1
    parts = draw(st.integers(1, most))
    room = -(-SIZE // parts)
    if name == "reduce-scatter":
        of_owner = Counter()
        for device, box in owned:
            of_owner[device] += box.volume
        room = max(room, *of_owner.values())
    doors = draw(st.integers(1, 2))
    return (
        members,
        owned,
        [(d, Rect.of_shape((room,))) for d in adding for _ in range(doors)],
        parts,
    )


def least_sent(name, sources, targets):
    """Elements: whoever has a partial result sends it once, whoever gets what it lacks receives it once.

    Of an all-reduce, the most: one that has nothing at first may pass on what it gets.
    """
    having, getting = {d for d, _ in sources}, {d for d, _ in targets}
    if name in ("all-gather", "broadcast"):
        held = sum(box.volume for d, box in sources if d in getting)
        return len(getting) * SIZE - held
    if name == "all-reduce":
        return 2 * (len(having | getting) - 1) * SIZE
    return sum((len(having) - (d in having)) * box.volume for d, box in targets)


NAMED = [(name, algorithm) for name in BY_STEPS for algorithm in (None, *serving(name))]


@pytest.mark.parametrize(("name", "algorithm"), NAMED)
@examples(60)
@given(data=st.data())
def test_every_target_gets_the_sum_or_the_whole(name, algorithm, data):
    """Whoever has what, and wherever it lies; with the least bytes that can be."""
    *given_, parts = data.draw(arguments(name, algorithm))
    hosts = HOSTS[data.draw(st.sampled_from(sorted(HOSTS)))]
    seed = data.draw(st.integers(0, 9))
    doors = np.random.default_rng(seed).integers(0, 2, (8, 8))
    x = make(name, hosts, *given_, algorithm, parts, doors)
    if data.draw(st.booleans()):  # targets in memory of their own
        x = replace(x, instances=range(len(x.devices)))
    is_sum = name in moves.SUMS
    values = VALUES if is_sum else np.tile(VALUES[0], (8, 1))
    memory, sent = run(x, values)
    whole = values[[x.devices[k] for k in x.having]].sum(0) if is_sum else values[0]
    for k in x.getting:
        box = x.boxes[k].slices()
        np.testing.assert_array_equal(memory[x.instances[k]][box], whole[box])
    least = least_sent(name, *given_[:2])
    is_even = {d for d, _ in given_[0]} == {d for d, _ in given_[1]}
    assert sent.total() == least if is_even or name != "all-reduce" else sent.total() <= least
    told = Counter()
    for source, target, size in x.sent().T.tolist():
        told[source, target] += size
    assert told == +sent


@pytest.mark.parametrize("name", BY_STEPS)
@examples(40)
@given(data=st.data())
def test_steps_of_some_devices_are_those_of_all_that_touch_them(name, data):
    algorithm = data.draw(st.sampled_from((None, *serving(name))))
    *given_, parts = data.draw(arguments(name, algorithm))
    hosts = HOSTS[data.draw(st.sampled_from(sorted(HOSTS)))]
    x = make(name, hosts, *given_, algorithm, parts)
    is_own = np.array(data.draw(st.lists(st.booleans(), min_size=8, max_size=8)))
    every, some = x.steps(), x.steps_on(is_own)
    device = [[x.devices[k] for k in (step.target, *step.parts)] for step in every]
    assert some.number.tolist() == [k for k, each in enumerate(device) if is_own[each].any()]
    for k, number in enumerate(some.number.tolist()):
        target, (part, *added), box, follows, offset = every[number]
        assert (some.target[k], some.part[k], some.added[k]) == (target, part, *(added or [COPY]))
        assert some.box[k].tolist() == [[*box.lo], [*box.hi]]
        assert (some.follows[k], some.offset[k]) == (follows, offset)


def tiles(devices):
    bounds = balanced_bounds(SIZE, len(devices))
    return [
        (device, Rect((a,), (b,))) for device, (a, b) in zip(devices, pairwise(bounds), strict=True)
    ]


def crossing(exchange):
    """Elements that go from one host to another."""
    pairs = ((s.parts[0], s.target, s.box.volume) for s in exchange.steps() if len(s.parts) == 1)
    return sum(
        v
        for a, b, v in pairs
        if exchange.hosts[exchange.devices[a]] != exchange.hosts[exchange.devices[b]]
    )


@pytest.mark.parametrize("algorithm", ["ring", "two-level"])
def test_rings_cross_between_hosts_as_little_as_possible(algorithm):
    whole = [(d, WHOLE) for d in range(8)]
    ring = make("all-reduce", HOSTS["two"], whole, whole, tiles(range(8)), algorithm)
    assert crossing(ring) == 2 * 2 * SIZE * 7 // 8 if algorithm == "ring" else 2 * SIZE


def test_a_tree_crosses_between_hosts_once():
    targets = [(d, WHOLE) for d in range(8) if d != 4]
    assert crossing(make("broadcast", HOSTS["two"], [(4, WHOLE)], targets, (), "tree")) == SIZE


def test_members_stand_host_by_host_as_arguments_name_them():
    """Another tree is the same one with other names."""
    targets = [(d, WHOLE) for d in (3, 1, 2, 5, 7, 6)]
    assert make("broadcast", HOSTS["two"], [(4, WHOLE)], targets).members == [4, 5, 7, 6, 3, 1, 2]
