"""Fusion: which operators become one, what the one looks like, and that the numbers are the same bits."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ops
import taskflow
from ops.elementwise.pointwise import pointwise
from ops.expressions.assign import assign_together
from ops.expressions.expression import Expression
from ops.expressions.program import program
from taskflow import Graph, LogicalRegion, MachineModel, Strategy, differentiate, update
from taskflow.graph.precision import cast

Array = np.ndarray[Any, np.dtype[Any]]
Rule = Callable[[Graph, MachineModel], Strategy]
MACHINE = MachineModel.local(devices=2)


def residual(dtype: str = "float32") -> Graph:
    """Two layers with a residual addition, gates, and a chain of four elementwise operators."""
    graph = Graph()
    x, t = graph.input("x", (12, 8), dtype), graph.input("t", (12,), "int32")
    shift = graph.parameter("shift", (16,), 0.25, dtype)
    h = ops.gelu(ops.add(ops.linear(x, 16, name="fc1"), shift, name="bias"), name="gelu")
    h = ops.relu(ops.add(ops.linear(h, 16, name="fc2"), h, name="residual"), name="relu")
    gate = ops.silu(ops.linear(h, 16, name="fc3"), name="silu")
    h = ops.multiply(
        ops.add(ops.multiply(gate, h, name="gate"), 1.0, name="plus"), 0.5, name="half"
    )
    loss = ops.softmax_cross_entropy(
        ops.linear(ops.tanh(h, name="tanh"), 5, name="fc4"), t, name="loss"
    )
    ops.adam(loss, lr=0.01)
    return graph


def feeds() -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {"x": random.standard_normal((12, 8)), "t": random.integers(0, 5, 12).astype(np.int32)}


def train(graph: Graph, rule: Rule, steps: int = 4) -> dict[str, Array]:
    task_graph = taskflow.lower(graph, rule(graph, MACHINE), MACHINE)
    given = {name: value.astype(graph.regions[name].dtype) for name, value in feeds().items()}
    with taskflow.Executor(task_graph, seed=0, watch=True) as step:
        losses = [step(given)["loss"] for _ in range(steps)]
        return {r.name: step.read(r.name) for r in graph.parameters} | {"loss": np.array(losses)}


def members(graph: Graph) -> Mapping[str, tuple[str, ...]]:
    return {op.name: op.members for op in graph.operators if op.members}


def test_chains_become_one() -> None:
    assert members(taskflow.fuse(residual())) == {
        "relu": ("residual", "relu"),
        "tanh": ("gate", "plus", "half", "tanh"),
        "half.dx": ("tanh.dx", "half.dx"),
        "relu.dx": ("relu.sum", "relu.dx"),  # sums of gradients are elementwise as well
        "gelu.dx": ("gelu.sum", "gelu.dx"),
        "loss": ("loss.dx",),
    }


def test_casts_of_parameters_come_first() -> None:
    graph = Graph()
    x, t = graph.input("x", (12, 8)), graph.input("t", (12,), "int32")
    h = ops.relu(ops.linear(x, 16, name="fc1"))
    loss = ops.softmax_cross_entropy(ops.linear(h, 5, name="fc2"), t)
    graph = taskflow.precision(graph, "float16")
    ops.sgd(graph.regions[loss.name], lr=0.1)
    fused = taskflow.fuse(graph)
    names = [op.name for op in fused.operators]
    casts = [f"fc{k}.{part}.float16" for k in (1, 2) for part in ("weight", "bias")]
    assert names[:4] == casts and names.index("x.float16") > 3
    gradients = {f"fc{k}.{part}.gradient" for k in (1, 2) for part in ("weight", "bias")}
    absorbed = {"softmax_cross_entropy.dx"}
    assert {op.name for op in graph.operators} - {*names} == {"fc1"} | gradients | absorbed
    assert fused.operator("fc1.weight.unscaled").members == (
        "fc1.weight.gradient",
        "fc1.weight.unscaled",
    )


def test_what_lay_between_is_gone_and_the_graph_before_is_as_it_was() -> None:
    graph = residual()
    before = list(graph.operators), dict(graph.regions)
    fused = taskflow.fuse(graph)
    assert (graph.operators, graph.regions) == before
    between = {name for names in members(fused).values() for name in names[:-1]}
    assert set(graph.regions) - set(fused.regions) == between | {"loss.1"}  # of every row
    assert all(region.graph is fused for region in fused.regions.values())
    op, parts = (
        fused.operator("tanh"),
        [graph.operator(n) for n in ("gate", "plus", "half", "tanh")],
    )
    assert op.flops == sum(part.flops for part in parts)
    assert op.pattern == "b o, b o -> b o"
    assert [r.name for r in op.inputs] == ["silu", "relu"]
    assert fused.operator("half.dx").follows == "tanh"
    assert {op.name for op in fused.operators if op.follows is None} >= {"relu", "tanh"}


def test_what_reads_the_same_is_one_operator() -> None:
    """A loss and its gradient where the loss stood, though others read that before; the gradients of a norm."""
    graph = Graph()
    x, t = graph.input("x", (12, 8)), graph.input("t", (12,), "int32")
    h = ops.layer_norm(ops.linear(x, 6, name="fc1"), name="norm")
    loss = ops.softmax_cross_entropy(ops.linear(h, 5, name="fc2"), t, name="loss")
    graph.output("perplexity", ops.perplexity(loss))
    ops.adam(loss, lr=0.01)
    fused = taskflow.fuse(graph)
    assert members(fused) == {"loss": ("loss.dx",), "norm.dx": ("norm.sums",)}
    one = fused.operator("loss")
    assert one.pattern == "b ^o, b, . -> ., b ^o" and not one.is_backward
    assert [r.name for r in one.outputs] == ["loss.0", "loss.dx"]
    assert len(fused.operator("norm.dx").outputs) == 3
    for rule in (taskflow.single_device, taskflow.data_parallel):
        expected, found = train(graph, rule), train(fused, rule)
        assert all(np.array_equal(found[name], value) for name, value in expected.items())
    kept = Graph()
    y = kept.input("y", (12, 5))
    loss, levels = ops.softmax_cross_entropy(y, kept.input("t", (12,), "int32")), kept.operators[-1]
    kept.output("levels", levels.outputs[1])
    taskflow.differentiate(loss, [y])
    assert not members(
        taskflow.fuse(kept)
    )  # somebody else reads what the gradient reads of the loss


def first_axis(graph: Graph, machine: MachineModel) -> Strategy:
    """Every operator split along its last splittable axis."""
    leaders = [op for op in graph.operators if op.follows is None]
    return Strategy(
        {op.name: taskflow.ParallelConfig({op.split_axes[-1]: 2}, (0, 1)) for op in leaders}
    )


@pytest.mark.parametrize("rule", [taskflow.single_device, taskflow.data_parallel, first_axis])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_bits(rule: Rule, dtype: str) -> None:
    graph = residual(dtype)
    expected = train(graph, rule)
    found = train(taskflow.fuse(graph), rule)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert np.array_equal(value, expected[name]), name


def test_intermediates_vanish_from_the_plan() -> None:
    def peak(graph: Graph) -> int:
        task_graph = taskflow.lower(graph, taskflow.single_device(graph, MACHINE), MACHINE)
        return int(
            taskflow.simulate(task_graph, taskflow.CostModel.analytic(MACHINE)).peak_bytes[0]
        )

    graph = Graph()
    x = graph.input("x", (64, 64))
    graph.output("y", ops.multiply(ops.add(ops.relu(x), x), x))
    assert peak(graph) - peak(taskflow.fuse(graph)) >= 64 * 64 * 4


def test_search_and_rehearsal_take_a_fused_graph() -> None:
    fused = taskflow.fuse(residual())
    result = taskflow.search(
        fused, MACHINE, taskflow.CostModel.analytic(MACHINE), proposals=50, seed=0
    )
    assert "tanh" in result.strategy and "gate" not in result.strategy
    trainer = taskflow.Trainer(fused, machine=MACHINE, strategy=result.strategy, quiet=True)
    assert trainer.predicted_seconds > 0
    trainer.step.close()


def test_tasks_traces_and_explanations_say_what_is_inside(tmp_path: Path) -> None:
    fused = taskflow.fuse(residual())
    strategy = taskflow.data_parallel(fused, MACHINE)
    task_graph = taskflow.lower(fused, strategy, MACHINE)
    costs = taskflow.CostModel.analytic(MACHINE)
    taskflow.simulate(task_graph, costs).save_trace(tmp_path / "trace.json")
    assert "relu[0] (residual + relu)" in (tmp_path / "trace.json").read_text()
    assert str(fused.operator("relu")) == "relu: b o, b o -> b o (residual + relu)"
    explanation = taskflow.explain(fused, strategy, MACHINE, costs)
    assert any(
        entry.split.startswith("made of residual and relu, ") for entry in explanation.operators
    )


# -- what stays two ----------------------------------------------------------------------------------------------------


def pair(build: Callable[[Graph, LogicalRegion], LogicalRegion]) -> Graph:
    graph = Graph()
    graph.output("y", build(graph, graph.input("x", (6, 4))))
    return taskflow.fuse(graph)


def test_a_result_that_is_read_twice_or_fetched_stays() -> None:
    def twice(graph: Graph, x: LogicalRegion) -> LogicalRegion:
        h = ops.relu(x)
        return ops.multiply(h, h)

    def fetched(graph: Graph, x: LogicalRegion) -> LogicalRegion:
        return ops.tanh(graph.output("h", ops.relu(x)))

    assert not members(pair(twice))
    assert not members(pair(fetched))


def test_what_is_repeated_by_its_reader_stays() -> None:
    def repeated(graph: Graph, x: LogicalRegion) -> LogicalRegion:
        return ops.add(x, ops.relu(graph.input("row", (4,))))

    assert not members(pair(repeated))


def test_functions_without_a_fast_compiled_form_stay() -> None:
    assert not members(pair(lambda graph, x: ops.log(ops.relu(x))))


def test_operators_of_other_kernels_stay() -> None:
    assert not members(pair(lambda graph, x: ops.softmax(ops.relu(x))))


def test_casts_of_other_dtypes_stay() -> None:
    """What float64 loses stays lost."""
    graph = Graph()
    x = graph.input("x", (6, 4), "float64")
    ops.relu(x)
    narrow = cast(x, "float32", graph.operators[-1], 0, "narrow")
    graph.output("y", ops.tanh(narrow, name="tanh"))
    assert not members(taskflow.fuse(graph))


def test_what_is_updated_in_between_stays() -> None:
    graph = Graph()
    x, p = graph.input("x", (6, 4)), graph.parameter("p", (6, 4), 1.0)
    first = ops.add(x, p, name="first")
    update("step", p, [p, x], kernel=lambda ctx, p, x: ctx.xp.add(p, x, out=p), writes=[p])
    graph.output("y", ops.relu(first, name="second"))
    assert not members(taskflow.fuse(graph))


def test_what_is_updated_by_a_fused_operator_in_between_stays() -> None:
    """An update counts where it is, not where its first member was."""
    graph = Graph()
    x, p = graph.input("x", (6, 4)), graph.parameter("p", (6, 4), 1.0)
    graph.output("z", ops.add(x, p, name="reader"))
    (twice,) = update(
        "twice", p, [x], kernel=pointwise(Expression.parse("2 * x"), ("x",), {}), values=1
    )
    first = ops.add(x, p, name="first")
    update(
        "step",
        p,
        [p, twice],
        kernel=assign_together.bind(program=program("p = p - g", "p g")),
        writes=[p],
    )
    graph.output("y", ops.relu(first, name="second"))
    assert members(taskflow.fuse(graph)) == {"step": ("twice", "step")}


def test_an_axis_that_either_never_splits_stays_whole() -> None:
    def kernel(ctx: Any, x: Array, y: Array) -> None:
        ctx.xp.add(x, x, out=y)

    joined = taskflow.Kernel(
        kernel, expression=taskflow.Pointwise("x + x", ("x",)), join=lambda *args: joined
    )
    graph = Graph()
    h = graph.launch("outer", "^b c -> ^b c", [graph.input("x", (6, 4))], kernel=joined)
    graph.output("y", graph.launch("inner", "b ^c -> b ^c", [h], kernel=joined))  # type: ignore[list-item,arg-type]
    (op,) = taskflow.fuse(graph).operators
    assert (op.pattern, op.split_axes, op.members) == ("^b ^c -> ^b ^c", (), ("outer", "inner"))


def test_a_fused_graph_is_not_differentiated() -> None:
    graph = Graph()
    x = graph.input("x", (6, 4))
    loss = ops.sum_to(ops.linear(x, 3, name="fc"), ())
    graph.output("loss", loss)
    fused = taskflow.fuse(graph)
    with pytest.raises(ValueError, match="has no backward"):
        differentiate(fused.outputs["loss"], fused.parameters)
