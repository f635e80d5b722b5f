"""Every policy on every pipeline: a list that can be followed, what it holds, and numbers; optima, and refusals."""

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from taskflow.schedule import (
    POLICIES,
    Place,
    chimera,
    gpipe,
    interlaced,
    interleaved,
    one_f_one_b,
    program,
    three_f_one_b,
    zb_h1,
    zb_v,
)
from taskflow.schedule.orders import NAMED, issue_order
from taskflow.schedule.pipeline import LETTERS, pipeline_of
from taskflow.schedule.schedule import PHASES
from taskflow.simulation.simulate import schedule
from taskflow.tasks.task_graph import Kind
from tests.schedule.cells import CellCosts, chain, feeds_of
from tests.schedule.pipelines import (
    PLACEMENTS,
    both_ways,
    cell_costs,
    pipeline,
    pipelines,
    straight,
    there_and_back,
    units,
)
from tests.strategies import examples

# -- every policy ------------------------------------------------------------------------------------------------------

# The placements in which an order refuses no pipeline, its own first. Of one that is not named: a stage a device.
EVERYWHERE = (*PLACEMENTS, None)
FITS = {
    **dict.fromkeys([*{*NAMED} - {*POLICIES}, "searched"], EVERYWHERE),
    "gpipe": EVERYWHERE,
    "looped_bfs": ("several", *EVERYWHERE),
    **dict.fromkeys(["interleaved", "interleaved:2"], ("several", "straight", "to all", "passes")),
    "zb_v": ("there and back",),
    "chimera": ("both ways", *EVERYWHERE),
    "interlaced": ("to all", *EVERYWHERE),
    "three_f_one_b": ("passes", *EVERYWHERE),
}


def fitting(name):
    """Names of placements."""
    return FITS.get(name, ("straight",))


def by_moments(period, backward):
    """What is on its way where a micro-batch enters every `period` moments, and a backward step takes so many."""

    def held(at):
        every = period or len(at.stages) + 1
        enters = np.add.outer(at.stages, every * np.arange(at.parts))
        back = at.length + backward * (at.length - 1 - np.array(at.stages))
        leaves = np.add.outer(back, every * np.arange(at.parts))
        return max(int(((enters <= t) & (t < leaves)).sum()) for t in enters.ravel())

    return held


def by_rounds(at):
    """Megatron-LM's warm-up, and the one that follows."""
    group = at.parts // max(1, at.parts // at.positions)
    ahead = 2 * (at.positions - 1 - at.position) + (len(at.stages) - 1) * group
    return min(at.parts * len(at.stages), ahead + 1)


# The most forward steps that wait for their backward step on a device, as docstrings and papers say it.
HELD = {
    "gpipe": lambda at: at.parts * len(at.stages),
    "looped_bfs": lambda at: at.parts * len(at.stages),
    "one_f_one_b": lambda at: min(at.parts, at.positions - at.position) * len(at.stages),
    "zb_h1": lambda at: min(at.parts, at.positions) * len(at.stages),
    "zb_v": lambda at: min(at.parts, at.positions) * len(at.stages),  # one at the turn is of two
    "interleaved": by_rounds,
    "chimera": by_moments(2, 1),
    "interlaced": by_moments(3, 2),
    "three_f_one_b": by_moments(0, 1),
}


def places(drawn):
    """Device -> its place."""
    devices = sorted({d for group in drawn.devices for d in group})
    own = {d: tuple(k for k, on in enumerate(drawn.devices) if d in on) for d in devices}
    firsts = sorted({stages[0] for stages in own.values()})
    rest = len(firsts), len(drawn.devices), drawn.parts
    return {d: Place(firsts.index(each[0]), rest[0], each, *rest[1:]) for d, each in own.items()}


def followed(drawn, steps):
    """Per row what it waits for: what the rows say, and the row before it in the list of its device.

    Every block is in the list of its device, once; a list may have steps of stages that have nothing to do.
    """
    rows, stage_of = drawn.rows, pipeline_of(drawn.rows)
    assert (list(stage_of.devices), stage_of.parts) == (list(drawn.devices), drawn.parts)
    waits = {row: set(rows.deps(row)) for row in range(len(rows))}
    for device, at in places(drawn).items():
        blocks = [
            (k, (each, *rest))
            for k, (phase, *rest) in enumerate(steps[device])
            for each in PHASES[phase]
        ]
        expected = product("FIW", at.stages, range(drawn.parts))
        assert sorted(block for _, block in blocks) == sorted(expected)
        own = np.flatnonzero((stage_of.stage >= 0) & (rows.device == device)).tolist()
        number = {block: k for k, block in blocks}
        phases = {row: LETTERS[stage_of.phase[row]] for row in own}
        own.sort(key=lambda row: number[phases[row], stage_of.stage[row], stage_of.part[row]])
        for before, row in pairwise(own):
            waits[row].add(before)
    return waits


def longest(waits, seconds):
    """Seconds of the longest way through rows; None: they wait for each other in a circle."""
    end = {}
    try:
        for row in TopologicalSorter(waits).static_order():
            end[row] = max((end[before] for before in waits[row]), default=0.0) + seconds[row]
    except CycleError:
        return None
    return max(end.values())


def most_held(steps):
    """The most forward steps of a list that wait for their backward step."""
    return np.cumsum([(phase == "F") - (phase in "WB") for phase, _, _ in steps]).max()


@pytest.mark.parametrize("name", POLICIES)
@examples(150)
@given(data=st.data())
def test_every_policy_is_followed(name, data):
    """It is refused where devices would wait for each other, and nowhere else; rows take what its lists take."""
    fits = fitting(name)
    placement = data.draw(st.sampled_from(fits) | st.sampled_from(EVERYWHERE))
    drawn, costs = data.draw(pipelines(placement)), data.draw(cell_costs())
    policy, rows, seconds = POLICIES[name], drawn.rows, costs.seconds(drawn.rows)
    try:
        steps = policy.schedule(pipeline_of(rows)).steps
    except ValueError as error:
        assert placement not in fits and "a device has stages" in str(error)
        return
    waits = followed(drawn, steps)
    takes = longest(waits, seconds)
    if takes is None:
        assert placement not in fits
        with pytest.raises(ValueError, match=f"schedule '{name}': devices wait for each other: "):
            reorder(rows, costs, policy)
        return
    order = issue_order(rows, costs, policy).tolist()
    number = {row: k for k, row in enumerate(order)}
    assert sorted(order) == list(range(len(rows)))
    assert all(number[before] < number[row] for row in waits for before in waits[row])
    ordered = rows.reordered(np.array(order))
    assert schedule(ordered, costs.seconds(ordered))[2] == takes
    for device, at in places(drawn).items():
        bound = HELD.get(name, lambda at: at.parts * len(at.stages))(at)
        held = most_held(steps[device])
        assert held == bound if name in HELD else held <= bound


@pytest.mark.parametrize("name", sorted({*NAMED} - {*POLICIES}))
@examples(60)
@given(drawn=pipelines(), costs=cell_costs())
def test_every_order_of_rows_keeps_what_they_wait_for(name, drawn, costs):
    """The same each time; list scheduling issues rows by when they start."""
    rows, seconds = drawn.rows, costs.seconds(drawn.rows)
    order = issue_order(rows, costs, name)
    np.testing.assert_array_equal(issue_order(rows, costs, NAMED[name]), order)
    assert sorted(order.tolist()) == list(range(len(rows)))
    number = np.argsort(order)
    waits = {row: set(rows.deps(row)) for row in range(len(rows))}
    assert all(number[before] < number[row] for row in waits for before in waits[row])
    start, _, takes = schedule(rows.reordered(order), seconds[order])
    assert longest(waits, seconds) <= takes <= seconds.sum()
    if name in ("critical_path", "depth_first", "forward_first"):
        assert np.all(np.diff(start[rows.kind[order] != Kind.FEED]) >= 0)  # feeds come late


def numbers(task_graph, feeds, steps=2):
    """All that some steps give, with the plan proven and every access checked."""
    with Executor(task_graph, seed=1, watch=True) as step:
        losses = [step(feeds)["loss"] for _ in range(steps)]
        return {"loss": np.array(losses)} | {name: step.read(name) for name in step.persistent}


@pytest.mark.parametrize("name", [*NAMED, "searched", "interleaved:2"])
@examples(20)
@given(data=st.data())
def test_no_order_changes_a_bit(name, data):
    """And the numbers are those of one device."""
    drawn = data.draw(
        st.sampled_from(fitting(name)).flatmap(
            lambda placement: pipelines(placement, devices=(2, 3), parts=(3, 6))
        )
    )
    graph, rows, one = drawn.graph, drawn.rows, MachineModel.uniform(1)
    feeds, costs = feeds_of(graph), CellCosts()
    order = search_schedule(rows, costs, seconds=0.05) if name == "searched" else name
    found, expected = numbers(reorder(rows, costs, order), feeds), numbers(rows, feeds)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[each], value) for each, value in expected.items())
    alone = numbers(lower(graph, single_device(graph, one), one), feeds)
    for each, value in alone.items():
        np.testing.assert_allclose(found[each], value, rtol=1e-12, atol=1e-14)


# -- known optima ------------------------------------------------------------------------------------------------------

SIZES = [(d, n) for d in (2, 4, 8) for n in (4, 8, 16)]
HALF = {"forward": 0.5, "backward": 0.5, "weight": 0.5, "joint": 1.0}
# torch.distributed.pipelining's own orders, 2 stages a device, f = 0.5 and b = 1 a stage
TORCH = {(2, 8): 25.5, (4, 4): 16.5, (4, 8): 28.5, (4, 16): 52.5, (8, 16): 58.5}
FEW = {(1, 1): 3, (4, 1): 8.5, (4, 2): 9.5, (8, 3): 18.5, (8, 4): 19.5}  # parts than devices
MANY = [(d, n) for d, n in (*SIZES, (1, 4), (3, 7), (5, 11), (8, 11), (8, 32)) if n >= d]

# Policy, devices of the stages, micro-batches, whether backward is one block, costs and units. GPipe and 1F1B take
# (N + D - 1)(f + b); ZB-H1 idles D - 1 units; ZB-V half as long, as no device can do better (torch's takes 15 for
# D = N = 4). Those of two directions are proven.
OPTIMA = [
    *(
        (p, straight(d), n, True, {}, 3 * (n + d - 1))
        for d, n in SIZES
        for p in (gpipe, one_f_one_b)
    ),
    *((zb_h1, straight(d), n, False, {}, 3 * n + d - 1) for d, n in SIZES if n >= d),
    *((interleaved, straight(d, 2), n, True, HALF, known) for (d, n), known in TORCH.items()),
    *((zb_v, there_and_back(d), n, False, HALF, 3 * n + (d - 1) / 2) for d, n in MANY),
    *((zb_v, there_and_back(d), n, False, HALF, known) for (d, n), known in FEW.items()),
    (chimera, both_ways(4), 2, True, {}, 16),
    (chimera, both_ways(4), 4, True, {}, 28),
    (interlaced, [(0, 1), (0,), (1,)], 6, False, {}, 39),
]


@pytest.mark.parametrize(
    ("policy", "way", "parts", "is_joint", "costs", "known"),
    [pytest.param(*each, id=f"{each[0].name} {len(each[1])}-{each[2]}") for each in OPTIMA],
)
def test_bubbles_to_the_unit(policy, way, parts, is_joint, costs, known):
    """Where gradients of weights are blocks of their own, they fill bubbles and make none."""
    assert units(pipeline(way, parts, is_joint).rows, policy, **costs) == known
    assert units(pipeline(way, parts).rows, policy, **costs) <= known


@pytest.mark.parametrize("spans", [(1.0, 2.0, 1.0), (1.0, 1.0, 0.25), (1.0, 3.0, 3.0)])
def test_a_v_of_unequal_steps(spans):
    """Lists stay good where steps do not take as long as each other."""
    rows = pipeline(there_and_back(4), 8).rows
    names = dict(zip(("forward", "backward", "weight"), spans, strict=True))
    work = 2 * 8 * sum(spans)
    assert work <= units(rows, zb_v, **names) <= work + 4 * 3 * max(spans)


def test_three_passes_forward_and_one_back():
    """Four passes through two devices; gradients stop before the last: less than 0.7 of four that go back."""
    rows = pipeline(straight(2, 4), 6, forward_only=6).rows
    each = 6  # four forward, a gradient of the activations, one of the weights
    assert units(rows, three_f_one_b) == 6 * each + 9 < 0.7 * 6 * 2 * each


# -- other pipelines ---------------------------------------------------------------------------------------------------


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
