"""Memory plans: nothing that lives shares bytes with anything else that lives, and peaks are known beforehand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskflow
from taskflow import (
    CostModel,
    Device,
    Executor,
    Graph,
    Kind,
    MachineModel,
    ParallelConfig,
    Strategy,
    lower,
)
from taskflow.tasks import lifetimes as lifetimes_module
from taskflow.tasks.memory import (
    ALIGNMENT,
    needed_bytes,
    plan_memory,
    reserved_bytes,
    shortage,
)
from tests import laws, tiny
from tests.checking.reuse import tight
from tests.strategies import examples, graphs, strategies


def lifetimes(task_graph, plan):
    """Instance -> rows in which it lives, from the arguments alone; fetched ones to the end, persistent ones always."""
    count = len(task_graph)
    alive = {}
    for row in range(count):
        for k, (instance, _, _) in enumerate(task_graph.args(row)):
            start = plan.receive[row] if task_graph.is_transfer[row] and k == 1 else row
            first, last = alive.get(instance, (count, -1))
            alive[instance] = (min(first, int(start)), max(last, row))
    alive.pop(-1, None)
    for places in task_graph.fetches.values():
        alive.update({i: (alive.get(i, (0, 0))[0], count) for _, i, _ in places})
    for homes in task_graph.homes.values():
        alive.update({i: (0, count) for i, _ in homes})
    return alive


def assert_what_lives_together_lies_apart(task_graph, plan, alive):
    for a, (first, last) in alive.items():
        for b, (other_first, other_last) in alive.items():
            if a < b and task_graph.instance_device[a] == task_graph.instance_device[b]:
                apart = (
                    plan.offset[a] + plan.size[a] <= plan.offset[b]
                    or plan.offset[b] + plan.size[b] <= plan.offset[a]
                )
                assert apart or last < other_first or other_last < first, (a, b)
        assert plan.offset[a] % ALIGNMENT == 0


def assert_peaks_are_those_of_what_lives(task_graph, plan, alive):
    """The arena ends with the last instance in it; it has room for what lives at once, and for no more than all."""
    kept = {i for homes in task_graph.homes.values() for i, _ in homes}
    for device in range(len(task_graph.machine.devices)):
        here = [i for i in alive if task_graph.instance_device[i] == device]
        at_once = [
            sum(int(plan.size[i]) for i in here if alive[i][0] <= row <= alive[i][1])
            for row in range(len(task_graph))
        ]
        ends = [int(plan.offset[i] + plan.size[i]) for i in here]
        assert max(at_once) <= plan.peak_bytes[device] <= sum(int(plan.size[i]) for i in here)
        assert plan.peak_bytes[device] == max(ends, default=0)
        assert plan.persistent_bytes[device] == sum(int(plan.size[i]) for i in kept & {*here})


def assert_receives_disturb_nobody(task_graph, plan):
    """From the row before which one is posted, nobody on its device uses what it overwrites."""
    assert np.array_equal(plan.receive >= 0, task_graph.is_transfer)
    for row in np.flatnonzero(task_graph.is_transfer):
        device, (_, (target, rect, _)) = int(task_graph.device[row]), task_graph.args(row)
        assert 0 <= plan.receive[row] <= row
        for between in range(int(plan.receive[row]), row):
            touched = [
                r for i, r, _ in task_graph.args(between) if i == target and r.overlaps(rect)
            ]
            assert not touched or task_graph.device[between] != device


@examples(100)
@given(data=st.data())
def test_every_instance_has_its_bytes_while_it_lives(data):
    """Rows as lowered and in any order, on devices with enough memory and with as little as will do."""
    model = data.draw(graphs())
    machine, strategy = data.draw(strategies(model.graph))
    task_graph = lower(model.graph, strategy, machine)
    order = laws.random_order(task_graph, np.random.default_rng(data.draw(st.integers(0, 9))))
    for rows in (task_graph, tight(task_graph.reordered(order))):
        plan = plan_memory(rows)
        alive = lifetimes(rows, plan)
        assert_what_lives_together_lies_apart(rows, plan, alive)
        assert_peaks_are_those_of_what_lives(rows, plan, alive)
        assert_receives_disturb_nobody(rows, plan)


def chain(layers=8):
    x = Graph().input("x", (64, 32), "float64")
    for k in range(layers):
        x = tiny.tanh(x, f"tanh{k}")
    x.graph.output("y", x)
    return x.graph


def test_a_chain_needs_two_activations_at_a_time():
    """x, tanh0, ... tanh7, each 16 KiB: three slots, since the fetched one lives to the end."""
    graph, machine = chain(), MachineModel.uniform(1)
    plan = plan_memory(lower(graph, taskflow.single_device(graph, machine), machine))
    assert plan.peak_bytes.tolist() == [2 * 64 * 32 * 8]
    assert plan.persistent_bytes.tolist() == [0]


def test_activations_of_a_split_batch_are_split():
    graph, machine = chain(), MachineModel.uniform(4)
    strategy = Strategy({f"tanh{k}": ParallelConfig({"b": 4}) for k in range(8)})
    del graph.outputs["y"]
    plan = plan_memory(lower(graph, strategy, machine))
    assert plan.peak_bytes.tolist() == [2 * 16 * 32 * 8] * 4


def test_devices_without_work_need_no_memory():
    graph, machine = chain(), MachineModel.uniform(3)
    plan = plan_memory(lower(graph, taskflow.single_device(graph, machine, 1), machine))
    assert plan.peak_bytes.tolist() == [0, 2 * 64 * 32 * 8, 0]


def test_what_does_not_fit_is_refused_before_the_first_step():
    graph = Graph()
    tiny.sgd(tiny.mean_square(tiny.linear(graph.input("x", (16, 32), "float64"), 64)))
    need = 2 * 64 * 32 * 8 + (16 * 32 + 2 * 16 * 64 + 64 * 32) * 8
    fits = MachineModel.uniform(1, Device(memory_bytes=10**6))
    task_graph = lower(graph, taskflow.single_device(graph, fits), fits)
    peak = int(plan_memory(task_graph).peak_bytes[0])
    assert 2 * 64 * 32 * 8 < peak <= need + 2 * ALIGNMENT
    for room, is_enough in ((peak, True), (peak - 1, False)):
        machine = fits.with_rates(memory_bytes=room)
        task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
        if is_enough:
            assert not shortage(task_graph, plan_memory(task_graph))
        else:
            with pytest.raises(ValueError, match=f"needs {peak} B .* the device has {room} B"):
                Executor(task_graph)


def test_contexts_and_communicators_take_memory():
    """One communicator for each group of a collective, and one for what devices send one another."""
    graph = Graph()
    h = tiny.linear(tiny.linear(graph.input("x", (16, 32), "float64"), 64), 8)
    tiny.sgd(tiny.mean_square(h))
    device = Device("cuda", memory_bytes=10**6, reserved_bytes=1000, communicator_bytes=100)
    machine = MachineModel.uniform(8, device)

    def beside(strategy):
        rows = lower(graph, strategy, machine)
        return reserved_bytes(rows).tolist(), rows

    alone, _ = beside(taskflow.single_device(graph, machine))
    assert alone == [1000] * 8
    summed, rows = beside(taskflow.data_parallel(graph, machine))
    assert len(rows.groups) == 1 and summed == [1100] * 8
    timeline = taskflow.simulate(rows, CostModel.analytic(machine))
    plain = lower(
        graph,
        taskflow.data_parallel(graph, machine),
        machine.with_rates(reserved_bytes=0, communicator_bytes=0),
    )
    assert (timeline.peak_bytes - needed_bytes(plain, plan_memory(plain)) == 1100).all()
    apart = taskflow.single_device(graph, machine)
    apart[list(apart)[1]] = ParallelConfig({}, (1,))
    sent, _ = beside(apart)
    assert sent == [1100, 1100, *[1000] * 6]


def test_a_timeline_says_what_does_not_fit_and_of_what_it_consists():
    graph = Graph()
    tiny.sgd(tiny.mean_square(tiny.linear(graph.input("x", (16, 32), "float64"), 64)))
    device = Device("cuda", memory_bytes=20_000, reserved_bytes=1000)
    machine = MachineModel.uniform(1, device)
    rows = lower(graph, taskflow.single_device(graph, machine), machine)
    timeline = taskflow.simulate(rows, CostModel.analytic(machine))
    assert "; does not fit: device 0: the task graph needs " in repr(timeline)
    assert "1000 B of context and communicators), the device has 20000 B" in repr(timeline)
    roomy = MachineModel.uniform(1, Device("cuda"))
    rows = lower(graph, taskflow.single_device(graph, roomy), roomy)
    assert "fit" not in repr(taskflow.simulate(rows, CostModel.analytic(roomy)))


def test_the_plan_counts_feeds_and_points():
    graph, machine = chain(1), MachineModel.uniform(1)
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    assert task_graph.kind.tolist() == [Kind.FEED, Kind.POINT]
    plan = plan_memory(task_graph)
    assert list(zip(plan.first, plan.last)) == [(0, 1), (1, 2)]


def test_rows_of_one_stream_that_wait_for_nothing_else_share_a_clock():
    """Two devices: a chain on each, then one row of the first that waits for both, and one behind it."""
    own = np.array([0, 0, 1, 1, 0, 0])
    ptr, awaited = np.array([0, 0, 1, 1, 2, 4, 5]), np.array([0, 2, 1, 3, 4])
    clock, makers = lifetimes_module._shared_clocks(ptr, awaited, own)
    assert clock.tolist() == [0, 0, 0, 0, 1, 1] and makers.tolist() == [0, 4]
