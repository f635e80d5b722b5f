"""Law 1 in float32, and where gradients are zero in theory, as docs/architecture.md defines it: a step from equal
values, an update from equal gradients."""

from functools import partial, reduce

import numpy as np
import pytest

import ops
from taskflow import Executor, Graph, MachineModel, lower, single_device
from tests.sampling import IS_THOROUGH, crossed
from tests.strategies import feeds_of, random_strategy

TOLERANCE = 1e-4


def transformer(graph, dtype="float32"):
    """The bias of the keys has no gradient in theory: every score of a query gets the same of it."""
    tokens, t = graph.input("tokens", (4, 6), "int32"), graph.input("t", (4, 6), "int32")
    h = ops.embedding(tokens, 7, 8, name="table", dtype=dtype)
    h = ops.add(h, ops.multihead_attention(ops.layer_norm(h), 2, is_causal=True, name="attention"))
    return ops.softmax_cross_entropy(ops.linear(h, 7), t)


def normed(graph, dtype="float32"):
    """Nor has the bias of a layer that is normed."""
    x, t = graph.input("x", (8, 12), dtype), graph.input("t", (8,), "int32")
    h = ops.relu(ops.batch_norm(ops.linear(x, 10, name="fc1")))
    return ops.softmax_cross_entropy(ops.linear(h, 6), t)


def shifted(graph, dtype):
    """Nor has what is added to all scores of a sample."""
    x, t = graph.input("x", (8, 5), dtype), graph.input("t", (8,), "int32")
    y = ops.add(ops.linear(x, 6), graph.parameter("shift", (1,), 0.5, dtype))
    return ops.softmax_cross_entropy(y, t)


def updates(parameters, optimizer):
    """A graph of the same parameters whose gradients are fed: its loss is the sum of all parameters times these."""
    graph, products = Graph(), []
    for p in parameters:
        w, g = (
            graph.parameter(p.name, p.shape, 0.0, p.dtype),
            graph.input(f"of {p.name}", p.shape, p.dtype),
        )
        products.append(ops.sum_to(ops.multiply(w, g), ()))
    optimizer(reduce(ops.add, products))
    return graph


def on_one_device(graph):
    machine = MachineModel.uniform(1)
    return Executor(lower(graph, single_device(graph, machine), machine), seed=3)


def copy_state(source, target):
    for name in target.persistent:
        target.write(name, source.read(name))
    target.continue_from(source.steps, source.seed)


def largest(values):
    return max(float(np.abs(value).max(initial=0.0)) for value in values)


def assert_near(found, expected, tolerance, scale, name):
    error = largest([found.astype(float) - expected])
    assert error <= tolerance * scale, (
        f"{name}: differs by {error}, {error / scale:.1e} of the largest"
    )


def update_from_equal_gradients(build, optimizer, seed, tolerance=TOLERANCE, steps=3):
    """Law 1 of a training step in float32, and where a gradient is zero in theory."""
    graph = Graph()
    loss = build(graph)
    gradients = {p.name: graph.output(f"of {p.name}", g) for p, g in optimizer(loss).items()}
    machine, feeds = MachineModel.uniform(4), feeds_of(graph)
    with (
        Executor(lower(graph, random_strategy(graph, machine, seed), machine), seed=3) as split,
        on_one_device(graph) as whole,
        on_one_device(updates(graph.parameters, optimizer)) as update,
    ):
        for _ in range(steps):
            copy_state(split, whole)
            copy_state(split, update)
            found, expected = split(feeds), whole(feeds)
            of_parameters = {f"of {name}" for name in gradients}
            most = largest(expected[name] for name in of_parameters)
            for name, value in expected.items():
                assert_near(
                    found[name],
                    value,
                    tolerance,
                    most if name in of_parameters else largest([value]),
                    name,
                )
            update({name: found[name] for name in of_parameters})
            for name in split.persistent:
                value = (update if name in update.persistent else whole).read(name)
                assert_near(split.read(name), value, tolerance, largest([value]) or 1.0, name)


OPTIMIZERS = {
    "adam": partial(ops.adam, lr=0.01),
    "momentum": partial(ops.sgd, lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("build", [transformer, normed])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_in_float32_is_that_of_one_device(build, optimizer):
    for seed in range(3 if IS_THOROUGH else 1):
        update_from_equal_gradients(build, OPTIMIZERS[optimizer], seed)


def test_rounding_shows_far_below_the_tolerance():
    with pytest.raises(AssertionError, match="of the largest"):
        for seed in range(3):
            update_from_equal_gradients(transformer, OPTIMIZERS["adam"], seed, tolerance=1e-9)


def test_adam_makes_a_step_of_rounding():
    """Why updates are compared from equal gradients: the gradient of this bias is rounding, its step is not."""
    graph = Graph()
    gradients = {p.name: g for p, g in ops.adam(transformer(graph), lr=0.01).items()}
    graph.output("of the keys' bias", gradients["attention.k.bias"])
    graph.output("of the table", gradients["table.weight"])
    with on_one_device(graph) as step:
        before = step.read("attention.k.bias")
        found = step(feeds_of(graph))
        moved = largest([step.read("attention.k.bias") - before])
    assert largest([found["of the keys' bias"]]) < 1e-6 * largest([found["of the table"]])
    assert moved > TOLERANCE * largest([before])


@pytest.mark.parametrize(
    "name, function",
    [
        ("silu", ops.silu),
        ("gelu by tanh", lambda x: ops.gelu(x, "tanh")),
        ("gelu", ops.gelu),
        ("sigmoid", ops.sigmoid),
        ("tanh", ops.tanh),
        ("mish", ops.mish),
        ("softplus", ops.softplus),
        ("elu", ops.elu),
        ("erf", ops.erf),
        ("log_sigmoid", ops.log_sigmoid),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_activations_of_large_numbers(name, function):
    """What is multiplied by a large number has to be 0 or 1, not nearly so: silu(-1e6) was -0.12."""
    values = np.array([s * m * 10.0**k for k in range(-3, 9) for m in (1, 2, 5) for s in (1, -1)])
    found = {}
    for dtype in ("float32", "float64"):
        graph = Graph()
        graph.output("y", function(graph.input("x", values.shape, dtype)))
        machine = MachineModel.uniform(1)
        with Executor(lower(graph, single_device(graph, machine), machine)) as step:
            found[dtype] = step({"x": values.astype(dtype)})["y"]
    np.testing.assert_allclose(found["float32"], found["float64"], rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize(
    "build, optimizer, seed",
    crossed([transformer, normed, shifted], [ops.adam, ops.adamw, ops.lamb], range(3)),
)
def test_float64_where_a_gradient_is_zero_in_theory(build, optimizer, seed):
    """At a rate of 1 a step of rounding is 1e-5 of a parameter; the law compares the update from equal gradients."""
    update_from_equal_gradients(
        partial(build, dtype="float64"), partial(optimizer, lr=1.0), seed, 1e-10
    )
