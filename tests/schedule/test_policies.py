"""Policies on rows: bubbles to the unit, numbers of one device, and what is refused."""

import numpy as np
import pytest

import ops
from taskflow import (
    CostModel,
    Executor,
    Graph,
    MachineModel,
    ParallelConfig,
    lower,
    reorder,
    search_schedule,
    single_device,
    stages,
)
from taskflow.checking.checker import check_own_plan
from taskflow.schedule import (
    POLICIES,
    Schedule,
    chimera,
    critical_path,
    depth_first,
    first_ready,
    gpipe,
    interlaced,
    interleaved,
    looped_bfs,
    one_f_one_b,
    program,
    three_f_one_b,
    zb_h1,
    zb_v,
)
from taskflow.schedule.found import blocks_of, starts_of
from taskflow.schedule.pipeline import pipeline_of
from taskflow.simulation.simulate import schedule
from tests.refusals import assert_refused
from tests.schedule.cells import CellCosts, cell, chain, feeds_of

SIZES = [(d, n) for d in (2, 4, 8) for n in (4, 8, 16)]


def pipeline(devices, parts, per_device=1, is_joint=False):
    """A chain of a cell a stage; stage k is on device `k % devices`."""
    graph, machine = (
        chain(devices * per_device, parts, is_joint=is_joint),
        MachineModel.uniform(devices),
    )
    cuts = [f"cell{k}" for k in range(1, devices * per_device)]
    groups = [(k % devices,) for k in range(devices * per_device)]
    plan = stages(graph, machine, parts=parts, cuts=cuts, devices=groups)
    return graph, lower(graph, plan, machine)


def units(task_graph, order, **costs):
    """The time that a schedule takes: compute alone."""
    costs = CellCosts(**costs)
    rows = reorder(task_graph, costs, order)
    return schedule(rows, costs.seconds(rows))[2]


@pytest.mark.parametrize(("devices", "parts"), SIZES)
def test_bubbles_to_the_unit(devices, parts):
    """(N + D - 1)(f + b) for GPipe and 1F1B with a joint backward; ZB-H1 idles D - 1 units where N >= D."""
    _, joint = pipeline(devices, parts, is_joint=True)
    _, split = pipeline(devices, parts)
    plain = 3 * (parts + devices - 1)
    assert units(joint, gpipe) == units(joint, one_f_one_b) == plain
    assert units(split, gpipe) <= plain and units(split, one_f_one_b) <= plain
    if parts >= devices:
        assert units(split, zb_h1) == 3 * parts + devices - 1
    print(
        devices,
        parts,
        units(split, gpipe),
        units(split, one_f_one_b),
        units(split, zb_h1),
        units(split, program),
    )


# torch.distributed.pipelining's own orders, 2 stages a device, f = 0.5 and b = 1 a stage
TORCH = {(2, 8): 25.5, (4, 4): 16.5, (4, 8): 28.5, (4, 16): 52.5, (8, 16): 58.5}


@pytest.mark.parametrize(("devices", "parts"), TORCH)
def test_interleaved_is_that_of_torch(devices, parts):
    _, joint = pipeline(devices, parts, 2, is_joint=True)
    assert units(joint, interleaved, forward=0.5, joint=1.0) == TORCH[devices, parts]
    _, split = pipeline(devices, parts, 2)
    assert units(split, interleaved, forward=0.5, backward=0.5, weight=0.5) <= TORCH[devices, parts]


def v_rows(devices, parts):
    """Two cells a device, there and back; the two of the last device are one stage."""
    graph, machine = chain(2 * devices, parts), MachineModel.uniform(devices)
    way = [(d,) for d in (*range(devices), *reversed(range(devices)))]
    cuts = [f"cell{k}" for k in range(1, 2 * devices)]
    return graph, lower(graph, stages(graph, machine, parts=parts, cuts=cuts, devices=way), machine)


FEW = {
    (1, 1): 3,
    (4, 1): 8.5,
    (4, 2): 9.5,
    (8, 3): 18.5,
    (8, 4): 19.5,
}  # fewer micro-batches than devices


@pytest.mark.parametrize(
    ("devices", "parts"), [(1, 4), (3, 7), (5, 11), (8, 11), (8, 32), *sorted({*SIZES, *FEW})]
)
def test_a_v_idles_half_a_unit_a_device(devices, parts):
    """3 N + (D - 1) / 2 where N >= D, as no device can do better; torch's ZBV takes 15 for D = N = 4."""
    _, rows = v_rows(devices, parts)
    least = 3 * parts + (devices - 1) / 2
    assert units(rows, zb_v, forward=0.5, backward=0.5, weight=0.5) == FEW.get(
        (devices, parts), least
    )
    most = {}
    for device, steps in zb_v.schedule(pipeline_of(rows)).steps.items():
        cells = 2 if device == devices - 1 else 1
        change = [cells * ((phase == "F") - (phase == "W")) for phase, _, _ in steps]
        most[device] = np.cumsum(change).max()
    assert max(most.values()) == 2 * min(devices, parts)


@pytest.mark.parametrize("spans", [(1.0, 2.0, 1.0), (1.0, 1.0, 0.25), (1.0, 3.0, 3.0)])
def test_a_v_of_unequal_steps(spans):
    """Lists stay good where steps do not take as long as each other."""
    _, rows = v_rows(4, 8)
    names = dict(zip(("forward", "backward", "weight"), spans, strict=True))
    work = 2 * 8 * sum(spans)
    assert work <= units(rows, zb_v, **names) <= work + 4 * 3 * max(spans)


@pytest.mark.parametrize(("devices", "parts", "known"), [(4, 2, 16), (4, 4, 28)])
def test_two_pipelines_in_opposite_directions(devices, parts, known):
    """Not longer than the proven optima where the backward pass is one block; numbers of one device."""
    graph, machine = chain(devices, 2 * parts), MachineModel.uniform(devices)
    ways = [(k, devices - 1 - k) for k in range(devices)]
    cuts = [f"cell{k}" for k in range(1, devices)]
    rows = lower(graph, stages(graph, machine, parts=parts, cuts=cuts, devices=ways), machine)
    assert (
        6 * parts
        <= units(rows, search_schedule(rows, CellCosts(), seconds=0.5))
        <= units(rows, chimera)
        <= known
    )
    assert_same_bits(graph, rows, chimera)


def assert_same_bits(graph, rows, order):
    feeds = feeds_of(graph)
    found, expected = (
        numbers(reorder(rows, CellCosts(), each), feeds) for each in (order, program)
    )
    assert all(np.array_equal(found[name], value) for name, value in expected.items())


def test_three_passes_forward_and_one_back():
    """Four passes through two devices; gradients stop before the last."""
    graph, machine, parts = Graph(), MachineModel.uniform(2), 6
    h = graph.input("x", (parts, 4), "float64")
    for number in range(8):
        h = cell(h, f"cell{number}", is_trained=number > 5)
        if number == 5:  # nothing goes back from here
            h = graph.launch("stop", "b f -> b f", [h], kernel=copy, backward=lambda op, g: None)
    target = graph.input("t", (parts,), "int32")
    ops.sgd(ops.softmax_cross_entropy(h, target, name="loss"), lr=0.1)
    cuts, devices = [f"cell{k}" for k in range(1, 8)], [(k % 2,) for k in range(8)]
    rows = lower(graph, stages(graph, machine, parts=parts, cuts=cuts, devices=devices), machine)
    each = 6  # four forward, a gradient of the activations, one of the weights
    assert parts * each <= units(rows, three_f_one_b) <= parts * each + 10 < 0.7 * parts * 2 * each
    assert_same_bits(graph, rows, three_f_one_b)


def copy(ctx, x, y):
    np.copyto(y, x)


def test_a_stage_on_all_devices_between_others():
    """The first cell on both devices, the others on one each."""
    parts = 6
    graph, machine = chain(3, 2 * parts), MachineModel.uniform(2)
    devices = [(0, 1), (0,), (1,)]
    rows = lower(
        graph,
        stages(graph, machine, parts=parts, cuts=["cell1", "cell2"], devices=devices),
        machine,
    )
    each = 6  # of the first cell half the samples each; a cell of its own
    assert parts * each <= units(rows, interlaced) <= parts * each + 12
    assert_same_bits(graph, rows, interlaced)


ORDERS = [
    program,
    gpipe,
    looped_bfs,
    one_f_one_b,
    interleaved,
    zb_h1,
    first_ready,
    critical_path,
    depth_first,
]


def numbers(task_graph, feeds, steps=2):
    """All that some steps give, with the plan proven and every access checked."""
    check_own_plan(task_graph)
    with Executor(task_graph, seed=1, check=True) as step:
        losses = [step(feeds)["loss"] for _ in range(steps)]
        return {"loss": np.array(losses)} | {name: step.read(name) for name in step.persistent}


@pytest.mark.parametrize("per_device", [1, 2])
def test_a_schedule_changes_no_bit(per_device):
    """And the numbers are those of one device."""
    graph, rows = pipeline(2, 4, per_device)
    machine, feeds, costs = MachineModel.uniform(1), feeds_of(graph), CellCosts()
    one = numbers(lower(graph, single_device(graph, machine), machine), feeds)
    first = numbers(reorder(rows, costs, program), feeds)
    for name, value in one.items():
        np.testing.assert_allclose(first[name], value, rtol=1e-12, atol=1e-14)
    straight = (
        () if per_device == 1 else (one_f_one_b, zb_h1)
    )  # they deadlock where devices are met again
    for order in (
        *(o for o in ORDERS if o not in straight),
        search_schedule(rows, costs, seconds=0.1),
    ):
        found = numbers(reorder(rows, costs, order), feeds)
        assert found.keys() == first.keys()
        assert all(np.array_equal(found[name], value) for name, value in first.items()), order


def test_a_v_changes_no_bit():
    assert_same_bits(*v_rows(3, 4), zb_v)


def test_a_searched_schedule_is_as_good_as_the_best_policy():
    """Of ZB-H1, which is optimal here; it is laid out as it was found."""
    for devices, parts in ((2, 4), (4, 4)):
        _, rows = pipeline(devices, parts)
        schedule = search_schedule(rows, CellCosts(), seconds=2.0)
        assert units(rows, schedule) == 3 * parts + devices - 1


def test_a_search_begins_with_the_best_policy():
    """In no time: of a straight pipeline of eight devices (the search alone: 33), and of a V."""
    _, rows = pipeline(8, 8)
    assert units(rows, search_schedule(rows, CellCosts(), seconds=0.0)) == 31
    _, rows = v_rows(8, 8)
    half = {"forward": 0.5, "backward": 0.5, "weight": 0.5}
    assert units(rows, search_schedule(rows, CellCosts(**half), seconds=0.0), **half) == 27.5


def test_lists_that_no_device_can_follow_have_no_starts():
    _, rows = pipeline(2, 2)
    found, steps = blocks_of(rows, CellCosts()), zb_h1.schedule(pipeline_of(rows)).steps
    assert starts_of(found, Schedule(steps)).max() == units(rows, zb_h1) - 1
    assert starts_of(found, Schedule({0: steps[0][::-1], 1: steps[1]})) is None
    assert starts_of(found, Schedule({0: steps[0], 1: steps[1][:-1]})) is None


def test_a_schedule_with_less_memory():
    """One micro-batch in flight a device: one after the other."""
    _, rows = pipeline(2, 4)
    found = blocks_of(rows, CellCosts())
    forward = [
        block for block, (phase, _) in zip(found.blocks, found.steps, strict=True) if phase == "F"
    ]
    tile = 4 * 8  # a sample of 4 numbers
    assert [block.span for block in found.blocks] == [1.0] * 6 and all(
        block.memory >= tile for block in forward
    )
    least = 3 * tile  # what the second cell reads, what it makes, and the gradient
    assert units(rows, search_schedule(rows, CellCosts(), memory=least, seconds=0.5)) > 13
    assert_refused(
        f"search_schedule: no schedule fits {least - 1} bytes a device; one micro-batch alone holds up to {least}",
        lambda: search_schedule(rows, CellCosts(), memory=least - 1, seconds=0.2),
    )


def test_a_file_gives_the_same_schedule(tmp_path):
    _, rows = pipeline(2, 4)
    schedule = zb_h1.schedule(pipeline_of(rows))
    schedule.save(tmp_path / "zb.json")
    loaded = Schedule.load(tmp_path / "zb.json")
    assert loaded == schedule and loaded.name == "zb_h1"
    assert reorder(rows, CellCosts(), loaded).digest() == reorder(rows, CellCosts(), zb_h1).digest()


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_needs_all_micro_batches_is_refused():
    graph, machine = Graph(), MachineModel.uniform(2)
    h = ops.conv2d(graph.input("x", (8, 2, 4, 4)), 4, 1, name="conv1")
    h = ops.relu(ops.batch_norm(h, name="bn1"), name="relu")
    ops.sgd(
        ops.softmax_cross_entropy(
            ops.mean(h, (2, 3)), graph.input("t", (8,), "int32"), name="loss"
        ),
        lr=0.1,
    )
    rows = lower(graph, stages(graph, machine, 2, 4), machine)
    assert_refused(
        "schedule 'one_f_one_b': 'bn1.var' needs all 4 micro-batches of 'bn1.mean' before its first point; "
        "use ops.batch_norm(..., parts=4), or an order that knows no stages, such as taskflow.schedule.program",
        lambda: reorder(rows, CellCosts(), one_f_one_b),
    )


@pytest.mark.parametrize(("devices", "parts"), [(2, 4), (4, 4), (4, 2), (4, 8)])
def test_statistics_of_parts_make_a_pipeline(devices, parts):
    """Two stages, of one device or data parallel, more or fewer micro-batches than parts: as one device, proven."""
    graph, machine = Graph(), MachineModel.uniform(devices)
    h = ops.conv2d(graph.input("x", (16, 2, 3, 3), "float64"), 4, 1, name="conv1")
    h = ops.relu(ops.batch_norm(h, parts=4, name="bn1"))
    h = ops.batch_norm(ops.linear(ops.mean(h, (2, 3)), 5, name="fc"), parts=4, name="bn2")
    loss = ops.softmax_cross_entropy(h, graph.input("t", (16,), "int32"), name="loss")
    ops.sgd(loss, lr=0.1, momentum=0.9)
    graph.output("loss", loss)
    feeds = {
        "x": np.random.default_rng(0).standard_normal((16, 2, 3, 3)),
        "t": np.arange(16, dtype=np.int32) % 5,
    }
    plan, one = stages(graph, machine, cuts=["fc"], parts=parts), MachineModel.uniform(1)
    rows = lower(graph, plan, machine)
    expected = numbers(lower(graph, single_device(graph, one), one), feeds)
    costs = CostModel.analytic(machine)
    fitting = [
        policy for policy in POLICIES.values() if policy is not zb_v
    ]  # which wants two stages a device
    orders = [program]
    if parts <= 4:
        orders += (
            [*fitting, search_schedule(rows, costs, seconds=0.2)]
            if devices == 2
            else [one_f_one_b, zb_h1]
        )
    for order in orders:
        found = numbers(reorder(rows, costs, order), feeds)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-10)
    if parts > 4:
        with pytest.raises(
            ValueError, match=r"'bn1\.var' needs all 8 micro-batches of 'bn1\.mean'"
        ):
            reorder(rows, costs, one_f_one_b)


def test_schedules_that_do_not_fit_are_refused():
    _, rows = pipeline(2, 2)
    steps = zb_h1.schedule(pipeline_of(rows)).steps
    costs = CellCosts()
    missing = Schedule({0: steps[0], 1: steps[1][:-1]}, "short")
    assert_refused(
        "schedule 'short': device 1 never does W of stage 1 for micro-batch 1; 1 of 12 blocks are in no list",
        lambda: reorder(rows, costs, missing),
    )
    twice = Schedule({0: steps[0], 1: (*steps[1], ("B", 1, 0))}, "twice")
    assert_refused(
        "schedule 'twice': device 1 does I of stage 1 for micro-batch 0 twice",
        lambda: reorder(rows, costs, twice),
    )
    unknown = Schedule({0: (*steps[0], ("F", 1, 0)), 1: steps[1]}, "unknown")
    assert_refused(
        "schedule 'unknown': device 0 cannot do F of stage 1 for micro-batch 0; it has stages [0] and 2 micro-batches",
        lambda: reorder(rows, costs, unknown),
    )
    crossed = Schedule({0: steps[0][::-1], 1: steps[1]}, "crossed")
    assert_refused(
        "schedule 'crossed': devices wait for each other: device 1 at F of stage 1 for micro-batch 0; "
        "device 0 at W of stage 0 for micro-batch 1",
        lambda: reorder(rows, costs, crossed),
    )


FILES = {
    '{"format": "taskflow-schedule", "version": 1, "name": "x", "devices": {"a": []}}': "device 'a' is no number",
    '{"format": "taskflow-schedule", "version": 1, "name": "x", "devices": {"0": [["X", 0, 0]]}}': (
        "device 0: phase 'X' is none of F, I, W, B"
    ),
}


@pytest.mark.parametrize("text", FILES)
def test_files_that_are_no_schedule_are_refused(text, tmp_path):
    path = tmp_path / "schedule.json"
    path.write_text(text)
    assert_refused(f"schedule file '{path}': {FILES[text]}", lambda: Schedule.load(path))


def test_stages_that_cannot_be():
    graph, machine = chain(2, 4), MachineModel.uniform(2)
    for message, options in {
        "stages: 'no' is no operator that a strategy names": {"cuts": ["no"]},
        "stages: a stage begins at 'shift' and has no operators before": {"cuts": ["shift"]},
        "stages: 'none' is no operator that a strategy names": {
            "count": 2,
            "within": {"none": ParallelConfig({})},
        },
        "stages: 0 micro-batches; at least one": {"count": 2, "parts": 0},
        "stages: 0 stages of 4 operators": {"count": 0},
        "stages: give their count, or the cuts between them, not both": {
            "count": 2,
            "cuts": ["cell1"],
        },
        "stages: 3 stages on 2 devices; give the devices of each": {"count": 3},
        "stages: 9 stages of 4 operators": {"count": 9},
        "stages: 2 stages on 1 groups of devices": {"count": 2, "devices": [(0,)]},
        "stages: 'shift' has 4 samples; 8 micro-batches in 1 parts need 8": {
            "count": 2,
            "parts": 8,
        },
        "stages: 'cell1' uses device 1 of a stage of 1": {
            "count": 2,
            "within": {"cell1": ParallelConfig({"f": 2}, (0, 1))},
        },
    }.items():
        assert_refused(message, lambda options=options: stages(graph, machine, **options))


def test_stages_with_data_and_tensor_parallelism_inside():
    """Two stages of two devices, one data parallel, one split by features."""
    graph, machine = chain(2, 8), MachineModel.uniform(4)
    plan = stages(
        graph, machine, cuts=["cell1"], parts=2, within={"cell1": ParallelConfig({"f": 2})}
    )
    assert plan["cell0"] == ParallelConfig({"b": 4}, (0, 1, 0, 1))
    assert plan["cell1"] == ParallelConfig({"b": 2, "f": 2}, (2, 3, 2, 3))
    rows, feeds = lower(graph, plan, machine), feeds_of(graph)
    one = MachineModel.uniform(1)
    expected = numbers(lower(graph, single_device(graph, one), one), feeds)
    for order in (program, gpipe, one_f_one_b, zb_h1):
        found = numbers(reorder(rows, CellCosts(), order), feeds)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-14)
