"""Additions of partial results: added where they are, then summed once."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import taskflow
from taskflow import CostModel, Kind, MachineModel, ParallelConfig, Privilege, check_plan, lower
from taskflow.checking.rules import PlanError
from taskflow.searching.packed_judge import PackedJudge
from taskflow.tasks.memory import plan_memory
from tests import laws, tiny
from tests.lowered import ITEM, ends_of, lowered, matrix, transfers
from tests.strategies import Model, examples, feeds_of, random_strategy


def fan_out(readers, width=12, batch=24, halo=False):
    """A region `h` that so many layers read, which are summed in a loss, and its training."""
    if halo:
        x = taskflow.Graph().input("x", (batch, 2, 7, 5), "float64")
        h = tiny.conv(x, 3, name="h")
        layers = [tiny.conv(h, 4, k % 2 + 1, padding=k % 2, name=f"fc{k}") for k in range(readers)]
    else:
        h = tiny.linear(matrix(batch, width), width, "h")
        layers = [tiny.linear(h, width, f"fc{k}") for k in range(readers)]
    loss = tiny.mean_square(layers[0], "loss0")
    for k, layer in enumerate(layers[1:]):
        loss = tiny.add(loss, tiny.mean_square(layer, f"loss{k + 1}"), f"total{k}")
    gradients = tiny.sgd(loss)
    graph = loss.graph
    graph.output("gradient", next(iter(gradients.values())))
    return graph


def reads_parts(rows):
    """Whether an addition leaves partial results."""
    launches = [k for k, launch in enumerate(rows.launches) if launch.kernel.is_addition]
    made = [
        rows.args(row)[-1][2]
        for row in np.flatnonzero((rows.kind == Kind.POINT) & np.isin(rows.launch, launches))
    ]
    return Privilege.REDUCE in made


@pytest.mark.parametrize("devices", [2, 3, 8])
@pytest.mark.parametrize("readers", [2, 3])
def test_the_gradients_of_layers_that_read_one_region_are_summed_once(devices, readers):
    graph = fan_out(readers)
    configs = {f"fc{k}": {"o": devices} for k in range(readers)}
    others = {op.name: {"replicas": devices} for op in graph.operators if not op.follows}
    moved = transfers(lowered(graph, others | configs, devices))
    of_gradients = {k: v for k, v in moved.items() if "dx" in k[0] or "sum" in k[0]}
    last = "h.sum" if readers == 2 else "h.sum_2"
    assert of_gradients == {(last, "all-reduce"): 2 * (devices - 1) * 24 * 12 * ITEM}


@st.composite
def fans(draw):
    """A fan-out whose readers are split alike, into parts, micro-batches, halos and replicas; a machine, a strategy."""
    halo = draw(st.booleans())
    graph = fan_out(draw(st.integers(2, 4)), width=5, batch=6, halo=halo)
    machine = MachineModel.uniform(draw(st.integers(2, 6)))
    seed = draw(st.integers(0, 2**32 - 1))
    strategy, generator = random_strategy(graph, machine, seed), np.random.default_rng(seed)
    degrees = {"n" if halo else "b": draw(st.integers(1, 4)), "o": draw(st.integers(2, 4))}
    if halo and draw(st.booleans()):
        degrees["h"] = 2
    if draw(st.booleans()):
        degrees["replicas"] = 2
    points = int(np.prod(list(degrees.values())))
    devices = tuple(generator.integers(len(machine.devices), size=points).tolist())
    if draw(st.booleans()):  # micro-batches: they come to the same devices again
        period = points // next(iter(degrees.values()))
        devices = devices[:period] * (points // period)
    same = sorted(set(devices))  # an addition elsewhere belongs to another stage
    for op in graph.operators:
        if not op.follows:
            is_fan = op.name.startswith("fc")
            replicas = {"replicas": len(same)} if len(same) > 1 else {}
            strategy[op.name] = (
                ParallelConfig(degrees, devices) if is_fan else ParallelConfig(replicas, same)
            )
    return Model(graph, feeds_of(graph)), machine, strategy


@given(st.data())
@examples(40)
def test_added_parts_are_the_numbers_of_one_device_in_any_order(data):
    """Laws 1, 2 and 10. HYPOTHESIS_PROFILE=thorough draws 800."""
    model, machine, strategy = data.draw(fans())
    assume(reads_parts(lower(model.graph, strategy, machine)))
    laws.any_strategy_is_one_device(model, machine, strategy, steps=2)
    laws.any_order_is_the_same(
        model, machine, strategy, orders=1, seed=data.draw(st.integers(0, 99))
    )


def test_a_part_that_is_added_twice_is_refused():
    graph = fan_out(2)
    rows = lowered(
        graph,
        {op.name: {"replicas": 2} for op in graph.operators if not op.follows}
        | {"fc0": {"o": 2}, "fc1": {"o": 2}},
        2,
    )
    check_plan(graph, rows, plan_memory(rows))
    number = next(k for k, launch in enumerate(rows.launches) if launch.name == "h.sum")
    row = int(np.flatnonzero(rows.launch == number)[0])
    rows.arg_instance[rows.arg_ptr[row]] = rows.arg_instance[rows.arg_ptr[row] + 1]
    with pytest.raises(PlanError, match=r"rule region: .*h\.sum"):
        check_plan(graph, rows)


@given(fans())
@examples(40)
def test_a_judge_of_changes_knows_them(fan):
    """What changes the parts that are added changes the addition."""
    model, machine, strategy = fan
    costs = CostModel.analytic(machine)
    judge = PackedJudge(model.graph, machine, costs, is_roomy=True)
    judge.start(strategy)
    for name, config in (("fc1", {}), ("fc1", dict(strategy["fc0"].degrees)), ("fc0", {})):
        devices = strategy["fc0"].devices if config else (0,)
        judge.propose_all({name: ParallelConfig(config, devices)})
        judge.accept()
        again = PackedJudge(model.graph, machine, costs, is_roomy=True)
        assert ends_of(judge).max() == pytest.approx(again.start(judge.strategy), rel=1e-12)
        assert len(ends_of(judge)) == len(lower(model.graph, judge.strategy, machine))


@pytest.mark.parametrize("devices", [(4, 5, 6, 7), (7, 4, 6, 5), (2, 1, 0, 3)])
def test_parts_on_other_devices_are_added_there(devices):
    """By what is known of the first ones, as if nothing were known."""
    graph, machine = fan_out(3), MachineModel.uniform(8)

    def strategy(devices):
        names = [f"fc{k}" for k in range(3)]
        leaders = [op.name for op in graph.operators if not op.follows]
        others = {name: ParallelConfig({"replicas": 4}, devices) for name in leaders}
        return others | {name: ParallelConfig({"o": 4}, devices) for name in names}

    lowering = taskflow.lowering.Lowering(graph, machine)
    for where in ((0, 1, 2, 3), devices):
        chosen = taskflow.Strategy.of_graph(graph, strategy(where))
        rows, expected = lowering.lower(chosen), lower(graph, chosen, machine)
        assert reads_parts(rows)
        for name in ("kind", "source", "device", "bytes", "arg_instance", "arg_box", "dep_row"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(expected, name), name)
    assert {*rows.device.tolist()} <= {*devices}
