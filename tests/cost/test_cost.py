"""Analytic costs: rooflines with ramps, rates by dtype, and where each number comes from."""

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Device,
    Graph,
    Kind,
    MachineModel,
    ParallelConfig,
    Strategy,
    lower,
    single_device,
)
from taskflow.cost.rates import rate_number

# 100 flop/s, 10 bytes/s, 1 s to launch; half of either rate at 50 flops and 20 bytes.
DEVICE = Device(
    "cuda",
    flops_per_second=200.0,
    memory_bandwidth=20.0,
    overhead_seconds=1.0,
    rates={"float16": 800.0, "tf32": 400.0},
    compute_efficiency=0.5,
    memory_efficiency=0.5,
    half_flops=50.0,
    half_bytes=20.0,
)


def fill(ctx, *arrays):
    arrays[-1][...] = 0


def lowered(flops, dtype="float32", machine=None, size=10):
    """One operator on `size` elements and its output: a point that writes, and a copy of nothing."""
    machine = machine or MachineModel.uniform(1, DEVICE)
    graph = Graph()
    graph.output(
        "y",
        graph.launch("op", "-> b", [], kernel=fill, sizes={"b": size}, dtype=dtype, flops=flops),
    )
    config = ParallelConfig({"b": len(machine.devices)}, tuple(range(len(machine.devices))))
    return lower(graph, Strategy({"op": config}), machine), machine


def point_seconds(*args, use_tf32=False, **options):
    task_graph, machine = lowered(*args, **options)
    return CostModel.analytic(machine, use_tf32).seconds(task_graph)[task_graph.kind == Kind.POINT]


def test_a_device_without_ramps_is_a_plain_roofline():
    machine = MachineModel.uniform(
        1, Device(flops_per_second=100.0, memory_bandwidth=10.0, overhead_seconds=1.0)
    )
    assert point_seconds(1, machine=machine) == pytest.approx(1 + 40 / 10)
    assert point_seconds(100, machine=machine) == pytest.approx(1 + 1000 / 100)


def test_what_binds_gets_its_rate_by_size():
    """rate = peak * efficiency * x / (x + half), where the other side is negligible."""
    huge = 10**9
    assert point_seconds(0) == pytest.approx(1 + (40 + 20) / 10)
    assert point_seconds(huge) - 1 == pytest.approx((10 * huge + 50) / 100)
    narrow = MachineModel.uniform(
        1, Device("cuda", memory_bandwidth=1e15, flops_per_second=100.0, half_flops=50.0)
    )
    assert point_seconds(5, machine=narrow) == pytest.approx((50 + 50) / 100, rel=1e-3), (
        "half of the rate at half_flops"
    )


def test_ramps_are_shared_as_the_sides_are():
    compute, memory = 100 / 100, 40 / 10
    share = compute / (compute + memory)
    assert point_seconds(10) == pytest.approx(1 + memory + share * 50 / 100 + (1 - share) * 20 / 10)


@pytest.mark.parametrize(
    "dtype, use_tf32, rate",
    [
        ("float32", False, 100),
        ("float32", True, 200),
        ("float64", False, 50),
        ("float16", False, 400),
        ("int32", False, 100),
    ],
)
def test_rates_are_those_of_the_dtype(dtype, use_tf32, rate):
    flops = 10**9
    assert point_seconds(flops, dtype, use_tf32=use_tf32) == pytest.approx(
        10 * flops / rate, rel=1e-6
    )


def test_a_ramp_takes_the_same_time_in_every_dtype():
    device = Device(
        "cuda",
        memory_bandwidth=1e15,
        flops_per_second=100.0,
        half_flops=50.0,
        rates={"float16": 1000.0},
    )
    machine = MachineModel.uniform(1, device)
    assert point_seconds(5, machine=machine) == pytest.approx(0.5 + 0.5, rel=1e-3)
    assert point_seconds(5, "float16", machine=machine) == pytest.approx(0.5 + 0.05, rel=1e-3)


def test_unequal_devices_take_their_own_time():
    slow, fast = (
        MachineModel.uniform(1, Device(flops_per_second=rate), name=str(rate))
        for rate in (1e3, 4e3)
    )
    joined = MachineModel.join([slow, fast])
    machine = MachineModel(joined.devices, MachineModel.uniform(2).links)
    times = point_seconds(1e6, machine=machine)
    assert times[0] == pytest.approx(4 * times[1])


def test_copies_take_the_ramp_of_the_memory():
    machine = MachineModel.uniform(1, DEVICE)
    graph = Graph()
    graph.output("y", graph.launch("op", "b -> b", [graph.input("x", (10,))], kernel=fill))
    task_graph = lower(graph, Strategy({"op": ParallelConfig({}, (0,))}), machine)
    seconds = CostModel.analytic(machine).seconds(task_graph)
    assert seconds[task_graph.kind == Kind.FEED] == pytest.approx(1 + (40 + 20) / 10)


def test_transfers_take_what_the_machine_says():
    machine = MachineModel.preset("p100", nodes=2)
    graph = Graph()
    made = graph.launch("a", "-> b", [], kernel=fill, sizes={"b": 1000}, dtype="int8")
    graph.launch("b", "b -> b", [made], kernel=fill)
    strategy = Strategy({"a": ParallelConfig({}, (1,)), "b": ParallelConfig({}, (6,))})
    task_graph = lower(graph, strategy, machine)
    seconds = CostModel.analytic(machine).seconds(task_graph)
    assert seconds[task_graph.is_transfer] == pytest.approx(
        [machine.latency_seconds[1, 6] + 1000 / machine.bandwidth[1, 6]]
    )


def test_every_number_has_a_source():
    task_graph, machine = lowered(1000, "float16", MachineModel.uniform(2, DEVICE))
    costs = CostModel.analytic(machine)
    sources = {costs.source(task_graph, row) for row in range(len(task_graph))}
    assert sources == {"roofline: 5000 flops in float16 at 400 flop/s, 1 s to launch", "link"}
    task_graph, machine = lowered(0)
    assert (
        CostModel.analytic(machine).source(task_graph, 0)
        == "roofline: 40 bytes at 10 bytes/s, 1 s to launch"
    )


def test_the_seconds_of_a_point_depend_on_device_dtype_flops_and_bytes_only():
    """What a search may cache by."""
    task_graph, machine = lowered(7, "float64", MachineModel.preset("k80"), size=1003)
    costs = CostModel.analytic(machine)
    points = np.flatnonzero(task_graph.kind == Kind.POINT)
    dtype = np.full(len(points), rate_number(["int32", "float64", "float32"]))
    alone = costs.task_seconds(
        task_graph.device[points], dtype, task_graph.flops[points], task_graph.bytes[points]
    )
    assert np.array_equal(alone, costs.seconds(task_graph)[points])


def test_larger_products_take_longer_and_run_faster():
    machine = MachineModel.preset("h200")
    costs, n = CostModel.analytic(machine, is_burst=True), 2.0 ** np.arange(4, 14)
    for dtype, itemsize in (("float32", 4), ("float64", 8), ("float16", 2), ("bfloat16", 2)):
        number = np.full(len(n), rate_number([dtype]))
        size = 3 * itemsize * n**2
        seconds = costs.task_seconds(np.zeros(len(n), int), number, 2 * n**3, size)
        assert (np.diff(seconds) > 0).all() and (np.diff(2 * n**3 / seconds) > 0).all()
    assert 2 * n[-1] ** 3 / seconds[-1] == pytest.approx(870e12, rel=0.01), "8192 in bfloat16"


@pytest.mark.parametrize(("dtype", "itemsize", "us"), [("bfloat16", 2, 35.2), ("float32", 4, 355)])
def test_what_a_product_moves_is_hidden_in_part(dtype, itemsize, us):
    """64 products of 512 x 512 x 512 as measured on an H200: efficiency falls with the smallest dimension."""
    h200 = MachineModel.preset("h200").with_rates(burst_efficiency=772 / 989.4)
    rates = {"float32": 51.2e12 / 772 * 989.4, "bfloat16": 989.4e12}
    machine = h200.with_rates(flops_per_second=rates["float32"], rates={"bfloat16": 989.4e12})
    costs, number = CostModel.analytic(machine, is_burst=True), np.array([rate_number([dtype])])
    args = np.array([64 * 2.0 * 512**3]), np.array([64 * 3.0 * 512**2 * itemsize])
    assert costs.task_seconds(np.zeros(1, int), number, *args)[0] * 1e6 == pytest.approx(
        us, rel=0.06
    )
    hidden = CostModel.analytic(machine.with_rates(exposed_share=0.0), is_burst=True)
    assert hidden.task_seconds(np.zeros(1, int), number, *args)[0] < 0.96 * us / 1e6


def attention_seconds(machine, is_causal=True, keys=256):
    """Of attention in one operator, forward and backward."""
    graph = Graph()
    q, k, v = (
        graph.parameter(name, (8, length, 4, 64), dtype="bfloat16")
        for name, length in (("q", 256), ("k", keys), ("v", keys))
    )
    ops.sgd(ops.mean(ops.fused_attention(q, k, v, is_causal, name="a")), lr=0.1)
    task_graph = lower(graph, single_device(graph, machine), machine)
    rows = {task_graph.name(row): row for row in range(len(task_graph))}
    seconds = CostModel.analytic(machine).seconds(task_graph)
    return seconds[rows["a"]], seconds[rows["a.dx"]], task_graph.flops[rows["a"]]


def test_attention_has_the_rate_of_its_kernel_and_causal_work_is_half():
    """4 features a pair and forward pass; what a query does not see is not computed."""
    slow = MachineModel.preset("a100").with_rates(
        flops_per_second=1e6, rates={"bfloat16": 1e6}, half_flops=0.0
    )
    first, second = (slow.with_rates(attention=f"flash {k}") for k in (1, 2))
    forward, backward, flops = attention_seconds(first)
    assert flops == 4 * 64 * 8 * 4 * (256 * 257 / 2)
    assert forward == pytest.approx(flops / 0.40e6) and backward == pytest.approx(
        2.5 * flops / 0.30e6
    )
    assert attention_seconds(second)[0] == pytest.approx(flops / 0.62e6)
    assert attention_seconds(slow.with_rates(attention=""))[0] == pytest.approx(
        flops / (1e6 * slow.devices[0].compute_efficiency)
    )
    assert attention_seconds(first, is_causal=False)[2] == 4 * 64 * 8 * 4 * 256 * 256
    assert attention_seconds(first, keys=16)[2] == 4 * 64 * 8 * 4 * (16 * 17 / 2 + 240 * 16)
