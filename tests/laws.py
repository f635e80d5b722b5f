"""The laws of design.md as functions of a model, a machine, a strategy and the options of an executor.

`tests/mpi/test_laws.py` holds every way of running rows to them (see `ways`), alone and under mpirun, and
`tests/gpu/test_laws.py` GPUs.
"""

from unittest import mock

import numpy as np

from taskflow import (
    CostModel,
    Executor,
    MachineModel,
    Plan,
    Strategy,
    check_plan,
    lower,
    reorder,
    single_device,
)
from taskflow.checking.checker import check_own_plan
from taskflow.comm.transport import LocalTransport
from taskflow.execute import agreement
from taskflow.execute.own import devices_of_host
from taskflow.schedule.orders import NAMED
from taskflow.tasks.memory import plan_memory
from tests.own import COLUMNS, assert_memory, assert_part, touching
from tests.strategies import beside_each_other, hosted, random_strategy

TOLERANCE = 1e-10  # float64: relative to the largest element


def run(task_graph, feeds, steps=1, **options):
    """Everything that `steps` steps give: the outputs of each, then all persistent regions."""
    check_own_plan(task_graph)  # law 10
    with Executor(task_graph, seed=3, allow_nan=True, **options) as step:
        seen = {
            f"{name} in step {k}": value
            for k in range(steps)
            for name, value in step(feeds).items()
        }
        return seen | {name: step.read(name) for name in step.persistent}


def one_device(model, machine, steps=1):
    """What the model gives on device 0."""
    return run(lower(model.graph, single_device(model.graph, machine), machine), model.feeds, steps)


def assert_close(found, expected, tolerance=TOLERANCE):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(1.0, float(np.max(np.abs(value), initial=0.0)))
        apart = np.not_equal(found[name], value)  # but for infinities that are equal
        error = float(np.max(np.abs(found[name][apart] - value[apart]), initial=0.0))
        assert error <= tolerance * scale, f"{name}: differs by {error}\n{found[name]}\n{value}"


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def any_strategy_is_one_device(model, machine, strategy, steps=5, expected=None, **options):
    """Law 1: outputs (loss, gradients) of every step and the persistent regions after the last.

    `expected` is what one device gives, if that is known.
    """
    found = run(lower(model.graph, strategy, machine), model.feeds, steps, **options)
    if expected is None:
        expected = one_device(model, hosted(MachineModel.uniform(len(machine.devices))), steps)
    assert_close(found, expected)


def any_order_is_the_same(model, machine, strategy, orders=5, seed=0, **options):
    """Law 2: random topological orders of the rows, to the bit."""
    task_graph = lower(model.graph, strategy, machine)
    expected = run(task_graph, model.feeds, **options)
    generator = np.random.default_rng(seed)
    for _ in range(orders):
        assert_equal(
            run(task_graph.reordered(random_order(task_graph, generator)), model.feeds, **options),
            expected,
        )


ORDERS = [*NAMED, "interleaved:2", "one_f_one_b:1"]


def any_plan_in_time_is_one_device(model, machine, strategy, expected, seed=0, count=3, **options):
    """Law 1 for pipelines and micro-batches in several orders, all of the same bits (law 3); how many were laid out."""
    costs, generator = CostModel.analytic(machine), np.random.default_rng(seed)
    rows = lower(model.graph, strategy, machine)
    first = run(rows, model.feeds, 2, **options)
    assert_close(first, expected)
    laid_out = 0
    for number in generator.choice(len(ORDERS), count, replace=False).tolist():
        try:
            ordered = reorder(rows, costs, ORDERS[number])
        except ValueError as error:  # a barrier, or devices that would wait for each other
            assert "schedule '" in str(error)
            continue
        assert_equal(run(ordered, model.feeds, 2, **options), first)
        laid_out += 1
    return laid_out


def any_plan_is_one_device(model, machine, plan, expected, path, **options):
    """Law 1 for a plan that was saved and loaded; False where the order is refused, for a barrier say."""
    plan.save(path)
    loaded = Plan.load(path)
    assert loaded == plan
    try:
        graph, rows = loaded.apply(model.graph, machine, CostModel.analytic(machine))
    except ValueError as error:
        assert "schedule '" in str(error)
        return False
    check_plan(graph, rows, plan_memory(rows))
    assert_close(run(rows, model.feeds, 2, **options), expected)
    return True


def runs_are_the_same(model, machine, strategy, steps=2, **options):
    """Law 3: lowered and run twice, to the bit."""
    first, second = (lower(model.graph, strategy, machine) for _ in range(2))
    assert first.digest() == second.digest()
    assert_equal(
        run(first, model.feeds, steps, **options), run(second, model.feeds, steps, **options)
    )


def repeated_steps_are_single_ones(
    model, machine, strategy, repeat=3, seed=0, lowering=None, **options
):
    """So many steps as one, in a random order of its rows, twice: those of single steps, to the bit."""
    one, many = (
        lower(model.graph, strategy, machine, repeat=k, **(lowering or {})) for k in (1, repeat)
    )
    expected = run(one, model.feeds, 2 * repeat, **options)
    order = random_order(many, np.random.default_rng(seed))
    feeds = {name: np.stack([value] * repeat) for name, value in model.feeds.items()}
    found = run(many.reordered(order), feeds, 2, **options)
    for name in model.graph.outputs:
        values = np.concatenate([found.pop(f"{name} in step {k}") for k in range(2)])
        found |= {f"{name} in step {k}": value for k, value in enumerate(values)}
    assert_equal(found, expected)


def given_up_steps_change_nothing(model, machine, strategy, backend=dict, **options):
    """Whether a step on feeds and a parameter that are not finite was given up; the steps after it are as if it had
    not been, to the bit."""
    task_graph = lower(model.graph, strategy, machine)
    guarded, plain = (
        Executor(task_graph, seed=3, allow_nan=True, **options, **backend()) for _ in range(2)
    )
    guarded.guard_updates()
    bad = {
        name: np.full_like(v, np.nan) if v.dtype.kind == "f" else v
        for name, v in model.feeds.items()
    }
    with np.errstate(all="ignore"):
        assert_equal(guarded(model.feeds), plain(model.feeds))
        spoilt = {r.name: guarded.read(r.name) for r in model.graph.parameters[:1]}
        for name, value in spoilt.items():
            guarded.write(name, np.full_like(value, np.nan))
        before = {name: guarded.read(name) for name in guarded.persistent}
        guarded(bad)
        if not guarded.is_skipped:  # nothing of that came as far as the loss or a gradient
            return False
        assert_equal({name: guarded.read(name) for name in guarded.persistent}, before)
        for name, value in spoilt.items():
            guarded.write(name, value)
        plain.continue_from(guarded.steps, 3)
        for _ in range(2):
            assert_equal(guarded(model.feeds), plain(model.feeds))
            assert not guarded.is_skipped
    return True


def random_order(task_graph, generator):
    """A topological order, every ready row being as likely as any other."""
    waits = np.diff(task_graph.dep_ptr).tolist()
    unlocks = [[] for _ in range(len(task_graph))]
    for row in range(len(task_graph)):
        for dep in task_graph.deps(row):
            unlocks[dep].append(row)
    ready, order = [row for row, count in enumerate(waits) if not count], []
    while ready:
        row = ready.pop(int(generator.integers(len(ready))))
        order.append(row)
        for other in unlocks[row]:
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    return order


def whoever_drives_a_device_gives_its_bits(model, machine, strategy, seed=0, **options):
    """Ranks give the bits of one process, in whatever order the rows are."""
    task_graph = lower(model.graph, strategy, machine)
    order = random_order(task_graph, np.random.default_rng(seed))
    with mock.patch.object(agreement, "connect", LocalTransport):
        expected = run(task_graph, model.feeds, 2)
    assert_equal(run(task_graph.reordered(order), model.feeds, 2, **options), expected)


def shared_regions_are_one(model, machine, strategy, random=0, **options):
    """Two executors of different strategies and orders take turns on the same regions, as one alone would."""
    other = lower(model.graph, random_strategy(model.graph, machine, random), machine)
    other = other.reordered(random_order(other, np.random.default_rng(random)))
    check_own_plan(other)
    plain = hosted(MachineModel.uniform(len(machine.devices)))
    alone = Executor(
        lower(model.graph, single_device(model.graph, plain), plain), seed=3, allow_nan=True
    )
    first = Executor(lower(model.graph, strategy, machine), seed=3, allow_nan=True, **options)
    second = Executor(other, seed=3, share=first, allow_nan=True, **options)
    assert_close(*({n: step.read(n) for n in alone.persistent} for step in (second, alone)))
    for step in (first, second, second, first):
        alone._run.step = (
            first.steps
        )  # one that shares and updates nothing counts none; random numbers depend on it
        assert_close(step(model.feeds), alone(model.feeds))
    for name in alone.persistent:
        value = alone.read(name)
        value *= (1.5 + np.sin(np.arange(value.size)) / 2).reshape(
            value.shape
        )  # signs stay, and maxima have no ties
        first.write(name, value)
        alone.write(name, value)
    assert_close(second(model.feeds), alone(model.feeds))
    assert_close(*({n: step.read(n) for n in alone.persistent} for step in (first, alone)))


def jobs_beside_each_other_are_as_alone(models, machine, strategies, order="program", **options):
    """Law 1 for several graphs as one, in any order, whichever devices others are on: to the bit."""
    joined = beside_each_other(models)
    strategy = Strategy.beside(dict(zip("abc", strategies, strict=False)))
    rows = reorder(lower(joined.graph, strategy, machine), CostModel.analytic(machine), order)
    expected = {}
    for job, model, own in zip("abc", models, strategies, strict=False):
        alone = run(lower(model.graph, own, machine), model.feeds, 2, **options)
        for name, value in alone.items():
            output, in_step, _ = name.partition(" in step ")
            is_output = bool(in_step) and output in model.graph.outputs
            expected[f"{job}.{name}" if is_output else f"{job}/{name}"] = value
    assert_equal(run(rows, joined.feeds, 2, **options), expected)


def own_rows_give_the_bits_of_all(model, machine, strategy, **options):
    """Ranks that lower the rows of their host's devices alone give the bits of those that lower all (law 13)."""
    whole = lower(model.graph, strategy, machine)
    ranks = agreement.connect().over(whole.devices_used)
    hosts = [ranks.hosts[ranks.rank_of(d)] for d in range(len(machine.devices))]
    here = [d for d, host in enumerate(hosts) if host == ranks.hosts[ranks.rank]]
    own = lower(model.graph, strategy, machine, devices=here)
    found = run_own(own, model.feeds, 2, **options)
    assert_equal(found, run(whole, model.feeds, 2, **options))


def own_plans_give_the_bits_of_all(model, machine, plan, **options):
    """The same of a plan, whose order rank 0 decides; False where the order is refused, for a barrier say."""
    costs, world = CostModel.analytic(machine), agreement.connect()

    def here(used):
        return np.flatnonzero(devices_of_host(world.over(used), len(machine.devices))).tolist()

    try:
        _, whole = plan.apply(model.graph, machine, costs)
    except ValueError as error:
        assert "schedule '" in str(error)
        return False
    _, own = plan.apply(model.graph, machine, costs, devices=here, decide=world.on_rank_0)
    found = run_own(own, model.feeds, 2, **options)
    assert_equal(found, run(whole, model.feeds, 2, **options))
    return True


def run_own(task_graph, feeds, steps=1, **options):
    """What `run` gives, of rows that nobody checks, since they are not all."""
    with mock.patch(f"{__name__}.check_own_plan"):
        return run(task_graph, feeds, steps, **options)


def own_plans_are_parts_of_the_whole(graph, machine, plan, owners):
    """Law 13 for plans: the rows of some devices are those of the whole that touch these, in order; all agree on one
    hash; what lies on a device lies where it does in the whole. Every device has the order that all rows have."""
    costs, every = CostModel.analytic(machine), list(range(len(machine.devices)))
    _, whole = plan.apply(graph, machine, costs, devices=every)
    _, rows = plan.apply(graph, machine, costs)
    assert whole.is_complete
    for device in every:
        here, there = (np.flatnonzero(touching(each, [device])) for each in (whole, rows))
        for name in (*COLUMNS, "bytes", "flops"):
            columns = getattr(whole, name)[here], getattr(rows, name)[there]
            np.testing.assert_array_equal(*columns, name)
    for devices in owners:
        _, own = plan.apply(graph, machine, costs, devices=devices)
        assert_part(own, whole, devices)
        assert own.own.agreed == whole.own.agreed
        assert_memory(own, whole, devices)
