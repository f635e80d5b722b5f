"""A slower machine takes no less: collectives on slower links or with longer latencies, uneven hosts included; steps.

Of one link alone that does not hold: routes have the fewest links, of these the fastest, and a slower link may lead
them past one that others use (up to a third, v100). Nor of one device where transfers share links: what begins later
meets others there (up to 1.2 %, k80).
"""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from taskflow import CostModel, Device, MachineModel, lower, random_strategy, simulate
from tests.collective.test_monotone import MACHINES, NAMED, seconds
from tests.lowered import network
from tests.strategies import examples

# Of 3,400 pairs of sizes on machines that are joined the largest fall was 9e-4, see `test_monotone.FAIRNESS`.
FAIRNESS = 5e-3
FACTORS = st.sampled_from([0.1, 0.5, 0.9, 0.999])
SEVERAL = [machine for machine in MACHINES if len(machine.devices) > 1]


@st.composite
def joined(draw):
    """A part of a machine, alone or beside a part of another: hosts of different sizes and rates."""
    parts = draw(st.lists(st.sampled_from(SEVERAL), min_size=1, max_size=2))
    taken = [machine.take(draw(st.integers(2, min(len(machine.devices), 12)))) for machine in parts]
    machine = taken[0] if len(taken) == 1 else MachineModel.join(taken)
    try:
        machine.routes  # noqa: B018 (whether there are any)
    except ValueError:
        assume(False)
    return machine


@examples(60)
@given(joined(), st.integers(2, 16), st.sampled_from(NAMED), st.integers(1, 1 << 20), FACTORS)
def test_slower_links(machine, count, named, numbers, factor):
    count = min(count, len(machine.devices))
    before = seconds(machine, count, *named, numbers, 4)
    narrow = [replace(link, bandwidth=factor * link.bandwidth) for link in machine.links]
    late = [replace(link, latency_seconds=link.latency_seconds / factor) for link in machine.links]
    for links in (narrow, late):
        after = seconds(replace(machine, links=tuple(links)), count, *named, numbers, 4)
        assert all(x <= y * (1 + 1e-9) for x, y in zip(before, after, strict=True))


@examples(60)
@given(
    joined(),
    st.integers(2, 16),
    st.sampled_from(NAMED),
    st.integers(1, 1 << 20),
    st.integers(1, 1 << 20),
)
def test_more_bytes_on_uneven_hosts(machine, count, named, numbers, more):
    """By own steps any numbers; by NCCL those that divide: it has no call for others, which go in steps."""
    count = min(count, len(machine.devices))
    for moved_by, unit in ((machine.with_library("own"), 1), (machine, count)):
        sizes = unit * numbers, unit * (numbers + more)
        less, larger = (seconds(moved_by, count, *named, size, 4) for size in sizes)
        assert all(x * (1 - FAIRNESS) <= y for x, y in zip(less, larger, strict=True))


@examples(40)
@given(st.sampled_from([1e6, 1e9, 1e11]), st.integers(0, 99), st.integers(0, 3), FACTORS)
def test_a_slower_device(bandwidth, seed, number, factor):
    """Of a step whose rows are given, where no transfers share a link."""
    machine, graph = MachineModel.uniform(4, Device("cuda"), bandwidth), network()
    rows = lower(graph, random_strategy(graph, machine, seed), machine)
    found = [simulate(rows, CostModel.analytic(machine)).seconds]
    for name in ("flops_per_second", "memory_bandwidth"):
        devices = list(machine.devices)
        devices[number] = replace(
            devices[number], **{name: factor * getattr(devices[number], name)}
        )
        slower = replace(machine, devices=tuple(devices))
        found.append(simulate(replace(rows, machine=slower), CostModel.analytic(slower)).seconds)
    assert min(found) >= found[0] * (1 - 1e-9)
