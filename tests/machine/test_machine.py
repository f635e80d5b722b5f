"""Machine models: presets, files, joined machines, and the routes of transfers."""

import os
from itertools import pairwise
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import (
    CostModel,
    Device,
    Graph,
    Link,
    MachineModel,
    ParallelConfig,
    Strategy,
    lower,
    simulate,
)
from taskflow.core.system import gpu_of
from taskflow.machine.machinefile import preset_names, preset_text

PRESETS = ("a100", "b200", "h100", "h200", "k80", "l4", "laptop", "p100", "v100")


def ends(machine, source, target):
    """The links on the way."""
    return [machine.links[k].ends for k in machine.route(source, target)]


# -- presets -----------------------------------------------------------------------------------------------------------


def test_presets_are_all_there():
    assert tuple(preset_names()) == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_its_sources_and_joins_its_hosts(name):
    one, three = MachineModel.preset(name), MachineModel.preset(name, nodes=3)
    count = len(one.devices)
    assert "Rates: " in preset_text(name)
    assert [d.host for d in three.devices] == [h for h in range(3) for _ in range(count)]
    assert three.hosts == tuple(tuple(range(h * count, (h + 1) * count)) for h in range(3))
    assert np.array_equal(three.bandwidth[:count, :count], one.bandwidth)
    assert three.bandwidth[0, count] <= one.bandwidth[0, 1]
    assert three.latency_seconds[0, count] > one.latency_seconds[0, 1]


def test_the_p100_cluster_is_that_of_flexflow():
    machine = MachineModel.preset("p100", nodes=4)
    assert len(machine.devices) == 16
    assert ends(machine, 0, 3) == [(0, 3)]
    assert ends(machine, 1, 6) == [
        (1, "pcie@0"),
        ("pcie@0", "network"),
        ("network", "pcie@1"),
        ("pcie@1", 6),
    ]
    assert machine.bandwidth[0, 3] == 18e9 and machine.bandwidth[1, 6] == 12e9
    assert machine.latency_seconds[1, 6] + 12_000 / machine.bandwidth[1, 6] == pytest.approx(
        6.5e-6 + 1e-6
    )
    assert (
        machine.devices[0].rate("float64") == 5.3e12
        and machine.devices[0].rate("bfloat16") == 10.6e12
    )


def test_the_k80_boards_are_behind_switches_of_their_own():
    machine = MachineModel.preset("k80", nodes=16)
    assert len(machine.devices) == 64
    assert ends(machine, 0, 1) == [(0, "board 0@0"), ("board 0@0", 1)]
    assert ends(machine, 0, 2) == [
        (0, "board 0@0"),
        ("board 0@0", "pcie@0"),
        ("pcie@0", "board 1@0"),
        ("board 1@0", 2),
    ]
    assert machine.bandwidth[0, 63] == 6.72e9


def test_a_v100_has_six_nvlinks():
    machine = MachineModel.preset("v100")
    of_zero = [
        link.bandwidth
        for link in machine.links
        if link.ends[0] == 0 and isinstance(link.ends[1], int)
    ]
    assert sum(of_zero) == 6 * 25e9
    assert ends(machine, 0, 7) == [(0, 4), (4, 7)], "of the two-link ways the wider one"


# Ranks of the job, ranks of this host, the number of this rank on it, GPUs of it: how many share one, and which it has.
JOBS = {
    "one host, 2 ranks, 1 GPU": (2, 2, 1, 1, 2, 0),
    "one host, 3 ranks, 2 GPUs": (3, 3, 2, 2, 2, 0),
    "2 hosts of 8 GPUs": (16, 8, 7, 8, 1, 7),
    "2 hosts of 4 ranks and 8 GPUs": (8, 4, 3, 8, 1, 3),
}


def pretend_gpus(monkeypatch, count):
    """So many GPUs, and no launcher."""
    for name in [n for n in os.environ if n.startswith(("OMPI_COMM", "PMI_", "MPI_"))]:
        monkeypatch.delenv(name)
    gpu = SimpleNamespace(memory_bytes=80 << 30, flops_per_second=1e14, memory_bandwidth=1e12)
    monkeypatch.setattr("taskflow.machine.model.find_gpus", lambda: (gpu,) * count)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize(
    "prefix", [("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_"), ("PMI_SIZE", "PMI_LOCAL_")]
)
def test_the_ranks_of_a_host_share_its_gpus(monkeypatch, job, prefix):
    ranks, here, rank, gpus, shared, gpu = job
    pretend_gpus(monkeypatch, gpus)
    names = prefix[0], f"{prefix[1]}SIZE", f"{prefix[1]}RANK"
    for name, value in zip(names, (ranks, here, rank), strict=True):
        monkeypatch.setenv(name, str(value))
    machine = MachineModel.local()
    assert [d.kind for d in machine.devices] == ["cuda"] * ranks
    assert {d.memory_bytes for d in machine.devices} == {int((80 << 30) * 0.9) // shared}
    assert gpu_of(rank, gpus) == gpu


@pytest.mark.parametrize("devices, count, shared", [(None, 4, 1), (2, 2, 1), (6, 6, 2)])
def test_the_devices_of_one_process_take_turns_on_its_gpus(monkeypatch, devices, count, shared):
    pretend_gpus(monkeypatch, 4)
    machine = MachineModel.local(devices)
    assert len(machine.devices) == count
    assert machine.devices[0].memory_bytes == int((80 << 30) * 0.9) // shared
    assert gpu_of(5, 4) == 1


def test_all_transfers_of_a_host_share_its_network_card():
    """Two transfers from one host to another take twice as long as one; from two hosts to two, as long as one."""
    machine = MachineModel.preset("p100", nodes=4).with_rates(latency_seconds=0.0)
    card = 12_500_000 / 12e9

    def seconds(moves):
        graph = Graph()
        strategy = {}
        for k, (source, target) in enumerate(moves):
            made = graph.launch(
                f"a{k}", "-> b", [], kernel=fill, sizes={"b": 12_500_000}, dtype="int8"
            )
            graph.launch(f"b{k}", "b -> b", [made], kernel=fill)
            strategy |= {
                f"a{k}": ParallelConfig({}, (source,)),
                f"b{k}": ParallelConfig({}, (target,)),
            }
        task_graph = lower(graph, Strategy(strategy), machine)
        timeline = simulate(task_graph, CostModel.analytic(machine))
        moved = task_graph.is_transfer
        assert moved.sum() == len(moves)
        return timeline.end[moved].max() - timeline.start[moved].min()

    assert seconds([(0, 4)]) == pytest.approx(card)
    assert seconds([(0, 4), (1, 5)]) == pytest.approx(2 * card)
    assert seconds([(0, 4), (5, 1)]) == pytest.approx(card), "a card sends and receives at once"
    assert seconds([(0, 4), (8, 12)]) == pytest.approx(card)
    assert seconds([(0, 8), (4, 9)]) == pytest.approx(2 * card), "the card of the receiving host"


def fill(ctx, *arrays):
    arrays[-1][...] = 0


# -- files -------------------------------------------------------------------------------------------------------------


ONE = MachineModel((Device(),), (), 'one "device"', collectives={"all-reduce": "two-level"})


@pytest.mark.parametrize("machine", [*PRESETS, MachineModel.uniform(3), ONE])
def test_a_saved_machine_loads_equal(machine, tmp_path):
    machine = MachineModel.preset(machine, nodes=2) if isinstance(machine, str) else machine
    machine.save(tmp_path / "machine.toml")
    assert MachineModel.load(tmp_path / "machine.toml") == machine


def test_numpy_numbers_are_saved_as_numbers(tmp_path):
    machine = MachineModel.uniform(
        2, Device(flops_per_second=np.float64(2e9), memory_bytes=np.int64(7)), np.float64(3)
    )
    machine.save(tmp_path / "machine.toml")
    assert MachineModel.load(tmp_path / "machine.toml") == machine


def test_a_file_describes_one_host_of_several(tmp_path):
    path = tmp_path / "mix.toml"
    path.write_text("""
        name = "mix"
        hosts = 2
        shared = ["network"]
        [[device]]
        kind = "cuda"
        rates = { float16 = 4e12 }
        [[device]]
        count = 2
        [[link]]
        ends = [[0, 1, 2], "switch"]
        bandwidth = 1e9
        [[link]]
        ends = ["switch", "network"]
        bandwidth = 5e8
        directed = true
        [[link]]
        ends = ["network", "switch"]
        bandwidth = 2e8
        directed = true
    """)
    machine = MachineModel.load(path)
    assert machine.name == "mix"
    assert [d.kind for d in machine.devices] == ["cuda", "cpu", "cpu"] * 2
    assert ends(machine, 0, 5) == [
        (0, "switch@0"),
        ("switch@0", "network"),
        ("network", "switch@1"),
        ("switch@1", 5),
    ]
    assert machine.bandwidth[0, 5] == 2e8 and machine.bandwidth[0, 1] == 1e9


# -- machines made of others -------------------------------------------------------------------------------------------


def test_joined_presets_meet_in_the_network():
    machine = MachineModel.join([MachineModel.preset("v100"), MachineModel.preset("k80", nodes=2)])
    assert machine.name == "v100 + 2 x k80"
    assert [len(host) for host in machine.hosts] == [8, 4, 4]
    assert ends(machine, 3, 8)[1:3] == [("pcie 1@0", "network"), ("network", "pcie@1")]
    assert machine.bandwidth[3, 8] == 6.72e9 and machine.bandwidth[0, 3] == 40e9
    assert machine.devices[8] == MachineModel.preset("k80").with_rates(host=1).devices[0]


def test_take_keeps_the_first_devices():
    machine = MachineModel.preset("p100", nodes=2).take(5)
    assert len(machine.devices) == 5 and machine.hosts == ((0, 1, 2, 3), (4,))
    assert machine.bandwidth[3, 4] == 12e9


# -- devices -----------------------------------------------------------------------------------------------------------


def test_a_rate_that_is_not_given_follows_float32():
    device = Device(flops_per_second=8.0, rates={"float16": 32.0})
    dtypes = ("float32", "float64", "float16", "bfloat16", "tf32", "int32")
    assert [device.rate(dtype) for dtype in dtypes] == [8, 4, 32, 8, 8, 8]


# -- routes ------------------------------------------------------------------------------------------------------------


@st.composite
def machines(draw):
    """Two to six devices and up to three switches, joined by random links; not all have routes."""
    count = draw(st.integers(2, 6))
    places = [*range(count), "s", "t", "u"]
    pairs = st.tuples(st.sampled_from(places), st.sampled_from(places)).filter(
        lambda pair: pair[0] != pair[1]
    )
    latency = st.sampled_from([0.0, 1e-6, 2.5e-6])
    links = draw(
        st.lists(
            st.builds(Link, pairs, st.sampled_from([1e9, 2e9]), latency),
            max_size=30,
            unique_by=lambda link: link.ends,
        )
    )
    return MachineModel((Device(),) * count, tuple(links))


@given(machines())
def test_routes_are_shortest_paths(machine):
    count = len(machine.devices)
    shortest = dict(nx.all_pairs_dijkstra_path_length(machine.graph, weight="length"))
    if any(b not in shortest[a] for a in range(count) for b in range(count)):
        with pytest.raises(ValueError, match="no route from device"):
            _ = machine.routes
        return
    for a in range(count):
        for b in range(count):
            way = ends(machine, a, b)
            assert not way if a == b else (way[0][0], way[-1][1]) == (a, b)
            assert all(first[1] == second[0] for first, second in pairwise(way))
            assert sum(machine.graph.edges[e]["length"] for e in way) == pytest.approx(
                shortest[a][b], rel=1e-12
            )
            assert len(way) == nx.shortest_path_length(machine.graph, a, b), (
                "fewest links come first"
            )


def test_latency_and_bandwidth_are_those_of_the_links_on_the_way():
    machine = MachineModel.preset("k80", nodes=3)
    for a, b in [(0, 1), (1, 2), (3, 11), (11, 0)]:
        links = [machine.links[k] for k in machine.route(a, b)]
        assert machine.latency_seconds[a, b] == pytest.approx(
            sum(link.latency_seconds for link in links)
        )
        assert machine.bandwidth[a, b] == min(link.efficiency * link.bandwidth for link in links)
    assert (
        machine.bandwidth[5, 5] == machine.devices[5].memory_bandwidth
        and machine.latency_seconds[5, 5] == 0
    )


def test_routes_do_not_depend_on_how_many_targets_are_relaxed_together(monkeypatch):
    machine = MachineModel.preset("v100", nodes=2)
    whole = machine.routes
    monkeypatch.setattr("taskflow.machine.routes._ENTRIES", 3 * len(machine.links))
    assert np.array_equal(MachineModel.preset("v100", nodes=2).routes, whole)


@pytest.mark.slow
def test_a_thousand_devices_have_routes():
    machine = MachineModel.preset("a100", nodes=128)
    source, target = np.array([[0, 0], [7, 1023]])
    assert machine.ways.longest == 2
    assert machine.ways.bandwidth(source, target).tolist() == [240e9, 24e9]
