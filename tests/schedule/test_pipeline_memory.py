"""What micro-batches hold: by stage of a pipeline, and on one device."""

from dataclasses import replace

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Device,
    Graph,
    MachineModel,
    fully_sharded,
    homes,
    lower,
    recompute,
    reorder,
    stages,
)
from taskflow.schedule import gpipe, one_f_one_b, program
from taskflow.schedule.pipeline import pipeline_of
from taskflow.strategy.micro_batches import micro_batches
from taskflow.tasks.memory import plan_memory


def transient(rows):
    """Bytes of every device beside what it keeps between steps, in as little memory as will do."""
    tight = replace(rows, machine=rows.machine.with_rates(memory_bytes=1))
    plan, kept = plan_memory(tight), np.zeros(len(rows.machine.devices), np.int64)
    for places in rows.homes.values():
        for instance, _ in places:
            kept[rows.instance_device[instance]] += rows.instance_bytes()[instance]
    return plan.peak_bytes - kept


def mlp(devices, parts, samples, width=128, device=None):
    """A layer a device, weights of `width` squared in float64."""
    graph = Graph()
    h = graph.input("x", (samples, width), "float64")
    for k in range(4):
        h = ops.linear(h, width, bias=False, name=f"fc{k}")
    ops.sgd(
        ops.softmax_cross_entropy(h, graph.input("t", (samples,), "int32"), name="loss"), lr=0.1
    )
    machine = MachineModel.uniform(devices, device)
    cuts = [f"fc{k}" for k in range(1, 4)] if devices > 1 else []
    return graph, lower(graph, stages(graph, machine, cuts=cuts, parts=parts), machine)


@pytest.mark.parametrize(
    "device", [None, Device("cuda", sends_by_link=True)], ids=["one thread", "links"]
)
def test_memory_of_a_pipeline(device):
    """Micro-batches hold activations until their backward pass, and one gradient a device: 16 of 48 samples.

    The first device holds one micro-batch more than the second, which has a gradient to send back. A device with one
    thread takes what is sent to it when it has nothing to compute: what it comes from is kept until then.
    """
    _, rows = mlp(4, 16, 768, device=device)
    costs = CostModel.analytic(rows.machine)
    early, late = (transient(reorder(rows, costs, order)) / 1024 for order in (one_f_one_b, gpipe))
    print(f"1F1B {early.round().tolist()} KB, GPipe {late.round().tolist()} KB")
    assert early.max() <= 600 and (np.diff(early[1:]) < 0).all()
    assert early[0] >= early[1] or device is None
    assert late.max() <= 1900
    assert late.min() > early.max()


def test_micro_batches_on_one_device():
    """In program order no more than without micro-batches; in 1F1B order the activations of one.

    A gradient is added to what is there, a panel of rows at a time, which takes 32 KB beside the memory plan.
    """
    peaks = {}
    for parts in (1, 8):
        _, rows = mlp(1, parts, 1024)
        costs = CostModel.analytic(rows.machine)
        for order in (program, one_f_one_b):
            peaks[parts, order] = int(plan_memory(reorder(rows, costs, order)).peak_bytes[0])
    weights, tile = 4 * 128 * 128 * 8, 1024 * 128 * 8 // 8
    activations, panel = 6 * tile, 32 << 10  # x, four layers, the gradient on its way
    print(
        {
            (parts, getattr(order, "__name__", "1F1B")): peak
            for (parts, order), peak in peaks.items()
        }
    )
    assert peaks[8, program] <= 1.05 * peaks[1, program]
    assert weights + weights + activations // 2 <= peaks[8, one_f_one_b]
    assert peaks[8, one_f_one_b] + panel <= 1.05 * (2 * weights + activations)


def test_a_stage_that_computes_again_goes_back_in_one_piece():
    """What it computes again would live from the gradients of activations to those of weights."""
    graph = Graph()
    h = graph.input("x", (512, 64), "float64")
    for k in range(4):
        wide = ops.gelu(ops.linear(h, 512, name=f"layer{k}.up"), name=f"layer{k}.gelu")
        h = ops.linear(wide, 64, name=f"layer{k}.down")
    ops.sgd(ops.mse_loss(h, graph.input("t", h.shape, "float64")), lr=0.1)
    names = [f"layer{k}.{name}" for k in range(4) for name in ("up", "gelu")]
    graph, machine = recompute(graph, names), MachineModel.uniform(2)
    rows = lower(graph, stages(graph, machine, cuts=["layer2.up"], parts=4), machine)
    pipeline, costs = pipeline_of(rows), CostModel.analytic(machine)
    assert pipeline.again == {0, 1}
    apart = one_f_one_b.schedule(pipeline._replace(again=frozenset()))
    assert {step[0] for step in one_f_one_b.schedule(pipeline).steps[0]} == {"F", "B"}
    in_pieces, whole = (transient(reorder(rows, costs, order)) for order in (apart, one_f_one_b))
    assert (whole < 0.8 * in_pieces).all()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("parts", [1, 4])
def test_homes_that_are_split_otherwise_than_their_stage_belong_to_none(parts, again):
    """A bias of three numbers has a home on fewer devices than its layer."""
    graph = Graph()
    h = graph.input("x", (32, 12), "float64")
    for k in range(3):
        h = ops.relu(ops.linear(h, 3 if k else 12, name=f"layer{k}.fc"), name=f"layer{k}.relu")
    ops.sgd(ops.mse_loss(h, graph.input("t", h.shape, "float64")), lr=0.1)
    graph, machine = homes(graph, again=again), MachineModel.uniform(4)
    strategy = micro_batches(graph, fully_sharded(graph, machine), parts)
    rows = lower(graph, strategy, machine)
    where = [set(strategy[f"layer1.fc.{name}.home"].devices) for name in ("weight", "bias")]
    assert where[0] != where[1]
    for order in (one_f_one_b, gpipe):
        assert len(reorder(rows, CostModel.analytic(machine), order)) == len(rows)
