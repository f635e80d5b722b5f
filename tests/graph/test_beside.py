"""Jobs beside each other: one task graph, in which each computes what it does alone. Laws: tests/mpi/test_laws.py."""

import numpy as np
import pytest

import ops
import taskflow
from taskflow import CostModel, Graph, MachineModel, Strategy
from taskflow.schedule.jobs import crossover
from taskflow.tasks.task_graph import Kind
from tests.refusals import each_refused

MACHINE = MachineModel.uniform(2)
COSTS = CostModel.analytic(MACHINE)


def net(hidden=6, batch=8, training=True):
    """A net with random operators."""
    graph = Graph()
    x, t = graph.input("x", (batch, 5), "float64"), graph.input("t", (batch,), "int32")
    h = ops.relu(ops.linear(x, hidden, name="fc1"))
    h = ops.dropout(h, 0.3, name="drop") if training else h
    loss = ops.cross_entropy(ops.linear(h, 3, name="fc2"), t, name="ce")
    if training:
        ops.adam(loss, lr=0.1)
    else:
        graph.output("loss", loss)
    return graph


def dp(graph):
    return taskflow.data_parallel(graph, MACHINE)


def feeds(seed=0, batch=8):
    generator = np.random.default_rng(seed)
    return {"x": generator.normal(size=(batch, 5)), "t": generator.integers(0, 3, batch, np.int32)}


def of_jobs(values):
    return {f"{job}/{name}": v for job, own in values.items() for name, v in own.items()}


def run(graph, fed, order="program", steps=2, repeat=1):
    rows = taskflow.lower(graph, taskflow.data_parallel(graph, MACHINE), MACHINE, repeat=repeat)
    rows = taskflow.reorder(rows, COSTS, order)
    with taskflow.Executor(rows, seed=5) as step:
        values = [step(fed) for _ in range(steps)][-1:]
        return dict(*values), {name: step.read(name) for name in step.persistent}


def test_jobs_begin_and_go_on_as_alone():
    graph = taskflow.beside({"a": net(), "b": net(4)})
    assert list(graph.outputs) == ["a.loss", "b.loss"]
    assert {op.job for op in graph.operators} == {"a", "b"}
    fed = {"a": feeds(), "b": feeds(1)}
    values, kept = run(graph, of_jobs(fed))
    for job, width in (("a", 6), ("b", 4)):
        own, weights = run(net(width), fed[job])
        np.testing.assert_array_equal(values[f"{job}.loss"], own["loss"])
        for name, value in weights.items():
            np.testing.assert_array_equal(kept[f"{job}/{name}"], value)


def test_a_job_computes_the_bits_of_alone_whoever_is_beside():
    """a is on three devices of eight: a sum for all of them is another collective's, 1 ulp apart with these feeds."""
    machine = MachineModel.uniform(8)
    feed = feeds(2, 24)

    def on(graph, devices):
        return taskflow.data_parallel(graph, MachineModel.uniform(devices))

    def step(graph, strategy, fed):
        rows = taskflow.lower(graph, strategy, machine)
        fetching = {name: [device for device, _, _ in at] for name, at in rows.fetches.items()}
        with taskflow.Executor(rows, seed=5) as step:
            return [step(fed) for _ in range(2)][-1], fetching

    jobs = {"a": net(batch=24), "b": net(4, 24)}
    graph = taskflow.beside(jobs)
    strategy = Strategy.beside({"a": on(jobs["a"], 3), "b": on(jobs["b"], 8)})
    outer = taskflow.beside({"first": graph, "c": net()})
    with_c = Strategy.beside({"first": strategy, "c": on(net(), 4)})
    fed = of_jobs({"a": feed, "b": feed})
    alone, _ = step(jobs["a"], on(jobs["a"], 3), feed)
    two, fetching = step(graph, strategy, fed)
    three, _ = step(outer, with_c, of_jobs({"first": fed, "c": feeds()}))
    assert fetching == {"a.loss": [0, 1, 2], "b.loss": list(range(8))}
    assert alone["loss"] == two["a.loss"] == three["first.a.loss"]


@pytest.mark.parametrize("order", ["program", "crossover"])
@pytest.mark.parametrize("repeat", [1, 2])
def test_a_quick_job_takes_several_steps_in_one(repeat, order):
    """Each of them sees its own number: of random masks and of Adam's corrections."""
    graph = taskflow.beside({"a": net(), "b": net(4)}, steps={"a": 3})
    assert list(graph.outputs) == ["a.loss", "a.1.loss", "a.2.loss", "b.loss"]
    fed = [feeds(k) for k in range(3)]
    beside = of_jobs({"a": fed[0], "a/1": fed[1], "a/2": fed[2], "b": feeds(9)})
    beside = {name.replace("1/", "1.").replace("2/", "2."): v for name, v in beside.items()}
    if repeat > 1:
        beside = {name: np.stack([value] * repeat) for name, value in beside.items()}
    strategy = Strategy.beside({"a": dp(net()), "b": dp(net(4))}, {"a": 3})
    assert dict(strategy) == dict(dp(graph))
    values, kept = run(graph, beside, order, 2, repeat)
    for job, width, own in (("a", 6, fed), ("b", 4, [feeds(9)])):
        rows = taskflow.lower(net(width), dp(net(width)), MACHINE)
        with taskflow.Executor(rows, seed=5) as step:
            losses = [step(each)["loss"] for _ in range(2 * repeat) for each in own]
            for name in step.persistent:
                np.testing.assert_array_equal(kept[f"{job}/{name}"], step.read(name))
        last = values["a.2.loss" if job == "a" else "b.loss"]
        np.testing.assert_array_equal(last[-1] if repeat > 1 else last, losses[-1])


def test_jobs_can_be_differentiated_and_joined_again():
    graph = taskflow.beside({"a": net(training=False), "b": net(training=False)})
    ops.sgd(ops.add(graph.outputs["a.loss"], graph.outputs["b.loss"]), lr=0.5)
    outer = taskflow.beside({"first": graph, "second": net(4)})
    fed = of_jobs({"first": of_jobs({"a": feeds(), "b": feeds()}), "second": feeds()})
    before, after = (run(outer, fed, steps=k)[1] for k in (0, 1))
    for kept in (before, after):
        np.testing.assert_array_equal(kept["first/a/fc1.weight"], kept["first/b/fc1.weight"])
    assert (before["first/a/fc1.weight"] != after["first/a/fc1.weight"]).any()


@pytest.mark.parametrize("is_first", [True, False])
def test_evaluation_sees_weights_of_before_or_after_the_step(is_first):
    train, other = net(), net(training=False, batch=6)
    jobs = {"eval": other, "train": train} if is_first else {"train": train, "eval": other}
    weights = [r.name for r in train.parameters]
    graph = taskflow.beside(jobs, shared=weights)
    assert set(weights) <= set(graph.regions)
    fed = of_jobs({"train": feeds(), "eval": feeds(1, 6)})
    beside = [run(graph, fed, steps=k)[0]["eval.loss"] for k in (1, 2)]
    rows = [taskflow.lower(g, taskflow.data_parallel(g, MACHINE), MACHINE) for g in (train, other)]
    with taskflow.Executor(rows[0], seed=5) as step, taskflow.Executor(rows[1], share=step) as see:
        losses = [see(feeds(1, 6))["loss"]]
        for _ in range(2):
            step(feeds())
            losses.append(see(feeds(1, 6))["loss"])
    assert beside == (losses[:2] if is_first else losses[1:])


def test_the_other_job_computes_while_gradients_travel():
    """By hand: a's updates come after b's turn, b's after the second of a; each order gives the same."""
    graph = taskflow.beside({"a": net(), "b": net()})
    rows = taskflow.lower(graph, taskflow.data_parallel(graph, MACHINE), MACHINE, repeat=2)
    order = crossover(rows, COSTS.seconds(rows))
    rows = rows.reordered(order)
    turns = []
    for launch in rows.launch[rows.kind == Kind.POINT]:
        turn = rows.launches[launch].job, rows.launches[launch].phase.name == "UPDATE"
        if not turns or turns[-1] != turn:
            turns.append(turn)
    expected = [("a", False), ("b", False), ("a", True), ("a", False), ("b", True), ("b", False)]
    assert turns == [*expected, ("a", True), ("b", True)]
    fed = {name: np.stack([v, v]) for name, v in of_jobs({"a": feeds(), "b": feeds(1)}).items()}
    first = run(graph, fed, repeat=2)[1]
    for name in ("crossover", "own_path", "forward_first"):
        for region, value in run(graph, fed, name, repeat=2)[1].items():
            np.testing.assert_array_equal(value, first[region])


def test_a_short_job_is_as_urgent_as_a_long_one():
    """On one device the longer way would go first throughout; by shares, both jobs end near the end of the step."""
    graph = taskflow.beside({"long": net(4096, 512), "short": net(8, 512)})
    machine = MachineModel.uniform(1)
    costs = CostModel.analytic(machine)
    rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
    last = {}
    for order in ("critical_path", "own_path"):
        ordered = taskflow.reorder(rows, costs, order)
        is_short = [k >= 0 and ordered.launches[k].job == "short" for k in ordered.launch]
        last[order] = np.flatnonzero(is_short)[:5].mean()
    assert last["own_path"] < last["critical_path"]


@pytest.mark.slow
def test_a_search_of_jobs_takes_no_longer_than_one_after_the_other():
    machine = MachineModel.preset("p100", nodes=1)
    costs = CostModel.analytic(machine)
    graphs = {"a": net(512, 64), "b": net(128, 64)}
    found = {
        job: taskflow.search(graph, machine, costs, proposals=20) for job, graph in graphs.items()
    }
    strategy = Strategy.beside({job: result.strategy for job, result in found.items()})
    together = taskflow.search(
        taskflow.beside(graphs), machine, costs, proposals=20, starts={"apart": strategy}
    )
    assert together.seconds <= sum(result.seconds for result in found.values())


test_refused = each_refused(
    [
        ("no graphs", lambda: taskflow.beside({}), "beside: there are no graphs"),
        (
            "a name with a dot",
            lambda: taskflow.beside({"a.b": net()}),
            "beside: job 'a.b': a name has letters, and no / or .",
        ),
        (
            "steps of nobody",
            lambda: taskflow.beside({"a": net()}, steps={"b": 2}),
            "beside: steps of 'b', which is none of the jobs",
        ),
        (
            "two precisions",
            lambda: taskflow.beside(
                {"a": net(), "b": taskflow.precision(net(training=False), "bfloat16")}
            ),
            "beside: graphs have one precision and one number of steps",
        ),
        (
            "a shared region that is not there",
            lambda: taskflow.beside({"a": net()}, ["fc9"]),
            "beside: shared 'fc9': is no parameter, state or input",
        ),
        (
            "shared regions that differ",
            lambda: taskflow.beside({"a": net(), "b": net(4)}, ["fc1.bias"]),
            "beside: shared 'fc1.bias': is one region, not parameter float64[6] "
            "Uniform(low=-0.4472135954999579, high=0.4472135954999579), parameter float64[4] "
            "Uniform(low=-0.4472135954999579, high=0.4472135954999579)",
        ),
        (
            "names as one text",
            lambda: taskflow.beside({"a": net()}, "fc1"),
            "beside: shared are names, not one text 'fc1'",
            TypeError,
        ),
    ]
)
