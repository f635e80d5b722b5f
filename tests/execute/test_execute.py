"""Executors: feeds, outputs, persistent regions, sharing, errors and checked runs."""

import numpy as np
import pytest

import taskflow
from taskflow import Executor, Graph, MachineModel, ParallelConfig, Strategy, lower
from tests import laws, tiny

TWO, FOUR = MachineModel.uniform(2), MachineModel.uniform(4)
X = np.arange(24.0).reshape(6, 4) / 10


def network(own=()):
    """(6, 4) -> fc of 4 -> loss; fc.weight is updated with momentum."""
    graph = Graph()
    tiny.sgd(
        tiny.mean_square(tiny.tanh(tiny.linear(graph.input("x", (6, 4), "float64"), 4))), own=own
    )
    return graph


def executor(graph, configs=None, machine=TWO, **options):
    strategy = taskflow.single_device(graph, machine)
    for name, config in (configs or {}).items():
        strategy[name] = config if isinstance(config, ParallelConfig) else ParallelConfig(config)
    return Executor(lower(graph, strategy, machine), **options)


# -- feeds and outputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("configs", [{}, {"copy": {"b": 2}}, {"copy": {"b": 2, "c": 2}}])
def test_a_feed_is_an_array_or_a_function_of_a_box(configs):
    graph = Graph()
    graph.output("y", tiny.copy(graph.input("x", (6, 4), "float64")))
    asked = []

    def feed(rect):
        asked.append(str(rect))
        return X[rect.slices()]

    with executor(graph, configs, FOUR) as step:
        np.testing.assert_array_equal(step({"x": X})["y"], X)
        np.testing.assert_array_equal(step({"x": feed})["y"], X)
    assert len(asked) == max(1, *[ParallelConfig(c).points for c in configs.values()], 0)


def test_each_device_loads_its_tile_of_a_feed():
    graph = Graph()
    tiny.column_sum(graph.input("x", (6, 4), "float64"))
    asked = []
    with executor(graph, {"columns": {"b": 2}}) as step:
        step({"x": lambda rect: asked.append(str(rect)) or X[rect.slices()]})
    assert asked == ["[0:3, 0:4]", "[3:6, 0:4]"]


def test_an_input_that_nobody_reads_need_not_be_fed():
    graph = Graph()
    graph.input("unread", (2,))
    graph.output("y", tiny.copy(graph.input("x", (6, 4), "float64")))
    with executor(graph) as step:
        np.testing.assert_array_equal(step({"x": X})["y"], X)
        step({"x": X, "unread": np.zeros(2, np.float32)})


def test_outputs_are_whole_and_the_callers_own():
    graph = Graph()
    x = graph.input("x", (6, 4), "float64")
    h = graph.output("between", tiny.tanh(x))
    graph.output("sum", tiny.column_sum(h))
    graph.output("fed", x)
    with executor(graph, {"tanh": {"b": 4}, "columns": {"c": 3}}, FOUR) as step:
        first = step({"x": X})
        kept = {name: value.copy() for name, value in first.items()}
        step({"x": X + 1})
    laws.assert_equal(first, kept)
    np.testing.assert_array_equal(first["fed"], X)
    np.testing.assert_allclose(first["between"], np.tanh(X))
    np.testing.assert_allclose(first["sum"], np.tanh(X).sum(axis=0))
    assert first["sum"].shape == (4,)


def test_random_operators_follow_seed_step_and_index_only():
    graph = Graph()
    graph.output("y", tiny.dropout(graph.input("x", (6, 4), "float64")))
    runs = []
    for configs, seed in [({}, 0), ({"dropout": {"b": 3, "c": 2}}, 0), ({}, 1)]:
        with executor(graph, configs, MachineModel.uniform(6), seed=seed) as step:
            runs.append([step({"x": X + 1})["y"] for _ in range(2)])
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0][0], runs[0][1])
    assert not np.array_equal(runs[0][0], runs[2][0])


# -- persistent regions ------------------------------------------------------------------------------------------------

SPLITS = [
    {},
    {"fc": {"o": 2}},
    {"fc": {"i": 2}},
    {"fc": {"b": 2}},
    {"fc": {"b": 2}, "fc.weight.update": {"o": 2}},
]


@pytest.mark.parametrize("configs", SPLITS)
def test_persistent_regions_are_read_and_written_whole(configs):
    with executor(graph := network(), configs) as step:
        assert step.persistent == ["fc.weight", "fc.weight.momentum"]
        weight = step.read("fc.weight")
        with executor(graph) as other:
            np.testing.assert_array_equal(
                weight, other.read("fc.weight")
            )  # first values depend on no strategy
        step({"x": X})
        assert not np.array_equal(step.read("fc.weight"), weight)
        step.write("fc.weight", weight)
        step.write("fc.weight.momentum", np.zeros((4, 4)))
        np.testing.assert_array_equal(step.read("fc.weight"), weight)
        assert step.steps == 1


def test_other_libraries_read_regions_where_they_lie():
    graph = network()
    graph.output("loss2", tiny.mean_square(graph.regions["tanh"]))
    with executor(graph) as step:
        loss = step({"x": X})["loss2"]
        weight = np.from_dlpack(step.on_device("fc.weight"))
        assert np.shares_memory(weight, step.on_device("fc.weight"))
        before = weight.copy()
        assert np.from_dlpack(step.on_device("loss2")) == loss
        step({"x": X})
        assert (weight != before).any(), "the next step writes there"
        weight[...] = before
        np.testing.assert_array_equal(step.read("fc.weight"), before)
        with pytest.raises(
            ValueError, match="on_device: 'tanh' is no persistent region and no output; there are "
        ):
            step.on_device("tanh")
    with (
        executor(network(), {"fc": {"o": 2}}) as step,
        pytest.raises(
            ValueError,
            match=r"no device of this rank has all of 'fc.weight', .*: device 0 has .*, device 1",
        ),
    ):
        step.on_device("fc.weight")


def test_a_seed_makes_the_first_values():
    weights = []
    for seed in (0, 0, 1):
        with executor(network(), seed=seed) as step:
            weights.append(step.read("fc.weight"))
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.any(weights[0] == weights[2])


def test_what_is_written_is_used():
    with executor(graph := network(), {"fc": {"o": 2}}) as step:
        step.write("fc.weight", np.zeros((4, 4)))
        assert step({"x": X})["loss"] == 0
    assert graph.parameters[0].name == "fc.weight"


@pytest.mark.parametrize("configs", [{}, {"part": {"b": 2}}])
def test_a_region_that_is_read_in_part_or_not_at_all_keeps_its_value(configs):
    graph = Graph()
    for name in ("part read", "unread"):
        graph.parameter(name, (6,), 7.0, dtype="float64")
    graph.output("y", tiny.part(graph.regions["part read"], 0, 1, 3))
    with executor(graph, configs) as step:
        for name in step.persistent:
            np.testing.assert_array_equal(step.read(name), np.full(6, 7.0))
            step.write(name, np.arange(6.0))
        assert step()["y"].tolist() == [1, 2]
        for name in step.persistent:
            np.testing.assert_array_equal(step.read(name), np.arange(6.0))


# -- sharing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mine", SPLITS)
@pytest.mark.parametrize("theirs", SPLITS)
def test_two_executors_of_the_same_regions_take_turns(mine, theirs):
    """Training, evaluation and the last, smaller batch are graphs of their own over the same parameters."""
    alone = executor(network())
    first = executor(network(), mine)
    second = executor(network(), theirs, share=first)
    laws.assert_equal(*({n: step.read(n) for n in first.persistent} for step in (second, first)))
    for step in (first, second, second, first):
        laws.assert_close(step({"x": X}), alone({"x": X}))
        for reader in (first, second):
            laws.assert_close(
                *({n: step.read(n) for n in first.persistent} for step in (reader, alone))
            )
    for writer, reader in ((first, second), (second, first)):
        writer.write("fc.weight", np.full((4, 4), 0.5))
        np.testing.assert_array_equal(reader.read("fc.weight"), np.full((4, 4), 0.5))
        assert reader({"x": X})["loss"] == pytest.approx(
            float(np.mean(np.tanh(X.sum(1) / 2) ** 2) / 2)
        )


@pytest.mark.parametrize("configs", SPLITS[:4])
def test_an_evaluation_sees_every_training_step(configs):
    train = executor(network(), {"fc": {"b": 2}})
    graph = Graph()
    graph.output("y", tiny.linear(graph.input("x", (3, 4), "float64"), 4))
    test = executor(graph, configs, share=train)
    for k in range(3):
        np.testing.assert_allclose(
            test({"x": X[:3]})["y"], X[:3] @ train.read("fc.weight").T, atol=1e-12
        )
        train({"x": X})
        assert train.steps == test.steps == k + 1


def test_a_third_executor_shares_through_the_second():
    first = executor(network())
    second = executor(network(), {"fc": {"o": 2}}, share=first)
    third = executor(network(), {"fc": {"i": 2}}, share=second)
    for step in (third, first, second):
        step({"x": X})
        values = [other.read("fc.weight") for other in (first, second, third)]
        np.testing.assert_array_equal(values[0], values[1])
        np.testing.assert_array_equal(values[0], values[2])


def test_boxes_that_overlap_are_not_bound_to_the_same_memory():
    """Both parts of `halo` read [3:5] of what the other executor holds once; the update may come between them."""

    def build():
        graph = Graph()
        x = graph.input("x", (2, 8), "float64")
        state = graph.parameter("state", (8,), 1.0, dtype="float64", trainable=False)
        graph.output("seen", tiny.add_row(x, tiny.stencil(state, name="halo"), "seen"))
        tiny.decay(state, tiny.column_sum(x))
        return graph

    configs = {"halo": ParallelConfig({"b": 2}, (0, 0)), "decay": ParallelConfig({}, (1,))}
    first, alone = executor(build()), executor(build())
    task_graph = executor(build(), configs).task_graph
    late = {next(t.row for t in task_graph if (t.name, t.point) == ("halo", 1))}
    for task in task_graph:
        if late & set(task.dependences):
            late.add(task.row)
    order = sorted(range(len(task_graph)), key=lambda row: (row in late, row))
    second = Executor(task_graph.reordered(order), share=first)
    for step in (first, second, second):
        laws.assert_close(step({"x": X[:4].reshape(2, 8)}), alone({"x": X[:4].reshape(2, 8)}))


# -- errors ------------------------------------------------------------------------------------------------------------


def failing_graph(kernel, pattern="b c -> b c", name="bad"):
    graph = Graph()
    graph.output(
        "y", graph.launch(name, pattern, [graph.input("x", (6, 4), "float64")], kernel=kernel)
    )
    return graph


def fails_at_three(ctx, x, y):
    y[...] = x
    if ctx.rect(0).lo[0] >= 3:
        raise ZeroDivisionError("in the kernel")


def test_an_exception_in_a_kernel_says_where():
    with executor(failing_graph(fails_at_three), {"bad": {"b": 2}}) as step:
        with pytest.raises(ZeroDivisionError, match="in the kernel") as caught:
            step({"x": X})
        assert caught.value.__notes__ == [
            "in step 0 on rank 0, run of task 3: point bad[1] @1 192 B, after [1]",
        ]


@pytest.mark.parametrize("record", [True, False])
def test_an_exception_in_a_feed_says_where(record):
    def feed(rect):
        raise OSError("no such batch")

    with executor(failing_graph(tiny._copy), record=record) as step:
        step({"x": X})
        with pytest.raises(OSError, match="no such batch") as caught:
            step({"x": feed})
    assert caught.value.__notes__ == [
        "in step 1 on rank 0, run of task 0: feed x[0] @0 192 B, after []"
    ]


def test_a_loss_that_is_not_finite_stops_unless_allowed():
    x = X.copy()
    x[0, 0] = np.nan
    with executor(network(), allow_nan=True) as step:
        assert np.isnan(step({"x": x})["loss"])
    with executor(network()) as step:
        step({"x": X})
        with pytest.raises(FloatingPointError, match="step 1: the loss is nan"):
            step({"x": x})


# -- checked runs ------------------------------------------------------------------------------------------------------


def writes_its_input(ctx, x, y):
    x *= 2
    y[...] = x


def test_an_older_name_for_watching_is_taken():
    with pytest.warns(FutureWarning, match="use watch="):
        executor(network(), check=True).close()
    with pytest.raises(TypeError, match="check= is what watch= was called; give one of them"):
        executor(network(), check=True, watch=False)


@pytest.mark.parametrize("check", [False, True])
def test_what_a_kernel_reads_it_cannot_write(check):
    step = executor(failing_graph(writes_its_input), watch=check)
    with pytest.raises(ValueError, match="read-only") as caught:
        step({"x": X})
    assert caught.value.__notes__ == [
        "in step 0 on rank 0, run of task 1: point bad[0] @0 384 B, after [0]"
    ]


def leaves_a_row(ctx, x, y):
    y[1:] = x[1:]


def test_a_checked_run_finds_what_a_kernel_leaves_unwritten():
    graph = failing_graph(leaves_a_row)
    with executor(graph) as step:
        step({"x": X})  # unchecked, nobody sees it
    with (
        executor(graph, {"bad": {"b": 2}}, watch=True) as step,
        pytest.raises(PermissionError) as caught,
    ):
        step({"x": X})
    assert str(caught.value) == (
        "task 2: point bad[0] @0 192 B, after [0]: output 0: leaves 4 of 12 elements unwritten"
    )


def test_a_checked_run_finds_reads_of_what_nobody_wrote(monkeypatch):
    monkeypatch.setattr(
        "taskflow.execute.executor.check_own_plan", lambda task_graph: None
    )  # finds it earlier
    graph = failing_graph(tiny._copy)
    task_graph = lower(graph, taskflow.single_device(graph, TWO), TWO)
    task_graph.arg_box[0, :, 0] = (
        0,
        3,
    )  # a fault in lowering: the feed fills half of what the point reads
    with Executor(task_graph, watch=True) as step, pytest.raises(PermissionError) as caught:
        step({"x": X})
    assert str(caught.value) == (
        "task 1: point bad[0] @0 384 B, after [0]: argument 0: reads 12 elements that no task wrote"
    )


@pytest.mark.parametrize("configs", SPLITS)
def test_a_checked_run_gives_the_same_numbers(configs):
    runs = []
    for check in (False, True):
        with executor(network(), configs, watch=check) as step:
            runs.append(
                {
                    "loss": [step({"x": X})["loss"] for _ in range(3)],
                    "weight": step.read("fc.weight"),
                }
            )
    laws.assert_equal(*runs)


# -- reports -----------------------------------------------------------------------------------------------------------


def test_the_measured_timeline_covers_every_row():
    with executor(network(), {"fc": {"o": 2}}, record=True) as step:
        step({"x": X})
        timeline = step.timeline
    assert not np.any(np.isnan(timeline.start)) and not np.any(np.isnan(timeline.end))
    assert np.all(timeline.end >= timeline.start)
    assert timeline.seconds >= timeline.end.max() - 1e-9
    assert timeline.bytes_moved == step.task_graph.bytes_moved
    np.testing.assert_array_equal(timeline.peak_bytes, step.plan.peak_bytes)


def test_a_timeline_needs_a_recorded_step():
    with executor(network()) as step:
        step({"x": X})
        with pytest.raises(ValueError, match="timeline: no recorded step has run"):
            _ = step.timeline


def test_steps_repeat_to_the_bit():
    strategy = Strategy({"fc": ParallelConfig({"i": 2, "b": 2}), "tanh": ParallelConfig({"b": 3}, (3, 3, 0)),
                         "loss": ParallelConfig({"o": 4}, (0, 1, 2, 3))})  # fmt: skip
    runs = [laws.run(lower(network(), strategy, FOUR), {"x": X}, steps=4) for _ in range(2)]
    laws.assert_equal(*runs)


def test_a_sharing_executor_takes_no_memory_for_what_it_borrows_and_counts_the_steps_that_it_trains():
    graph = Graph()
    x = graph.input("x", (4, 6), "float64")
    tiny.sgd(tiny.mean_square(tiny.linear(x, 300, name="fc")), lr=0.1)
    task_graph = lower(
        graph, taskflow.single_device(graph, MachineModel.uniform(1)), MachineModel.uniform(1)
    )
    first = Executor(task_graph)
    second = Executor(task_graph, share=first)
    assert first.plan.persistent_bytes[0] >= 300 * 6 * 8
    assert second.plan.persistent_bytes[0] == 0
    assert second.plan.peak_bytes[0] <= first.plan.peak_bytes[0] - 300 * 6 * 8
    second({"x": np.ones((4, 6))})
    assert first.steps == second.steps == 1
