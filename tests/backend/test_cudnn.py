"""What cuDNN is asked for, carried out by a stand-in of NumPy, and given to the real frontend where it is installed."""

import logging

import numpy as np
import pytest

from taskflow.backend.cuda.cudnn import Cudnn, CudnnRequest, TensorLayout, describe
from tests import fake_cudnn
from tests.fake_cudnn import Library

ONE = {"before": (1, 1), "after": (1, 1), "stride": (1, 1), "dilation": (1, 1)}


def image(*shape, dtype="float32"):
    """Random, channels-last in memory."""
    n, c, h, w = shape
    return np.random.default_rng(c).normal(size=(n, h, w, c)).astype(dtype).transpose(0, 3, 1, 2)


def address(array):
    return array.__array_interface__["data"][0]


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def cudnn(library):
    return Cudnn(library, address)


def run(cudnn, *args, stream=7, **options):
    plan = cudnn.plan(stream, *args, **options)
    if plan is not None:
        plan.launch(address(np.empty(plan.workspace_bytes, np.uint8)))
    return plan is not None


def test_a_convolution_and_its_bias(cudnn, library):
    x, weight, y = image(2, 3, 5, 6), image(4, 3, 3, 3), image(2, 4, 5, 6)
    bias = np.arange(4, dtype="f4").reshape(1, 1, 1, 4).transpose(0, 3, 1, 2)
    assert run(cudnn, "convolution", (x, weight, bias), (y,), ONE)
    np.testing.assert_allclose(y, fake_cudnn.convolve(x, weight, *ONE.values()) + bias, rtol=1e-5)
    (graph,) = library.plans
    assert [(t.dim, t.stride) for t in graph.tensors] == [
        ([2, 3, 5, 6], [90, 1, 18, 3]),
        ([4, 3, 3, 3], [27, 1, 9, 3]),
        ([1, 4, 1, 1], [4, 1, 4, 4]),
        ([2, 4, 5, 6], [120, 1, 24, 4]),
    ]
    assert [t.uid for t in graph.tensors] == [1, 2, 3, 4]


def test_a_plan_is_made_once_for_layouts_and_options(cudnn, library):
    x, weight, y = image(2, 3, 5, 6), image(4, 3, 3, 3), image(2, 4, 5, 6)
    for _ in range(3):
        assert run(cudnn, "convolution", (x, weight), (y,), ONE)
    assert len(library.plans) == 1
    other = {**ONE, "dilation": (2, 2), "before": (2, 2), "after": (2, 2)}
    assert run(cudnn, "convolution", (x, weight), (y,), other)
    assert run(cudnn, "convolution", (x[:1], weight), (y[:1],), ONE)
    assert run(cudnn, "convolution", (x, weight), (y,), ONE, uses_tf32=True)
    assert len(library.plans) == 4 and len(library.executed) == 6


def test_every_stream_has_a_handle_of_its_own(cudnn, library):
    x, weight, y = image(2, 3, 5, 6), image(4, 3, 3, 3), image(2, 4, 5, 6)
    for stream in (7, 9, 7, 9):
        assert run(cudnn, "convolution", (x, weight), (y,), ONE, stream=stream)
    assert [stream for _, stream in library.executed] == [7, 9, 7, 9]
    assert library.streams == {"handle 0": 7, "handle 1": 9} and len(library.plans) == 1


def test_float32_is_kept_and_results_do_not_change(cudnn, library):
    def notes(dtype, uses_tf32):
        x, weight, y = (
            image(*shape, dtype=dtype) for shape in ((2, 8, 5, 6), (4, 8, 3, 3), (2, 4, 5, 6))
        )
        assert run(cudnn, "convolution", (x, weight), (y,), ONE, uses_tf32=uses_tf32)
        return set(library.plans[-1].notes)

    always = {"NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION"}
    assert notes("float32", False) == always | {"TENSOR_CORE", "DOWN_CONVERT_INPUTS"}
    assert notes("float32", True) == notes("float16", False) == always


def test_nothing_is_planned_in_a_capture(cudnn, library):
    arrays = (image(2, 3, 5, 6), image(4, 3, 3, 3)), (image(2, 4, 5, 6),)
    with pytest.raises(RuntimeError, match="cuDNN plans convolution"):
        cudnn.plan(7, "convolution", *arrays, ONE, may_plan=False)
    assert run(cudnn, "convolution", *arrays, ONE)
    assert run(cudnn, "convolution", *arrays, ONE, may_plan=False)


def test_what_is_refused_is_said_once(cudnn, library, caplog):
    library.refused = ("conv",)
    x, weight, y = image(2, 3, 5, 6), image(4, 3, 3, 3), image(2, 4, 5, 6)
    y[...] = 5
    with caplog.at_level(logging.WARNING):
        assert not any(run(cudnn, "convolution", (x, weight), (y,), ONE) for _ in range(3))
    assert np.all(y == 5) and [record.message for record in caplog.records] == [
        "cuDNN refuses convolution of float32[2, 3, 5, 6] float32[4, 3, 3, 3] float32[2, 4, 5, 6]: "
        "cudnnGraphNotSupportedError: no engine"
    ]


def test_float64_and_odd_addresses_are_refused(cudnn, caplog):
    x, weight, y = (image(*s, dtype="float64") for s in ((2, 3, 5, 6), (4, 3, 3, 3), (2, 4, 5, 6)))
    assert not run(cudnn, "convolution", (x, weight), (y,), ONE)
    x, weight, y = (a.astype("f4") for a in (x, weight, y))
    memory = np.zeros(x.size + 9, "f4")
    begin = next(k for k in range(1, 9) if (address(memory) + 4 * k) % 16)
    odd = memory[begin : begin + x.size].reshape(2, 5, 6, 3).transpose(0, 3, 1, 2)
    assert not run(cudnn, "convolution", (odd, weight), (y,), ONE)
    assert [r.message.split(": ", 1)[1] for r in caplog.records] == [
        "ValueError: there is no plan for float64",
        "ValueError: an array does not begin at a multiple of 16 bytes",
    ]


# -- the real one ------------------------------------------------------------------------------------------------------


def layout(*shape, dtype="float16", order=None):
    order = range(len(shape)) if order is None else order
    array = np.empty([shape[d] for d in order], np.uint8).transpose(np.argsort(order))
    return TensorLayout(shape, array.strides, dtype)


LAST = (0, 2, 3, 1)
X, WEIGHT, Y, BIAS = (
    layout(*s, order=LAST) for s in ((2, 16, 8, 9), (32, 16, 3, 3), (2, 32, 8, 9), (1, 32, 1, 1))
)
Q, K = (layout(2, 3, n, 64, order=(0, 2, 1, 3)) for n in (8, 16))
STATISTICS = layout(2, 3, 8, 1, dtype="float32")
GRAPHS = {
    "convolution": [((X, WEIGHT), (Y,), ONE), ((X, WEIGHT, BIAS), (Y,), ONE)],
    "convolution_gradient_x": [((Y, WEIGHT), (X,), ONE)],
    "convolution_gradient_weight": [((Y, X), (WEIGHT,), ONE)],
    "attention": [
        ((Q, k, k), (Q, STATISTICS), {"scale": 0.125, "mask": m})
        for k, m in ((K, ""), (Q, "first"))
    ],
    "attention_gradient": [
        ((Q, Q, STATISTICS, Q, k, k), (Q, k, k), {"scale": 0.125, "mask": m})
        for k, m in ((K, "last"), (Q, "first"))
    ],
}


class Frontend:
    """The module, whose graphs are those of its C++ side: they can be validated without a driver."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)

    def pygraph(self, **options):
        return self._module._pybind_module.backend_graph(**options)


@pytest.mark.parametrize("operation", GRAPHS)
def test_the_real_frontend_validates_every_graph(operation):
    module = pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed")
    try:
        module.backend_version()
    except RuntimeError:
        pytest.skip("libcudnn is not installed")
    for inputs, outputs, options in GRAPHS[operation]:
        request = CudnnRequest(operation, inputs, outputs, tuple(options.items()), False, True)
        describe(Frontend(module), request, sm_version=90).validate()


def test_the_real_frontend_has_what_is_called():
    import inspect

    module = pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed")
    graph = module.pygraph
    inspect.signature(graph.__init__).bind(
        None, io_data_type=0, intermediate_data_type=0, compute_data_type=0, handle=0
    )
    inspect.signature(graph.tensor).bind(None, dim=0, stride=0, data_type=0, uid=0, name="")
    inspect.signature(graph.execute).bind(None, {}, 0, handle=0)
    inspect.signature(module.set_stream).bind(handle=0, stream=0)
    assert all(callable(getattr(graph, name)) for name in fake_cudnn.ORDER)
    for name, members in vars(Library()).items():
        if name in ("data_type", "heur_mode", "numerical_note", "diagonal_alignment"):
            assert vars(members).keys() <= set(dir(getattr(module, name)))
