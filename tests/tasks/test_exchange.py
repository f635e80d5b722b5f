"""Exchanges: carried out on plain arrays, they give every target the sum or the whole; and who sends how much."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import MachineModel
from taskflow.collective.algorithms import serving
from taskflow.collective.price import CollectiveCosts
from taskflow.core.geometry import Rect, balanced_bounds
from taskflow.tasks import moves
from taskflow.tasks.exchange import Exchange, ring_order
from tests.strategies import examples

SIZE = 24
WHOLE = Rect.of_shape((SIZE,))
ONE_HOST, TWO_HOSTS = (0,) * 8, (0, 0, 0, 0, 1, 1, 1, 1)


def make(name, hosts, sources, targets, scratch=(), algorithm=None):
    """Arguments are (device, box); a target lies in the memory of its device's source, as lowering has it."""
    args = [*sources, *targets, *scratch]
    devices = [d for d, _ in args]
    instances = [*devices[: len(sources) + len(targets)], *range(100, 100 + len(scratch))]
    doors = np.zeros((8, 8), np.int64)
    boxes = [box for _, box in args]
    x = Exchange(name, hosts, doors, devices, instances, boxes, len(sources), len(targets))
    if algorithm is None:
        return x
    assert x.is_regular
    prices = CollectiveCosts(MachineModel.uniform(8)).prices(tuple(x.members))
    return replace(
        x,
        messages=prices.messages(x.outline(moves.ROOM_BYTES if len(scratch) > 1 else 1), algorithm),
    )


def run(exchange, values):
    """Device -> what its memory holds after the steps, when its source holds `values[device]` at first."""
    memory = {k: np.full(SIZE, np.nan) for k in exchange.instances}
    for k in range(exchange.sources):
        box = exchange.boxes[k].slices()
        memory[exchange.instances[k]][box] = values[exchange.devices[k]][box]
    sent = dict.fromkeys(exchange.devices, 0)

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
            sent[source] += box.volume * (source != device)
        else:
            assert {exchange.devices[k] for k in parts} == {device}, "sums are local"
    return memory, sent


def tiles(devices):
    bounds = balanced_bounds(SIZE, len(devices))
    return [
        (device, Rect((a,), (b,))) for device, (a, b) in zip(devices, pairwise(bounds), strict=True)
    ]


VALUES = np.random.default_rng(0).integers(0, 100, (8, SIZE)).astype(float)


@pytest.mark.parametrize("hosts", [ONE_HOST, TWO_HOSTS])
@pytest.mark.parametrize("count", [5, 6, 8])
@pytest.mark.parametrize("algorithm", [None, *serving("all-reduce")])
def test_all_reduce(algorithm, count, hosts):
    devices = list(range(8 - count, 8))
    whole = [(d, WHOLE) for d in devices]
    part = Rect.of_shape((-(-SIZE // count),))
    exchange = make("all-reduce", hosts, whole, whole, [(d, part) for d in devices], algorithm)
    memory, sent = run(exchange, VALUES)
    for d in devices:
        np.testing.assert_array_equal(memory[d], VALUES[devices].sum(0))
    assert sum(sent.values()) == 2 * (count - 1) * SIZE


@pytest.mark.parametrize("root", [0, 3, 7])
@pytest.mark.parametrize("algorithm", serving("reduce"))
def test_reduce_to_a_root_that_may_have_nothing(algorithm, root):
    """Devices 0 to 5 hold partial results."""
    scratch = [(d, Rect.of_shape((SIZE // 6,))) for d in {*range(6), root}]
    sources = [(d, WHOLE) for d in range(6)]
    memory, _ = run(make("reduce", TWO_HOSTS, sources, [(root, WHOLE)], scratch, algorithm), VALUES)
    np.testing.assert_array_equal(memory[root], VALUES[:6].sum(0))


@pytest.mark.parametrize("algorithm", serving("reduce-scatter"))
def test_reduce_scatter_to_uneven_tiles(algorithm):
    tile = [
        (d, Rect((a,), (b,))) for d, (a, b) in enumerate(pairwise([0, 1, 4, 9, 10, 15, 16, 24]))
    ]
    scratch = [(d, Rect.of_shape((8,))) for d in range(7)]
    sources = [(d, WHOLE) for d in range(7)]
    memory, sent = run(make("reduce-scatter", TWO_HOSTS, sources, tile, scratch, algorithm), VALUES)
    for device, box in tile:
        np.testing.assert_array_equal(memory[device][box.slices()], VALUES[:7].sum(0)[box.slices()])
    assert sum(sent.values()) == 6 * SIZE


@pytest.mark.parametrize("outside", [[], [5], [4, 7]])
@pytest.mark.parametrize("algorithm", serving("reduce-scatter"))
def test_owners_of_several_tiles_and_of_none_and_outsiders(algorithm, outside):
    """Of four members, 3 owns nothing, 2 tiles that are neighbours; outsiders add nothing and do not get the whole."""
    owners = [0, 1, 2, 2, *(outside or [0]), 1, 2, 2]
    edges = np.linspace(0, SIZE, len(owners) + 1).astype(int).tolist()
    owned = [(d, Rect((a,), (b,))) for d, a, b in zip(owners, edges, edges[1:], strict=False)]
    whole, scratch = [(d, WHOLE) for d in range(4)], [(d, Rect.of_shape((12,))) for d in range(4)]
    memory, sent = run(make("reduce-scatter", TWO_HOSTS, whole, owned, scratch, algorithm), VALUES)
    for device, box in owned:
        np.testing.assert_array_equal(memory[device][box.slices()], VALUES[:4].sum(0)[box.slices()])
    added = sum(box.volume for device, box in owned if device in outside)
    assert sum(sent.values()) == 3 * SIZE + added
    gathered, sent = run(make("all-gather", TWO_HOSTS, owned, whole, (), algorithm), VALUES)
    expected = np.concatenate([VALUES[d][box.slices()] for d, box in owned])
    for d in range(4):
        np.testing.assert_array_equal(gathered[d], expected)
    assert sum(sent.values()) == 3 * SIZE + added


@pytest.mark.parametrize(("few", "others"), [([0, 1, 2, 3], [2, 3, 4, 5, 6]), ([1, 6], [0, 3])])
@pytest.mark.parametrize("algorithm", serving("all-reduce"))
def test_an_all_reduce_of_few_to_others(algorithm, few, others):
    sources, targets, members = (
        [(d, WHOLE) for d in part] for part in (few, others, {*few, *others})
    )
    memory, _ = run(make("all-reduce", TWO_HOSTS, sources, targets, members, algorithm), VALUES)
    for d in others:
        np.testing.assert_array_equal(memory[d], VALUES[few].sum(0))


@examples(25)
@given(data=st.data())
def test_who_has_what_wherever_it_lies(data):
    """A member may have any tiles, or a partial result or none, each in memory of its own or where the whole goes."""
    name = data.draw(st.sampled_from(["all-gather", "all-reduce"]))
    some = st.lists(st.integers(0, 7), min_size=2, max_size=8, unique=True)
    targets = [(d, WHOLE) for d in sorted(data.draw(some))]
    if name == "all-gather":
        edges = sorted(
            {0, SIZE, *data.draw(st.lists(st.integers(1, SIZE - 1), min_size=1, max_size=7))}
        )
        boxes = [Rect((a,), (b,)) for a, b in pairwise(edges)]
        sources = [(d, box) for box in boxes for d in data.draw(some)[:3]]
    else:
        sources = [(d, WHOLE) for d in sorted(data.draw(some))]
    members = sorted({d for d, _ in (*sources, *targets)})
    scratch = [(d, WHOLE) for d in members] if name == "all-reduce" else []
    is_own, hosts = data.draw(st.booleans()), data.draw(st.sampled_from([ONE_HOST, TWO_HOSTS]))
    values = np.tile(VALUES[0], (8, 1)) if name == "all-gather" else VALUES
    whole = values[[d for d, _ in sources]].sum(0) if name == "all-reduce" else values[0]
    for algorithm in serving(name):
        x = make(name, hosts, sources, targets, scratch, algorithm)
        x = replace(x, instances=range(len(x.devices))) if is_own else x
        memory, _ = run(x, values)
        for k in x.getting:
            np.testing.assert_array_equal(memory[x.instances[k]], whole)


@pytest.mark.parametrize("algorithm", serving("all-gather"))
def test_tiles_may_lie_in_memories_of_their_own(algorithm):
    x = make(
        "all-gather", TWO_HOSTS, tiles(range(8)), [(d, WHOLE) for d in range(8)], (), algorithm
    )
    memory, _ = run(replace(x, instances=range(16)), VALUES)
    for k in range(8, 16):
        np.testing.assert_array_equal(memory[k], memory[8])
        assert not np.isnan(memory[k]).any()


@pytest.mark.parametrize("algorithm", serving("all-gather"))
def test_all_gather_of_uneven_tiles(algorithm):
    tile = [
        (d, Rect((a,), (b,))) for d, (a, b) in enumerate(pairwise([0, 1, 4, 9, 10, 15, 16, 24]))
    ]
    memory, sent = run(
        make("all-gather", TWO_HOSTS, tile, [(d, WHOLE) for d in range(7)], (), algorithm), VALUES
    )
    expected = np.concatenate([VALUES[d][box.slices()] for d, box in tile])
    for d in range(7):
        np.testing.assert_array_equal(memory[d], expected)
    assert sum(sent.values()) == 6 * SIZE


@pytest.mark.parametrize("hosts", [ONE_HOST, TWO_HOSTS])
@pytest.mark.parametrize("owners", [range(8), range(4, 8), [7]])
def test_reduce_to_owners_of_pieces(owners, hosts):
    """Devices 0 to 5 hold partial results; some owners hold none."""
    owned = tiles(list(owners))
    scratch = [(d, WHOLE) for d in range(6)]
    memory, sent = run(
        make("reduce-scatter", hosts, [(d, WHOLE) for d in range(6)], owned, scratch), VALUES
    )
    for device, box in owned:
        np.testing.assert_array_equal(memory[device][box.slices()], VALUES[:6].sum(0)[box.slices()])
    assert sum(sent.values()) == sum((5 if d < 6 else 6) * box.volume for d, box in owned)


@pytest.mark.parametrize("hosts", [ONE_HOST, TWO_HOSTS])
@pytest.mark.parametrize("holders", [[3], range(8), [1, 2, 5]])
def test_gather_to_all(holders, hosts):
    targets = [(d, WHOLE) for d in range(8) if [d] != list(holders)]
    name = "broadcast" if len(holders) == 1 else "all-gather"
    memory, sent = run(make(name, hosts, tiles(list(holders)), targets), VALUES)
    expected = np.concatenate([VALUES[d][box.slices()] for d, box in tiles(list(holders))])
    for d in range(8):
        np.testing.assert_array_equal(memory[d], expected)
    assert sum(sent.values()) == 7 * SIZE


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
    ring = make("all-reduce", TWO_HOSTS, whole, whole, tiles(range(8)), algorithm)
    assert crossing(ring) == 2 * 2 * SIZE * 7 // 8 if algorithm == "ring" else 2 * SIZE


def test_a_tree_crosses_between_hosts_once():
    targets = [(d, WHOLE) for d in range(8) if d != 4]
    assert crossing(make("broadcast", TWO_HOSTS, [(4, WHOLE)], targets, (), "tree")) == SIZE


def test_neighbours_of_a_ring_sit_on_one_host():
    assert ring_order([0, 1, 2, 3], (0, 1, 0, 1)) == [0, 2, 1, 3]
