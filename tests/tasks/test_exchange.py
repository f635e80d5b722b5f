"""Exchanges: carried out on plain arrays, they give every target the sum or the whole; and who sends how much."""

from itertools import pairwise

import numpy as np
import pytest

from taskflow.core.geometry import Rect, balanced_bounds
from taskflow.tasks.exchange import Exchange, ring_order, summing, tree_order

SIZE = 24
WHOLE = Rect.of_shape((SIZE,))
ONE_HOST, TWO_HOSTS = (0,) * 8, (0, 0, 0, 0, 1, 1, 1, 1)


def make(name, hosts, sources, targets, scratch=()):
    """Arguments are (device, box); a target lies in the memory of its device's source, as lowering has it."""
    args = [*sources, *targets, *scratch]
    devices = [d for d, _ in args]
    instances = [*devices[: len(sources) + len(targets)], *range(100, 100 + len(scratch))]
    return Exchange(name, hosts, devices, instances, [box for _, box in args], len(sources), len(targets))


def run(exchange, values):
    """Device -> what its memory holds after the steps, when its source holds `values[device]` at first."""
    memory = {k: np.full(SIZE, np.nan) for k in exchange.instances}
    for k in range(exchange.sources):
        box = exchange.boxes[k].slices()
        memory[exchange.instances[k]][box] = values[exchange.devices[k]][box]
    sent = dict.fromkeys(exchange.devices, 0)
    for target, parts, box in exchange.steps():
        into, at = memory[exchange.instances[target]], box.slices()
        into[at] = sum(memory[exchange.instances[k]][at] for k in parts)
        source, device = exchange.devices[parts[0]], exchange.devices[target]
        if len(parts) == 1:
            sent[source] += box.volume * (source != device)
        else:
            assert {exchange.devices[k] for k in parts} == {device}, "sums are local"
    return memory, sent


def tiles(devices):
    bounds = balanced_bounds(SIZE, len(devices))
    return [(device, Rect((a,), (b,))) for device, (a, b) in zip(devices, pairwise(bounds), strict=True)]


VALUES = np.random.default_rng(0).integers(0, 100, (8, SIZE)).astype(float)


@pytest.mark.parametrize("hosts", [ONE_HOST, TWO_HOSTS])
@pytest.mark.parametrize("count", [5, 6, 8])
def test_all_reduce_of_pieces(count, hosts):
    devices = list(range(8 - count, 8))
    whole = [(d, WHOLE) for d in devices]
    memory, sent = run(make("all-reduce", hosts, whole, whole, tiles(devices)), VALUES)
    for d in devices:
        np.testing.assert_array_equal(memory[d], VALUES[devices].sum(0))
    assert sum(sent.values()) == 2 * (count - 1) * SIZE
    if SIZE % count == 0:
        assert set(sent.values()) == {2 * (count - 1) * SIZE // count}


@pytest.mark.parametrize("hosts", [ONE_HOST, TWO_HOSTS])
@pytest.mark.parametrize("root", [0, 3, 7])
def test_all_reduce_up_and_down_a_tree(root, hosts):
    whole = [(d, WHOLE) for d in range(8)]
    scratch = [(d, WHOLE) for d in summing(tree_order(root, range(8), hosts))]
    memory, sent = run(make("all-reduce", hosts, whole, whole, scratch), VALUES)
    for d in range(8):
        np.testing.assert_array_equal(memory[d], VALUES.sum(0))
    assert sum(sent.values()) == 2 * 7 * SIZE


@pytest.mark.parametrize("hosts", [ONE_HOST, TWO_HOSTS])
@pytest.mark.parametrize("owners", [range(8), range(4, 8), [7]])
def test_reduce_to_owners_of_pieces(owners, hosts):
    """Devices 0 to 5 hold partial results; some owners hold none."""
    owned = tiles(list(owners))
    summed = owned if len(owned) > 1 else [(d, WHOLE) for d in summing(tree_order(7, range(6), hosts))]
    memory, sent = run(make("reduce-scatter", hosts, [(d, WHOLE) for d in range(6)], owned, summed), VALUES)
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
    return sum(v for a, b, v in pairs if exchange.hosts[exchange.devices[a]] != exchange.hosts[exchange.devices[b]])


def test_a_ring_crosses_between_hosts_as_little_as_possible():
    whole = [(d, WHOLE) for d in range(8)]
    ring = make("all-reduce", TWO_HOSTS, whole, whole, tiles(range(8)))
    assert crossing(ring) == 2 * 2 * SIZE * 7 // 8  # both ways, sums and results, every piece but one


def test_a_tree_crosses_between_hosts_once():
    assert crossing(make("broadcast", TWO_HOSTS, [(2, WHOLE)], [(d, WHOLE) for d in range(8) if d != 2])) == SIZE


def test_neighbours_of_a_ring_sit_on_one_host():
    assert ring_order([0, 1, 2, 3], (0, 1, 0, 1)) == [0, 2, 1, 3]


def test_a_tree_goes_through_the_host_of_its_root_first():
    assert tree_order(5, range(8), TWO_HOSTS) == [5, 6, 7, 4, 0, 1, 2, 3]
    assert tree_order(5, [0, 4, 7], TWO_HOSTS) == [5, 7, 4, 0]
    assert summing([5, 6, 7, 4, 0]) == [5, 7]
