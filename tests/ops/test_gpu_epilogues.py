"""What affine maps ask of cuBLASLt on a GPU, forward and backward, and that the numbers stay those of NumPy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ops
from taskflow import Graph
from tests import laws, shim
from tests.ops.test_gpu_cudnn import on_numpy, run, trained
from tests.sampling import crossed
from tests.strategies import strategies

pytestmark = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")
TOLERANCE = {"float32": 1e-5, "float16": 0.01, "bfloat16": 0.06}
BUILDS = {
    "linear": (lambda x: ops.linear(ops.linear(x, 8), 3), ["bias", "bias_gradient_of_second"]),
    "no bias": (lambda x: ops.linear(ops.linear(x, 8, bias=False), 3, bias=False), []),
    "relu": (
        lambda x: ops.linear(x, 8, activation="relu"),
        ["relu_bias", "bias_gradient_of_second"],
    ),
    "gelu": (
        lambda x: ops.linear(x, 8, activation="gelu_tanh"),
        ["gelu_aux_bias", "bias_gradient_of_second"],
    ),
    "gelu, no bias": (lambda x: ops.linear(x, 8, False, activation="gelu_tanh"), ["gelu_aux"]),
    "feed_forward": (
        lambda x: ops.feed_forward(x, 8, 3),
        ["gelu_aux_bias", "bias", "dgelu", "bias_gradient_of_second"],
    ),
    "feed_forward, relu": (
        lambda x: ops.feed_forward(x, 8, 3, "relu"),
        ["relu_bias", "bias", "bias_gradient_of_second"],
    ),
    "attention": (
        lambda x: ops.multihead_attention(x, 2, fused=True),
        ["bias", "bias_gradient_of_second"],
    ),
    "feed_forward, odd": (lambda x: ops.feed_forward(x, 7, 3), ["bias", "bias_gradient_of_second"]),
}


def model_of(build, precision="float32"):
    graph = Graph()
    return trained(graph, build(graph.input("x", (4, 3, 6))), precision)


@pytest.mark.parametrize("name, precision", crossed([*BUILDS], [*TOLERANCE]))
def test_an_epilogue_for_all_that_there_is_one_for(name, precision):
    if precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    build, epilogues = BUILDS[name]
    model, backend = model_of(build, precision), shim.ShimStreams()
    laws.assert_close(run(model, backend), on_numpy(model), TOLERANCE[precision])
    assert list(dict.fromkeys(backend.xp.epilogues)) == epilogues


def test_what_cublaslt_refuses_is_done_by_passes():
    backend = shim.ShimStreams()
    backend.xp.product = lambda *args: False
    model = model_of(BUILDS["feed_forward"][0])
    laws.assert_close(run(model, backend), on_numpy(model), 1e-5)


@pytest.mark.slow
@settings(max_examples=max(1, settings().max_examples // 8))
@given(data=st.data(), name=st.sampled_from(list(BUILDS)), seed=st.integers(0, 99))
def test_any_strategy_gives_the_numbers_of_numpy(data, name, seed):
    """Bias gradients over a split batch and over split inputs among them."""
    model = model_of(BUILDS[name][0])
    machine, strategy = data.draw(strategies(model.graph, 4))
    laws.assert_close(run(model, shim.ShimStreams(seed), machine, strategy), on_numpy(model), 1e-5)


def test_a_gradient_is_one_operator_less():
    """Of GELU nothing is left in the gradient of feed_forward, and bias gradients go with those of the weights."""
    operators = model_of(BUILDS["feed_forward"][0]).graph.operators
    names = [
        op.name for op in operators if op.name.startswith("feed") and not op.name.endswith("sgd")
    ]
    assert names == [
        "feed_forward.fc1",
        "feed_forward.fc2",
        "feed_forward.fc2.dx",
        "feed_forward.fc2.dweight",
        "feed_forward.fc1.dweight",
    ]
