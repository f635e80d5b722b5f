"""Graphs without an optimizer: searched for latency, and for throughput with several steps in a row."""

import numpy as np
import pytest

import ops
from ops.models import dlrm, gpt, rnnlm
from taskflow import (
    CostModel,
    Device,
    Executor,
    Graph,
    MachineModel,
    Plan,
    lower,
    search,
    single_device,
    stages,
)
from taskflow.searching.judge import Judge

DEVICES, REPEAT = 4, 4
MACHINE = MachineModel.uniform(
    DEVICES,
    Device("emulated", 0, 1 << 30, flops_per_second=1e9, memory_bandwidth=1e12),
    1e10,
    1e-7,
)
COSTS = CostModel.analytic(MACHINE)
HERE = MachineModel.local(devices=DEVICES, kind="cpu")


def chain(*widths):
    """Linear layers of one sample: nothing but stages can be beside each other at little cost."""
    graph = Graph()
    h = graph.input("x", (1, widths[0]))
    for k, width in enumerate(widths[1:]):
        h = ops.linear(h, width, bias=False, name=f"fc{k}")
    graph.output("y", h)
    return graph


def test_a_steady_state_takes_what_the_slowest_stage_does():
    graph = chain(256, 256, 512, 256, 256)  # the second layer and the third take twice as long
    plan = Plan(stages(graph, MACHINE, cuts=["fc1", "fc2", "fc3"]), schedule="forward_first")
    alone = plan.predict(graph, MACHINE, COSTS)
    slowest = 2 * 256 * 512 / 1e9
    for repeat in (2, 7):
        several = plan.predict(graph, MACHINE, COSTS, repeat)
        assert slowest <= several.steady_seconds(alone.seconds) < 1.01 * slowest
        ends = several.step_ends
        assert ends.shape == (repeat,) and ends[0] <= alone.seconds
        assert np.diff(ends) == pytest.approx(slowest, rel=0.01)
        twice = plan.predict(graph, MACHINE, COSTS, 2 * repeat)
        exact = np.diff(twice.step_ends)[repeat - 1]
        assert twice.steady_seconds(several.seconds, repeat) == pytest.approx(exact, rel=1e-9)
    assert alone.step_ends == pytest.approx([alone.seconds], rel=0.01)


def test_what_is_left_idle_at_the_ends_of_few_steps_is_no_gain():
    graph = chain(256, 256)
    several = Plan(single_device(graph, MACHINE)).predict(graph, MACHINE, COSTS, 2)
    assert several.steady_seconds(0.9 * several.seconds) == pytest.approx(
        several.seconds / 2, rel=0.01
    )


def test_a_judge_of_several_steps_says_so_of_plans():
    graph = chain(*[256] * 5)
    plan = Plan(stages(graph, MACHINE, 4), schedule="forward_first")
    outcome = Judge(graph, MACHINE, COSTS, REPEAT).judge(plan)
    alone, several = (plan.predict(graph, MACHINE, COSTS, repeat) for repeat in (1, REPEAT))
    assert outcome.seconds == several.steady_seconds(alone.seconds) < alone.seconds
    assert outcome.first_seconds == several.step_ends[0]
    assert outcome.peak_bytes == several.peak_bytes.max()
    assert outcome.bytes_moved == alone.bytes_moved > 0


@pytest.mark.parametrize("seed", range(2))
def test_throughput_is_near_that_of_all_devices_and_latency_no_worse_than_of_one(seed):
    graph = chain(*[256] * 17)
    work = 16 * 2 * 256 * 256 / 1e9
    one = Plan(single_device(graph, MACHINE)).predict(graph, MACHINE, COSTS).seconds
    latency = search(graph, MACHINE, COSTS, 200, seed)
    throughput = search(graph, MACHINE, COSTS, 200, seed, repeat=REPEAT)
    assert latency.lower_bound_seconds <= latency.seconds == latency.first_seconds <= one
    assert work / DEVICES <= throughput.seconds < 1.05 * work / DEVICES
    assert throughput.seconds < latency.seconds <= throughput.first_seconds
    assert throughput.repeat == REPEAT and f"of {REPEAT} in a row" in str(throughput)
    assert "in a row" not in str(latency)


MODELS = {
    "gpt": lambda: gpt.build(
        2, 8, 2, hidden=16, heads=2, vocabulary=32, training=False, dtype="float64"
    ),
    "rnnlm": lambda: rnnlm.build(
        2, 6, 16, 2, embed=16, vocabulary=32, training=False, dtype="float64"
    ),
    "dlrm": lambda: dlrm.build(2, 3, 20, 2, (4, 8, 8), (32, 8, 1), training=False, dtype="float64"),
}


@pytest.mark.parametrize("repeat", (1, 3))
@pytest.mark.parametrize("name", MODELS)
def test_found_plans_give_the_numbers_of_one_device(name, repeat):
    graph = MODELS[name]()
    plan = search(graph, MACHINE, COSTS, 64, repeat=repeat).plan
    random = np.random.default_rng(0)
    feeds = {
        region.name: random.standard_normal((repeat, *region.shape))
        if region.dtype.startswith("float")
        else random.integers(0, 8, (repeat, *region.shape), region.dtype)
        for region in graph.inputs
    }
    feeds = feeds if repeat > 1 else {key: value[0] for key, value in feeds.items()}
    rows = plan.apply(graph, HERE, CostModel.analytic(HERE), repeat=repeat)[1]
    assert len(set(rows.device.tolist())) > 1
    one = lower(graph, single_device(graph, HERE), HERE, repeat=repeat)
    with Executor(one, seed=0) as here, Executor(rows, seed=0) as there:
        expected = here(feeds)
        found = there(feeds)
    assert list(found) == list(graph.outputs)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-10, atol=1e-12)
