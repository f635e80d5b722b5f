"""Placements of pipelines as blocks: names as in Tessel (Lin et al., HPCA 2024), four devices unless said otherwise."""

from itertools import pairwise

from taskflow.schedule import Block


def chain(spans, devices, memory):
    """Blocks one after the other."""
    after = [(), *((k,) for k in range(len(spans) - 1))]
    return [Block(*block) for block in zip(spans, memory, devices, after, strict=True)]


def joined(*chains):
    """Chains that have nothing to do with each other."""
    found = []
    for each in chains:
        first = len(found)
        found += [block._replace(after=tuple(first + k for k in block.after)) for block in each]
    return found


def there_and_back(devices, forward, backward):
    """Forward through these devices, and backward."""
    stages = len(devices)
    spans, memory = [forward] * stages + [backward] * stages, [1] * stages + [-1] * stages
    return chain(spans, [*devices, *reversed(devices)], memory)


def v_shape(count=4, forward=1, backward=2):
    """One stage a device."""
    return there_and_back([(d,) for d in range(count)], forward, backward)


def m_shape(count=4, forward=1, backward=3):
    """A V, and at its turn what is split over all devices."""
    everywhere = tuple(range(count))
    return there_and_back([*((d,) for d in range(count)), everywhere], forward, backward)


def x_shape(count=4):
    """Two micro-batches that go in opposite directions (Chimera)."""
    way = [(d,) for d in range(count)]
    return joined(there_and_back(way, 1, 2), there_and_back(way[::-1], 1, 2))


def nn_shape(count=4):
    """Two stages a device, one after the other (interleaved)."""
    return there_and_back([(d % count,) for d in range(2 * count)], 1, 2)


def k_shape():
    """Two branches on two devices each, and what joins them on all."""
    everywhere = (0, 1, 2, 3)
    return [
        *(Block(1, 1, (d,), (d - 1,) if d % 2 else ()) for d in range(4)),
        Block(1, 1, everywhere, (1, 3)),
        Block(2, -1, everywhere, (4,)),
        *(Block(2, -1, (d,), (5,)) for d in (1, 3)),
        *(Block(2, -1, (d,), (6 + d // 2,)) for d in (0, 2)),
    ]


def zbv_shape(count=4):
    """Two stages a device, there and back; backward split in two (Qi et al., ICLR 2024): in half-units."""
    way = [*range(count), *reversed(range(count))]
    stages = len(way)
    blocks = [Block(1, 1, (d,), (k - 1,) if k else ()) for k, d in enumerate(way)]
    blocks += [Block(1, 0, (d,), (stages + k - 1,)) for k, d in enumerate(reversed(way))]
    return blocks + [Block(1, -1, (d,), (stages + k,)) for k, d in enumerate(reversed(way))]


def check(blocks, memory, starts, period=None):
    """Starts of micro-batches break no rule; with a period, its micro-batches are repeated until all are in flight.

    Written apart from the search: it plays all events of a device in time.
    """
    parts = starts.shape[1]
    rounds = range(
        1
        if period is None
        else 2 + int((starts.max() + max(b.span for b in blocks)) // (period * parts))
    )
    each = 0 if period is None else period * parts
    for block, after in ((b, a) for b in range(len(blocks)) for a in blocks[b].after):
        assert (starts[block] >= starts[after] + blocks[after].span - 1e-9).all(), (block, after)
    for device in {d for block in blocks for d in block.devices}:
        here = [k for k, block in enumerate(blocks) if device in block.devices]
        events = sorted(
            (starts[k, part] + r * each, k) for r in rounds for part in range(parts) for k in here
        )
        for (begin, k), (following, _) in pairwise(events):
            assert begin + blocks[k].span <= following + 1e-9, (device, begin, following)
        level, most = 0, 0
        for _, k in events:
            level += blocks[k].memory
            most = max(most, level)
        assert memory is None or most <= memory + 1e-9, (device, most)
