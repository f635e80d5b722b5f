"""Every operator in every precision: models, bounds and comparison, for the C++ run and for GPUs.

A run on a GPU, or on what stands in for it, is compared with NumPy's in the same precision. The models are the operator
cases with gradients and an update, the fused models, and compositions whose first operator reads what stays float32: a
feed or a parameter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import ops
import taskflow
from taskflow import Executor, Graph, MachineModel, lower, single_device
from taskflow.core.dtypes import HALF
from tests.ops.cases import CASES
from tests.ops.test_fused import BUILDS, fused, model_of
from tests.strategies import Model, feeds_of, random_strategy

# Largest difference, relative to the largest number of a region and to 1 at least, and why it is not zero.
BOUNDS = {
    "float64": 1e-10,  # law 1: sums are taken in another order
    "float32": 3e-4,  # sums of some hundred numbers in another order, through a backward pass and three updates
    "tf32": 1e-2,  # operands of products have 10 bits, 2**-11 each; NumPy has all 23
    "float16": 1e-2,  # some roundings of 2**-11, at other places where kernels are fused or split
    "bfloat16": 6e-2,  # some roundings of 2**-8
}
PRECISIONS = list(BOUNDS)
STEPS = 3


@dataclass(frozen=True)
class Subject:
    """A model in a precision."""

    name: str
    precision: str
    make: Callable[[], Model]

    def __str__(self) -> str:
        return f"{self.name}, {self.precision}"


@dataclass(frozen=True)
class Setting:
    """How a subject runs: on how many devices, by a random strategy where there are several, and fused or not."""

    devices: int = 1
    fuses: bool = False

    def __str__(self) -> str:
        return f"{'fused ' if self.fuses else ''}on {self.devices}"


SETTINGS = [Setting(), Setting(fuses=True), Setting(4), Setting(4, fuses=True)]


def subjects() -> list[Subject]:
    """All of them."""
    found = [Subject(str(case), p, partial(of_case, case, p)) for case in CASES for p in PRECISIONS]
    found += [
        Subject(f"model {b.__name__}", p, partial(of_build, b, p))
        for b in BUILDS
        for p in PRECISIONS
    ]
    for name, (shape, first) in FIRST.items():
        for source in ("feed", "parameter"):
            found += [
                Subject(f"{name} of a {source}", p, partial(of_first, first, shape, source, p))
                for p in PRECISIONS
            ]
    return found


def of_build(build, precision):
    """A fused model. Adam divides gradients by their size, and so roundings: half precision is trained by SGD."""
    return model_of(build, precision, ops.sgd if precision in HALF else ops.adamw)


def of_case(case, precision):
    """The model of an operator case with gradients and an optimizer; what it feeds in float64 is float32."""
    with pytest.MonkeyPatch.context() as patch:
        if precision != "float64":
            patch.setattr(Graph, "input", _narrow_input)
        graph, y = case.build()
    graph.output("y", y)
    if precision != "float64":
        graph = taskflow.precision(graph, precision, None)
    if case.is_differentiable:
        y = graph.outputs["y"]
        ops.sgd(
            ops.mean_squared_error(y, graph.input("wanted", y.shape, y.dtype)),
            lr=0.01,
            momentum=0.9,
        )
    return Model(graph, feeds_of(graph, classes=min(case.high, 3)))


_PLAIN_INPUT = Graph.input


def _narrow_input(graph, name, shape, dtype="float32"):
    return _PLAIN_INPUT(graph, name, shape, "float32" if dtype == "float64" else dtype)


# -- compositions ------------------------------------------------------------------------------------------------------

ROWS, IMAGE, VOLUME, SEQUENCE = (6, 8), (4, 4, 8, 8), (2, 3, 4, 4, 4), (3, 6, 8)


def _ring(x):
    """Each vertex reads the two before."""
    n = x.shape[0]
    sources = [(k - d) % n for k in range(n) for d in (1, 2)]
    return ops.edges(x.graph, range(0, 2 * n + 1, 2), sources)


def _scores(x):
    """A softmax of a number of each edge."""
    edges = _ring(x)
    return ops.edge_softmax(ops.mean(ops.to_edges(x, edges), 1), edges)


def _aligned(x):
    given = {"labels": [[1, 2], [3, 3], [7, 0]], "frames": [6, 5, 3], "counts": [2, 2, 1]}
    parts = (x.graph.constant(name, value, "int32") for name, value in given.items())
    return ops.multiply(x, ops.unsqueeze(ops.unsqueeze(ops.ctc_loss(x, *parts), 1), 2))


def _sparse(scores, name):
    return ops.dense_to_sparse_gate(scores, 2, 0.5, 0.2, name=name)


def _labels(x):
    return x.graph.input("t", x.shape[:-1], "int32")


def _heads(x):
    return ops.reshape(x, (*x.shape[:-1], 2, x.shape[-1] // 2))


FIRST = {
    "layer_norm": (ROWS, ops.layer_norm),
    "rms_norm": (ROWS, ops.rms_norm),
    "group_norm": (IMAGE, lambda x: ops.group_norm(x, 2)),
    "instance_norm": (IMAGE, ops.instance_norm),
    "batch_norm": (IMAGE, ops.batch_norm),
    "batch_norm of rows": (ROWS, ops.batch_norm),
    "max_pool2d": (IMAGE, lambda x: ops.max_pool2d(x, 2)),
    "max_pool2d that overlaps": (IMAGE, lambda x: ops.max_pool2d(x, 3, 2, 1)),
    "avg_pool2d": (IMAGE, lambda x: ops.avg_pool2d(x, 2)),
    "adaptive_avg_pool2d": (IMAGE, lambda x: ops.adaptive_avg_pool2d(x, (3, 3))),
    "adaptive_max_pool2d": (IMAGE, lambda x: ops.adaptive_max_pool2d(x, (3, 3))),
    "global_avg_pool2d": (IMAGE, ops.global_avg_pool2d),
    "global_max_pool2d": (IMAGE, ops.global_max_pool2d),
    "max_pool3d": (VOLUME, lambda x: ops.max_pool3d(x, 2)),
    "avg_pool3d": (VOLUME, lambda x: ops.avg_pool3d(x, 2)),
    "conv2d": (IMAGE, lambda x: ops.conv2d(x, 5, 3, padding=1)),
    "conv1d": (SEQUENCE, lambda x: ops.conv1d(x, 5, 3)),
    "conv_transpose2d": (IMAGE, lambda x: ops.conv_transpose2d(x, 3, 2, 2)),
    "linear": (ROWS, lambda x: ops.linear(x, 5)),
    "feed_forward": (ROWS, lambda x: ops.feed_forward(x, 12)),
    "dropout": (ROWS, lambda x: ops.dropout(x, 0.25)),
    "softmax": (ROWS, ops.softmax),
    "log_softmax": (ROWS, ops.log_softmax),
    "gelu": (ROWS, ops.gelu),
    "prelu": (IMAGE, ops.prelu),
    "clip": (ROWS, lambda x: ops.clip(x, -0.5, 0.5)),
    "power": (ROWS, lambda x: ops.pow(ops.abs(x), 1.5)),
    "topk": (ROWS, lambda x: ops.topk(x, 3)[0]),
    "max": (ROWS, lambda x: ops.max(x, 1, keepdim=True)),
    "sqrt": (ROWS, lambda x: ops.sqrt(ops.multiply(x, x))),
    "sum": (ROWS, lambda x: ops.sum(x, 1, keepdim=True)),
    "transpose": (ROWS, lambda x: ops.transpose(x, (1, 0))),
    "reverse": (ROWS, lambda x: ops.reverse(x, 1)),
    "pad": (IMAGE, lambda x: ops.pad(x, (1, 1, 2, 0))),
    "interpolate": (IMAGE, lambda x: ops.interpolate(x, (16, 16))),
    "where": (ROWS, lambda x: ops.where(ops.greater(x, ops.multiply(x, x)), x, ops.exp(x))),
    "concat": (ROWS, lambda x: ops.concat([x, ops.layer_norm(x)], 1)),
    "rotary_embedding": (SEQUENCE, lambda x: ops.rotary_embedding(_heads(x))),
    "attention": (SEQUENCE, lambda x: ops.multihead_attention(x, 2)),
    "joined attention": (
        SEQUENCE,
        lambda x: ops.multihead_attention(x, 2, is_causal=True, fused=True, joined=True),
    ),
    "fused_attention": (
        SEQUENCE,
        lambda x: ops.fused_attention(_heads(x), _heads(x), _heads(x), is_causal=True),
    ),
    "aggregate": (ROWS, lambda x: ops.aggregate(x, _ring(x), _scores(x))),
    "sum_edges": (ROWS, lambda x: ops.sum_edges(ops.to_edges(x, _ring(x)), _ring(x), "max")),
    "packed_attention": (
        SEQUENCE,
        lambda x: ops.packed_attention(*[ops.reshape(x, (18, 2, 4))] * 3, (5, 13), True),
    ),
    "ctc_loss": (SEQUENCE, lambda x: _aligned(x)),
    "lstm": (SEQUENCE, lambda x: ops.lstm(x, 5)[0]),
    "gru": (SEQUENCE, lambda x: ops.gru(x, 5)[0]),
    "mixture_of_experts": (ROWS, lambda x: ops.mixture_of_experts(x, 3, 5, 2, 0.8)[0]),
    "mixture_of_experts, dropless": (
        ROWS,
        lambda x: ops.mixture_of_experts(x, 3, 5, 2, None, 2, gate=_sparse)[0],
    ),
    "mixture_of_experts, rooms": (
        ROWS,
        lambda x: ops.mixture_of_experts(x, 3, 5, 2, (0.5, 2.0, 1.0))[0],
    ),
    "gather": (ROWS, lambda x: ops.gather(x, 1, ops.unsqueeze(_labels(x), 1))),
    "gather_rows": (
        SEQUENCE,
        lambda x: ops.gather_rows(x, x.graph.input("picks", (3, 2), "int32")),
    ),
    "cross_entropy": (
        ROWS,
        lambda x: ops.multiply(x, ops.cross_entropy(x, _labels(x), label_smoothing=0.1)),
    ),
    "softmax_cross_entropy": (
        ROWS,
        lambda x: ops.multiply(x, ops.softmax_cross_entropy(x, _labels(x))),
    ),
}


def of_first(first, shape, source, precision):
    """A model whose first operator reads a feed or a parameter, which stay float32 under a precision."""
    wide = "float64" if precision == "float64" else "float32"
    graph = Graph()
    if source == "feed":
        x = graph.input("x", shape, wide)
    else:
        x = graph.parameter("x", shape, taskflow.Normal(0.0, 1.0), wide)
    y = ops.flatten(first(x), 1)
    y = ops.linear(y, 3, name="last")
    loss = ops.mean_squared_error(y, graph.input("wanted", y.shape, wide))
    graph.output("y", y)
    if precision != "float64":
        graph = taskflow.precision(graph, precision, None)
    ops.sgd(graph.regions[loss.name], lr=0.05, momentum=0.9)
    return Model(graph, feeds_of(graph))


EXTREMES = [
    0.0,
    -0.0,
    1.0,
    1.0,
    -1.0,
    3.0,
    -3.0,
    6.0,
    0.5,
    1e30,
    -1e30,
    1e-30,
    np.inf,
    -np.inf,
    np.nan,
]


def extreme(model):
    """The same model, fed zeros, ties, kinks, numbers that are large and such that are not finite."""
    generator = np.random.default_rng(5)
    values = np.array(EXTREMES)
    feeds = {
        name: values[generator.integers(0, len(values), v.shape)].astype(v.dtype)
        if v.dtype.kind == "f"
        else v
        for name, v in model.feeds.items()
    }
    return Model(model.graph, feeds)


# -- running and comparing ---------------------------------------------------------------------------------------------


def run_model(model, devices=1, seed=None, kind="cpu", steps=STEPS, **options):
    """Outputs of some steps and what persists; by a random strategy where a `seed` is given."""
    machine = MachineModel.uniform(devices)
    strategy = (
        single_device(model.graph, machine)
        if seed is None
        else random_strategy(model.graph, machine, seed)
    )
    rows = lower(model.graph, strategy, machine.with_rates(kind=kind))
    with Executor(rows, seed=3, allow_nan=True, **options) as step:
        seen = {}
        for k in range(steps):
            seen |= {
                f"{name} in step {k}": np.array(value) for name, value in step(model.feeds).items()
            }
        return seen | {name: step.read(name) for name in step.persistent}


def reference(model):
    """What NumPy gives on one device."""
    with np.errstate(all="ignore"):
        return run_model(model)


def on_device(model, setting, **options):
    """What a GPU gives, or what stands in for it."""
    if setting.fuses:
        model = fused(model)
    seed = 1 if setting.devices > 1 else None
    with np.errstate(all="ignore"):
        return run_model(model, setting.devices, seed, "cuda", record=False, **options)


def assert_near(found, expected, bound):
    """As many NaN at the same places, and all else within the bound."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        a, b = found[name].astype(np.float64), value.astype(np.float64)
        assert np.array_equal(np.isnan(a), np.isnan(b)), f"{name}: NaN differ\n{a}\n{b}"
        with np.errstate(invalid="ignore"):
            differences = np.where((a == b) | np.isnan(a), 0.0, np.abs(a - b))
        scale = max(1.0, float(np.max(np.abs(b), where=np.isfinite(b), initial=0.0)))
        error = float(np.max(differences, initial=0.0)) / scale
        assert error <= bound, f"{name}: differs by {error:.2e}, more than {bound:.0e}\n{a}\n{b}"
