"""Values and gradients at zeros, ties, kinks, infinities and masked places, against PyTorch's.

The slope that comes from above is 1, 0, infinite or NaN: where PyTorch gives a number, so does `ops`, and the same one.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import (
    Executor,
    Graph,
    LogicalRegion,
    MachineModel,
    differentiate,
    lower,
    single_device,
)


class Missing:
    """In the place of PyTorch where it is not installed: cases name its functions, and skip."""

    def __getattr__(self, name: str) -> Any:
        return self


torch: Any = pytest.importorskip("torch") if find_spec("torch") else Missing()
pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
F = torch.nn.functional
Array = np.ndarray[Any, np.dtype[Any]]
Build = Callable[..., LogicalRegion]
INF, NAN = np.inf, np.nan
SLOPES = (1.0, -2.5, 0.0, INF, NAN)
POINTS = [
    0.0,
    1,
    -1,
    2,
    -2,
    3,
    -3,
    6,
    -6,
    0.5,
    -0.5,
    1.5,
    2.5,
    20,
    -20,
    40,
    -40,
    1000,
    -1000,
    1e-30,
    -1e-30,
    INF,
    -INF,
]
KINKS = np.array(
    [
        *POINTS,
        *np.nextafter([0.0, 1, -1, 3, -3, 6], INF),
        *np.nextafter([0.0, 1, -1, 3, -3, 6], -INF),
    ]
)
FIXED = ("w", "p", "m")  # inputs without a gradient


def of_ops(
    build: Build, values: Mapping[str, Array], slopes: Sequence[float] = (1.0,)
) -> list[dict[str, Array]]:
    """The value and the gradients for each slope."""
    graph = Graph()
    inputs = {key: graph.input(key, v.shape, v.dtype.name) for key, v in values.items()}
    y = build(**inputs)
    flowing = graph.input("slope", y.shape, "float64")
    graph.output("value", y)
    wanted = [r for key, r in inputs.items() if r.is_floating and key not in FIXED]
    loss = ops.sum(ops.multiply(y, flowing))
    for region, gradient in differentiate(loss, wanted).items():
        graph.output(f"of {region.name}", gradient)
    machine = MachineModel.uniform(1)
    with Executor(lower(graph, single_device(graph, machine), machine), allow_nan=True) as step:
        every = (step({**values, "slope": np.full(y.shape, slope)}) for slope in slopes)
        return [{name: value.copy() for name, value in found.items()} for found in every]


def of_torch(
    function: Callable[..., Any], values: Mapping[str, Array], slope: float
) -> dict[str, Array]:
    tensors = {
        key: torch.tensor(v, requires_grad=v.dtype.kind == "f" and key not in FIXED)
        for key, v in values.items()
    }
    y = function(*tensors.values())
    wanted = {key: t for key, t in tensors.items() if t.requires_grad}
    found = torch.autograd.grad(y, list(wanted.values()), torch.full_like(y, slope))
    return {
        "value": y.detach().numpy(),
        **{f"of {key}": g.numpy() for key, g in zip(wanted, found, strict=True)},
    }


def compare(build: Build, function: Callable[..., Any], values: Mapping[str, Array]) -> None:
    """Equal where PyTorch gives a finite number; where it gives none, nothing is asked for."""
    for slope, found in zip(SLOPES, of_ops(build, values, SLOPES), strict=True):
        expected = of_torch(function, values, slope)
        for key, value in expected.items():
            is_known = np.isfinite(value)
            message = f"{key}, from a slope of {slope}"
            np.testing.assert_allclose(
                found[key][is_known], value[is_known], rtol=1e-6, atol=1e-9, err_msg=message
            )


# -- of one region -----------------------------------------------------------------------------------------------------

OF_TORCH = (
    "abs ceil cos erf exp expm1 floor log log1p relu round rsqrt sigmoid sign sin sqrt tanh trunc"
)
OF_FUNCTIONAL = (
    "celu elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu "
    "softplus softsign"
)
ONE: dict[str, tuple[Build, Callable[..., Any]]] = {
    **{
        name: (getattr(ops, name), getattr(torch, name))
        for name in ("abs", "ceil", "cos", "erf", "exp", "expm1")
    },
    **{
        name: (getattr(ops, name), getattr(torch, name))
        for name in ("floor", "log", "log1p", "relu", "round", "rsqrt")
    },
    **{
        name: (getattr(ops, name), getattr(torch, name))
        for name in ("sigmoid", "sign", "sin", "sqrt", "tanh", "trunc")
    },
    **{
        name: (getattr(ops, name), getattr(F, name))
        for name in ("celu", "elu", "gelu", "hardsigmoid", "hardswish")
    },
    **{
        name: (getattr(ops, name), getattr(F, name))
        for name in ("hardtanh", "leaky_relu", "logsigmoid", "mish")
    },
    **{
        name: (getattr(ops, name), getattr(F, name))
        for name in ("relu6", "selu", "silu", "softplus", "softsign")
    },
    "gelu by tanh": (lambda x: ops.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "clip": (lambda x: ops.clip(x, -1, 3), lambda x: torch.clip(x, -1, 3)),
    "clip below": (lambda x: ops.clip(x, 0.0), lambda x: torch.clip(x, 0.0)),
    "elu, alpha": (lambda x: ops.elu(x, 0.5), lambda x: F.elu(x, 0.5)),
    "celu, negative": (lambda x: ops.celu(x, -2.0), lambda x: F.celu(x, -2.0)),
    "leaky_relu, negative": (lambda x: ops.leaky_relu(x, -0.5), lambda x: F.leaky_relu(x, -0.5)),
    "hardtanh, wide": (lambda x: ops.hardtanh(x, -3, 6), lambda x: F.hardtanh(x, -3, 6)),
    "softplus, threshold": (
        lambda x: ops.softplus(x, 2, threshold=1.0),
        lambda x: F.softplus(x, 2, 1.0),
    ),
    "maximum": (lambda x: ops.maximum(x, 0.0), lambda x: torch.maximum(x, torch.zeros_like(x))),
    "minimum": (lambda x: ops.minimum(1.0, x), lambda x: torch.minimum(x, torch.ones_like(x))),
    **{
        f"pow {k}": (lambda x, k=k: ops.pow(x, k), lambda x, k=k: torch.pow(x, k))
        for k in (0, 1, 2, 3, -1, 1.5)
    },
    "pow of 2": (lambda x: ops.pow(2.0, x), lambda x: torch.pow(2.0, x)),
    "pow of 0": (lambda x: ops.pow(0.0, x), lambda x: torch.pow(0.0, x)),
    "divide": (lambda x: ops.divide(1.0, x), lambda x: 1.0 / x),
    "where": (
        lambda x: ops.where(ops.greater(x, 0), ops.log(x), 0.0),
        lambda x: torch.where(x > 0, torch.log(x), 0.0),
    ),
    "max": (lambda x: ops.max(ops.clip(x, -3, 3)), lambda x: torch.max(torch.clip(x, -3, 3))),
    "min": (lambda x: ops.min(ops.clip(x, -3, 3)), lambda x: torch.min(torch.clip(x, -3, 3))),
}
# A root, a logarithm or a quotient behind what masks: the slope from above is infinite where nothing passes.
BEHIND = {
    "sqrt of clip": (
        lambda x: ops.sqrt(ops.clip(x, 0.0)),
        lambda x: torch.sqrt(torch.clip(x, 0.0)),
    ),
    "sqrt of relu": (lambda x: ops.sqrt(ops.relu(x)), lambda x: torch.sqrt(torch.relu(x))),
    "sqrt of relu6": (lambda x: ops.sqrt(ops.relu6(x)), lambda x: torch.sqrt(F.relu6(x))),
    "log of hardtanh": (
        lambda x: ops.log(ops.hardtanh(x, 0, 2)),
        lambda x: torch.log(F.hardtanh(x, 0, 2)),
    ),
    "rsqrt of hardsigmoid": (
        lambda x: ops.rsqrt(ops.hardsigmoid(x)),
        lambda x: torch.rsqrt(F.hardsigmoid(x)),
    ),
    "log of hardswish": (lambda x: ops.log(ops.hardswish(x)), lambda x: torch.log(F.hardswish(x))),
    "quotient by maximum": (
        lambda x: ops.divide(1.0, ops.maximum(x, 0.0)),
        lambda x: 1.0 / torch.maximum(x, torch.zeros_like(x)),
    ),
    "root of minimum": (
        lambda x: ops.sqrt(ops.subtract(1.0, ops.minimum(x, 1.0))),
        lambda x: torch.sqrt(1.0 - torch.minimum(x, torch.ones_like(x))),
    ),
    "pow of floor": (
        lambda x: ops.pow(ops.floor(x), 0.5),
        lambda x: torch.pow(torch.floor(x), 0.5),
    ),
    "root of the largest": (
        lambda x: ops.sqrt(ops.max(ops.clip(x, -2, 0))),
        lambda x: torch.sqrt(torch.max(torch.clip(x, -2, 0))),
    ),
}


@pytest.mark.parametrize("name", [*ONE, *BEHIND])
def test_of_one_region(name: str) -> None:
    build, function = (ONE | BEHIND)[name]
    compare(build, function, {"x": KINKS})


@pytest.mark.parametrize("size", [3, 64])
@pytest.mark.parametrize(
    "name", ["hardswish", "hardsigmoid", "hardtanh", "relu6", "abs", "relu", "sqrt of clip"]
)
def test_conventions_at_kinks_do_not_depend_on_the_size(name: str, size: int) -> None:
    """PyTorch has a vector form and another for the rest; the convention of ours is that of 2.13."""
    build, function = (ONE | BEHIND)[name]
    compare(build, function, {"x": np.tile([-3.0, 3.0, 0.0], size)})


# -- of two ------------------------------------------------------------------------------------------------------------

PAIR = {"x": np.repeat(KINKS, len(KINKS)), "y": np.tile(KINKS, len(KINKS))}
NEAR = {key: value[(abs(PAIR["x"]) < 3) & (abs(PAIR["y"]) < 3)] for key, value in PAIR.items()}
TWO: dict[str, tuple[Build, Callable[..., Any], Mapping[str, Array]]] = {
    "maximum": (ops.maximum, torch.maximum, PAIR),
    "minimum": (ops.minimum, torch.minimum, PAIR),
    "multiply": (ops.multiply, torch.multiply, PAIR),
    "divide": (ops.divide, torch.divide, PAIR),
    "pow": (ops.pow, torch.pow, NEAR),
    "where": (
        lambda x, y: ops.where(ops.less(x, y), ops.sqrt(x), y),
        lambda x, y: torch.where(x < y, torch.sqrt(x), y),
        PAIR,
    ),
    **{
        name: (getattr(ops, name), getattr(F, name), NEAR)
        for name in ("mse_loss", "l1_loss", "huber_loss")
    },
    "smooth_l1_loss": (ops.smooth_l1_loss, F.smooth_l1_loss, NEAR),
    "smooth_l1_loss of 0": (
        lambda x, y: ops.smooth_l1_loss(x, y, 0),
        lambda x, y: F.smooth_l1_loss(x, y, beta=0.0),
        NEAR,
    ),
    "huber_loss of 1.5": (
        lambda x, y: ops.huber_loss(x, y, 1.5),
        lambda x, y: F.huber_loss(x, y, delta=1.5),
        NEAR,
    ),
    "binary_cross_entropy_with_logits": (
        lambda x, t: ops.binary_cross_entropy_with_logits(x, t, reduction="none"),
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"),
        {"x": np.tile(POINTS, 3), "t": np.repeat([0.0, 0.3, 1.0], len(POINTS))},
    ),
    "binary_cross_entropy": (
        lambda x, t: ops.binary_cross_entropy(x, t, reduction="none"),
        lambda x, t: F.binary_cross_entropy(x, t, reduction="none"),
        {"x": np.tile([0.0, 1e-300, 0.3, 0.5, 1.0], 3), "t": np.repeat([0.0, 0.3, 1.0], 5)},
    ),
    "kl_div": (
        lambda x, y: ops.kl_div(x, y, reduction="sum"),
        lambda x, y: F.kl_div(x, y, reduction="sum"),
        {"x": np.array([-1.0, 0, -700, -2]), "y": np.array([0.0, 0.5, 1, 0])},
    ),
}


@pytest.mark.parametrize("name", TWO)
def test_of_two_regions(name: str) -> None:
    compare(*TWO[name])


def test_prelu() -> None:
    """Its slope is a parameter of the graph."""

    def build(x: LogicalRegion) -> LogicalRegion:
        return ops.sqrt(ops.prelu(x, weight_init=0.0))

    compare(build, lambda x: torch.sqrt(F.prelu(x, torch.zeros(1, dtype=x.dtype))), {"x": KINKS})


def test_the_root_of_an_error_of_nothing() -> None:
    """As PyTorch's norm: 0, not NaN."""
    same = np.array([1.0, 2, 3])
    (found,) = of_ops(ops.root_mean_squared_error, {"x": same, "y": same})
    assert found["value"] == 0
    assert not found["of x"].any() and not found["of y"].any()


# -- rows that see nothing ---------------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(0)
HEADS = {name: RANDOM.standard_normal((2, n, 3, 4)) for name, n in (("q", 5), ("k", 6), ("v", 6))}
PADDING = np.array([4, 0])  # keys that are there, of each sample
QUERIES, KEYS = np.arange(5)[:, None], np.arange(6)
MASKS: dict[str, Array] = {
    "padding": (PADDING[:, None] > KEYS)[:, None, None],
    "padding before": (KEYS >= 3)[
        None, None, None
    ],  # with a causal mask, the first queries see nothing
    "a window": (abs(QUERIES - KEYS - 3) < 2)[None, None],
    "nothing": np.zeros((1, 1, 5, 6), bool),
    "everything": np.ones((5, 6), bool),
    "added": np.where(RANDOM.random((2, 1, 5, 6)) > 0.7, 0.3, -INF),
}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_attention_of_queries_that_see_nothing(name: str, is_causal: bool) -> None:
    mask = MASKS[name]

    def function(q: Any, k: Any, v: Any, m: Any) -> Any:
        heads, seen = (
            [x.transpose(1, 2) for x in (q, k, v)],
            torch.ones(5, 6, dtype=torch.bool).tril(),
        )
        if is_causal:
            m = m & seen if m.dtype == torch.bool else m.masked_fill(~seen, -INF)
        return F.scaled_dot_product_attention(*heads, m).transpose(1, 2)

    compare(
        lambda q, k, v, m: ops.scaled_dot_product_attention(q, k, v, is_causal, mask=m),
        function,
        {**HEADS, "m": mask},
    )


@pytest.mark.parametrize("composed", [False, True])
def test_softmax_of_nothing(composed: bool) -> None:
    x = RANDOM.standard_normal((4, 5))
    x[1], x[2, :3] = -INF, -INF
    compare(
        lambda x: ops.softmax(x, composed=composed, zero_rows=True),
        lambda x: torch._safe_softmax(x, -1),
        {"x": x},
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_padding_alone(mode: str) -> None:
    """Zeros, and no gradient for the row of padding."""
    table, i = (
        RANDOM.standard_normal((4, 3)),
        np.array([[1, 1, 2], [3, 3, 3], [0, 3, 2], [3, 1, 3]]),
    )
    graph = Graph()
    indices = graph.input("i", i.shape, "int64")
    y = ops.embedding_bag(indices, 4, 3, mode=mode, dtype="float64", padding_idx=-1)
    (weight,) = graph.parameters
    graph.output("y", y)
    graph.output("g", differentiate(ops.sum(ops.multiply(y, y)), [weight])[weight])
    machine = MachineModel.uniform(1)
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        step.write(weight.name, table)
        found = step({"i": i})
    expected = torch.tensor(table, requires_grad=True)
    value = F.embedding_bag(torch.tensor(i), expected, mode=mode, padding_idx=3)
    value.square().sum().backward()
    np.testing.assert_allclose(found["y"], value.detach(), rtol=1e-12)
    np.testing.assert_allclose(found["g"], expected.grad, rtol=1e-12)
    assert not found["y"][1].any() and not found["g"][3].any()


def test_an_embedding_whose_padding_has_no_gradient() -> None:
    graph = Graph()
    y = ops.embedding(graph.input("i", (5,), "int64"), 3, 2, dtype="float64", padding_idx=0)
    (weight,) = graph.parameters
    graph.output("g", differentiate(ops.sum(y), [weight])[weight])
    machine = MachineModel.uniform(1)
    with Executor(lower(graph, single_device(graph, machine), machine)) as step:
        assert step({"i": np.array([0, 1, 2, 1, 0])})["g"].tolist() == [[0, 0], [2, 2], [1, 1]]


SCORES = RANDOM.standard_normal((7, 5))
SOME, ALL = np.array([0, -100, 2, 1, -100, 3, 0]), np.full(7, -100)
LOSSES: dict[str, tuple[Build, Callable[..., Any]]] = {
    "cross_entropy": (lambda y, t: ops.cross_entropy(y, t, -100), F.cross_entropy),
    "cross_entropy, summed": (
        lambda y, t: ops.cross_entropy(y, t, -100, reduction="sum"),
        lambda y, t: F.cross_entropy(y, t, reduction="sum"),
    ),
    "cross_entropy, smoothed": (
        lambda y, t: ops.cross_entropy(y, t, -100, 0.1),
        lambda y, t: F.cross_entropy(y, t, label_smoothing=0.1),
    ),
    "softmax_cross_entropy": (
        lambda y, t: ops.softmax_cross_entropy(y, t, ignore_index=-100),
        F.cross_entropy,
    ),
    "nll_loss": (
        lambda y, t: ops.nll_loss(ops.log_softmax(y), t, -100),
        lambda y, t: F.nll_loss(torch.log_softmax(y, 1), t),
    ),
}


@pytest.mark.parametrize("targets", [SOME, ALL], ids=["some", "all"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_rows_that_do_not_count(name: str, targets: Array) -> None:
    """Of none the mean is NaN, and the gradient zero."""
    compare(*LOSSES[name], {"y": SCORES, "t": targets})


@pytest.mark.parametrize("name", LOSSES)
def test_what_does_not_count_may_be_anything(name: str) -> None:
    """Scores that are not finite, in rows that are ignored; the rows that count get the gradients of PyTorch."""
    wild = SCORES.copy()
    wild[1, 2], wild[4] = INF, NAN
    build, _ = LOSSES[name]
    calm, found = (of_ops(build, {"y": y, "t": SOME})[0] for y in (SCORES, wild))
    np.testing.assert_array_equal(found["value"], calm["value"])
    counted = SOME >= 0
    np.testing.assert_array_equal(found["of y"][counted], calm["of y"][counted])


# -- what is infinite stays where it is --------------------------------------------------------------------------------

IMAGE = RANDOM.standard_normal((1, 1, 7, 6))
IMAGE[0, 0, 5, 4] = INF
SPREAD: dict[str, tuple[Build, Callable[..., Any]]] = {
    "adaptive_avg_pool2d": (
        lambda x: ops.adaptive_avg_pool2d(x, (3, 4)),
        lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    ),
    "avg_pool2d": (lambda x: ops.avg_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "max_pool2d": (lambda x: ops.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1)),
    "unfold": (lambda x: ops.unfold(x, 2), lambda x: F.unfold(x, 2)),
    "global_max_pool2d": (ops.global_max_pool2d, lambda x: torch.amax(x, (2, 3))),
}


@pytest.mark.parametrize("name", SPREAD)
def test_a_point_that_is_infinite_stays_in_its_windows(name: str) -> None:
    compare(*SPREAD[name], {"x": IMAGE})


@pytest.mark.parametrize("point", [INF, -INF, NAN])
@pytest.mark.parametrize("size", [(14, 12), (4, 9), (7, 11), (3, 6), (7, 6), (1, 13)])
@pytest.mark.parametrize(
    ("mode", "align"),
    [("nearest", False), ("bilinear", False), ("bilinear", True), ("bicubic", False)],
)
def test_a_point_that_is_infinite_reaches_its_neighbours(
    mode: str, align: bool, size: tuple[int, int], point: float
) -> None:
    for at in ((0, 0), (5, 4), (6, 5), (2, 0)):
        image = RANDOM.standard_normal((1, 2, 7, 6))
        image[0, 1][at] = point
        found = of_ops(lambda x: ops.interpolate(x, size, mode, align), {"x": image})[0]["value"]
        expected = F.interpolate(torch.tensor(image), size, mode=mode, align_corners=align or None)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12, atol=1e-12)


def test_no_elementwise_operator_is_forgotten() -> None:
    """Those of one expression: they have no parameters and are of one or two regions."""
    here = {name.split(",")[0].split(" ")[0] for name in (*ONE, *TWO)}
    others = {"add", "subtract", "prelu", "where", "cast", "detach"}  # linear, or of their own test
    others |= {"fake_quantize"}  # straight through: tests/graph/test_quantize.py
    made = {op.__name__ for op in _elementwise()}
    assert made - here - others == set()


def _elementwise() -> Sequence[Any]:
    modules = ("activation", "arithmetic", "rectifiers", "rounding")
    found = []
    for module in modules:
        names = vars(__import__(f"ops.elementwise.{module}", fromlist=[module]))
        found += [value for name, value in names.items() if name in ops.__all__ and callable(value)]
    comparisons = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
    return [value for value in found if value.__name__ not in comparisons]
