"""CUDA kernels: every source compiles for GPUs, and does on the CPU what the NumPy kernels do.

Every operator in every precision: `test_gpu_precisions`.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ops
import taskflow
from taskflow import CudaSource, Graph, MachineModel, lower
from tests import laws, shim
from tests.ops.cases import CASES
from tests.ops.test_precision import MODELS, TOLERANCE, convolutions, transformer
from tests.ops.test_precision import trained as half_model
from tests.sampling import IS_THOROUGH, sampled
from tests.strategies import Model, feeds_of, random_strategy

ROOT = Path(__file__).parents[2]
SOURCES = [
    CudaSource(path)
    for path in sorted([*(ROOT / "ops/cuda").glob("*.cu"), *ROOT.glob("taskflow/**/*.cu")])
]

SMALL = [
    c for c in CASES if "wide" not in c.name and not c.is_variant
]  # of the others the sources are the same

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


@pytest.mark.parametrize(
    "source, architecture",
    shim.architectures_of(SOURCES),
    ids=lambda s: getattr(s, "path", Path(str(s))).name,
)
def test_a_source_compiles_for_gpus(source, architecture):
    assert len(shim.compile_for(source.text, architecture)) > 0


def trained(case):
    """The graph of a case with its gradients as outputs."""
    graph, y = case.build()
    graph.output("y", y)
    if case.is_differentiable:
        loss = ops.mse_loss(y, graph.input("wanted", y.shape, "float64"))
        for parameter, gradient in ops.sgd(loss, lr=0.01, momentum=0.9).items():
            graph.output(f"gradient of {parameter.name}", gradient)
    return Model(graph, feeds_of(graph, classes=min(case.high, 3)))


def on_one_gpu(model, tolerance, steps):
    machine = MachineModel.uniform(1)
    task_graph = lower(
        model.graph, taskflow.single_device(model.graph, machine), machine.with_rates(kind="cuda")
    )
    found = laws.run(task_graph, model.feeds, steps, backend=shim.ShimStreams(), record=False)
    laws.assert_close(found, laws.one_device(model, machine, steps), tolerance)


# Whose kernels count from the beginning of the region, or sum over a part of it.
COUNTING = (
    "accuracy",
    "adaptive",
    "argmax",
    "avg_pool",
    "cross_entropy",
    "dot_inter",
    "embedding",
    "expert_load",
)
COUNTING += ("gather", "gru_cell", "rotary", "top_k_acc", "topk")


@needs_compiler
@pytest.mark.parametrize("seed", [0, 1] if IS_THOROUGH else [0])
@pytest.mark.parametrize(
    "case",
    sampled([c for c in SMALL if c.name.startswith(COUNTING)]),
    ids=str,
)
def test_a_split_operator_gives_the_numbers_of_numpy(case, seed):
    model, machine = trained(case), MachineModel.uniform(3).with_rates(kind="cuda")
    strategy, backend = random_strategy(model.graph, machine, seed), shim.ShimStreams(seed)
    laws.any_strategy_is_one_device(model, machine, strategy, 2, backend=backend, record=False)


@needs_compiler
@pytest.mark.parametrize("dtype, tolerance", [("float32", 3e-4), ("float64", 1e-10)])
@pytest.mark.parametrize("optimizer", [ops.sgd, ops.adam, ops.adamw])
def test_training_in_either_precision(dtype, tolerance, optimizer):
    """Adam divides a gradient by its size: where that is near zero, few digits of float32 are left."""
    graph = Graph()
    x, t = graph.input("x", (6, 3, 8, 8), dtype), graph.input("t", (6,), "int64")
    h = ops.max_pool2d(ops.relu(ops.conv2d(x, 5, 3, padding=1, name="conv")), 2)
    h = ops.dropout(ops.gelu(ops.layer_norm(ops.linear(ops.flatten(h), 300))), 0.25)
    optimizer(ops.softmax_cross_entropy(ops.linear(h, 4), t), lr=0.01, weight_decay=0.1)
    on_one_gpu(Model(graph, feeds_of(graph)), tolerance, steps=4)


def mixture(g):
    """Mixture of experts, some tokens over capacity."""
    x, t = g.input("x", (12, 6)), g.input("t", (12,), "int32")
    y, balance = ops.mixture_of_experts(x, 3, 5, 2, 0.8)
    return ops.add(ops.softmax_cross_entropy(ops.linear(y, 4), t), balance)


def sparse_mixture(g):
    """Mixture of experts whose rows are sorted by expert, some tokens with one choice, under a falling temperature."""
    x, t = g.input("x", (12, 6)), g.input("t", (12,), "int32")
    gate = partial(
        ops.dense_to_sparse_gate, k=2, temperature=lambda done: 1 / (done + 1), threshold=0.2
    )
    y, balance = ops.mixture_of_experts(x, 3, 5, 2, None, 2, gate=gate)
    y, more = ops.mixture_of_experts(y, 3, 5, 2, (0.5, 2.0, 1.0), name="uneven")
    return ops.add(ops.softmax_cross_entropy(ops.linear(y, 4), t), ops.add(balance, more))


def tables(g):
    """Rows and elements by index, turned, interacting; the accuracy beside the loss."""
    words, picks, t = (
        g.input(name, (5, n), "int32") for name, n in (("words", 4), ("picks", 2), ("t", 2))
    )
    h = ops.rotary_embedding(ops.unsqueeze(ops.embedding(words, 7, 8), 2))
    h = ops.gather_rows(ops.squeeze(h, 2), picks)
    y = ops.gather(ops.linear(h, 9), 2, ops.expand(ops.unsqueeze(t, 2), (5, 2, 6)))
    g.output("accuracy", ops.accuracy(y, picks))
    pairs = ops.dot_interaction([ops.embedding_bag(words, 5, 3), ops.embedding_bag(picks, 5, 3)])
    return ops.add(ops.cross_entropy(y, picks, 3, 0.1), ops.mean(pairs))


def pooled(g):
    """Pools of all kinds, and a GRU over what is left."""
    x, y = g.input("x", (3, 4, 9, 7)), g.input("y", (3, 4, 5))
    h = ops.adaptive_max_pool2d(ops.avg_pool2d(ops.multiply(x, x), 3, 1, 1), (6, 5))
    h = ops.reshape(ops.adaptive_avg_pool2d(h, (4, 3)), (3, 4, 12))
    return ops.mse_loss(ops.gru(ops.linear(h, 6), 5)[0], y)


@needs_compiler
@pytest.mark.parametrize(
    ("build", "dtype"),
    [
        *((build, "float16") for build in (*MODELS, mixture, sparse_mixture, tables, pooled)),
        *((build, "bfloat16") for build in ([convolutions] if IS_THOROUGH else [])),
        *((build, "bfloat16") for build in (transformer, mixture)),
    ],
)
def test_training_in_half(build, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    on_one_gpu(half_model(build, dtype), TOLERANCE[dtype], steps=3)


@needs_compiler
def test_numbers_of_16_bits_are_those_of_numpy():
    """Every float16, and numbers that are rounded to it; the same for bfloat16."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source = CudaSource(ROOT / "taskflow/backend/cuda/types.cu", CASTS)
    values = np.random.default_rng(0).normal(size=20_000) * 10.0 ** np.random.default_rng(
        1
    ).integers(-9, 6, 20_000)
    values = np.concatenate(
        [values[:-8], [0, -0.0, np.inf, -np.inf, 65519, 65520, 2.0**-25, 3 * 2.0**-26]]
    ).astype("f4")
    for dtype in (np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)):
        patterns = np.arange(1 << 16).astype(np.uint16).view(dtype)
        wide, narrow = np.empty(1 << 16, np.float32), np.empty(len(values), dtype)
        shim.ShimStreams().launch(source, f"widen_{dtype.name}", len(wide), (patterns, wide), 32)
        shim.ShimStreams().launch(source, f"narrow_{dtype.name}", len(values), (values, narrow), 32)
        np.testing.assert_array_equal(wide, patterns.astype(np.float32))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(
                narrow.view(np.uint16), values.astype(dtype).view(np.uint16)
            )


CASTS = """
#define CAST(T, name)                                                                       \\
  extern "C" __global__ void widen_##name(const T* x, float* y) {                           \\
    y[blockIdx.x * blockDim.x + threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];     \\
  }                                                                                         \\
  extern "C" __global__ void narrow_##name(const float* x, T* y) {                          \\
    y[blockIdx.x * blockDim.x + threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];     \\
  }
CAST(float16, float16)
CAST(bfloat16, bfloat16)
"""


@needs_compiler
def test_random_numbers_are_those_of_numpy_to_the_bit():
    shape, rect = (3, 5, 7), taskflow.Rect((1, 2, 3), (3, 4, 7))
    expected, found = np.empty(rect.shape), np.empty(rect.shape)
    from taskflow.backend.sources import RANDOM, index_map
    from taskflow.core.random import uniform

    uniform(expected, key := 0x123456789ABCDEF0, shape, rect)
    args = found, np.array([key], np.uint64), *index_map(shape, rect), found.size
    shim.ShimStreams().launch(RANDOM, "uniform_float64", found.size, args, 32)
    np.testing.assert_array_equal(found, expected)


@needs_compiler
@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_out_of_range_makes_the_loss_nan(index):
    graph = Graph()
    x, t = graph.input("x", (2,), "int32"), graph.input("t", (2,), "int32")
    graph.output("loss", ops.softmax_cross_entropy(ops.embedding(x, 4, 4, dtype="float64"), t))
    machine = MachineModel.uniform(1, taskflow.Device(kind="cuda"))
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    for feed in ({"x": [0, index], "t": [0, 1]}, {"x": [0, 1], "t": [0, index]}):
        values = {name: np.array(value, np.int32) for name, value in feed.items()}
        with (
            taskflow.Executor(task_graph, backend=shim.ShimStreams()) as step,
            pytest.raises(FloatingPointError, match="the loss is nan"),
        ):
            step(values)


@needs_compiler
@pytest.mark.parametrize("index", [-1, 4])
@pytest.mark.parametrize(
    "build",
    [
        lambda x, t: ops.scatter_add(x, 0, t, x),
        lambda x, t: ops.index_add(x, 0, ops.reshape(ops.slice(t, 1, 0, 1), (4,)), x),
        lambda x, t: ops.gather(x, 0, t),
        lambda x, t: ops.embedding(t, 4, 2),
        lambda x, t: ops.one_hot(t, 4, dtype="float32"),
        lambda x, t: ops.multiply(ops.sum(ops.one_hot(t, 4, dtype="float16"), 2), x),
    ],
    ids=["scatter_add", "index_add", "gather", "embedding", "one_hot", "one_hot in half"],
)
def test_an_index_out_of_range_makes_a_result_nan(build, index):
    graph = Graph()
    x, t = graph.input("x", (4, 2)), graph.input("t", (4, 2), "int32")
    graph.output("y", build(x, t))
    machine = MachineModel.uniform(1, taskflow.Device(kind="cuda"))
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    right = np.array([[0, 1], [3, 2], [1, 1], [2, 0]], np.int32)
    wrong = right.copy()
    wrong[2, 0] = index
    with taskflow.Executor(task_graph, backend=shim.ShimStreams(), record=False) as step:
        ones = np.ones((4, 2), np.float32)
        assert np.isfinite(step({"x": ones, "t": right})["y"]).all()
        assert np.isnan(step({"x": ones, "t": wrong})["y"]).any()


@needs_compiler
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_a_class_out_of_range_has_no_number_among_integers(dtype):
    graph = Graph()
    graph.output("y", ops.one_hot(graph.input("t", (4,), "int32"), 3, dtype=dtype))
    machine = MachineModel.uniform(1, taskflow.Device(kind="cuda"))
    task_graph = lower(graph, taskflow.single_device(graph, machine), machine)
    with taskflow.Executor(task_graph, backend=shim.ShimStreams(), record=False) as step:
        found = step({"t": np.array([0, 3, 2, -1], np.int32)})["y"]
    other = np.iinfo(dtype).max if dtype == "uint8" else np.iinfo(dtype).min
    np.testing.assert_array_equal(found, [[1, 0, 0], [other] * 3, [0, 0, 1], [other] * 3])


@needs_compiler
@pytest.mark.parametrize(
    "optimizer, options",
    [
        (ops.adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
        (ops.rmsprop, {"weight_decay": 0.1}),
        (ops.rmsprop, {"centered": True, "momentum": 0.9}),
        (ops.lamb, {"weight_decay": 0.1}),
        (ops.sgd, {"clip_norm": 0.05}),
    ],
)
def test_optimizers_made_from_expressions(optimizer, options):
    graph = Graph()
    x, t = graph.input("x", (6, 9), "float64"), graph.input("t", (6,), "int64")
    optimizer(
        ops.softmax_cross_entropy(ops.linear(ops.relu(ops.linear(x, 20)), 4), t), lr=0.01, **options
    )
    on_one_gpu(Model(graph, feeds_of(graph)), 1e-10, steps=4)
