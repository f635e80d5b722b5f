"""Graphs that cannot be built or differentiated."""

from dataclasses import replace

import numpy as np
import pytest

import ops
from taskflow import (
    Graph,
    Kernel,
    MachineModel,
    Window,
    by_parts,
    data_parallel,
    differentiate,
    homes,
    lower,
    offload,
    update,
)
from tests import tiny
from tests.refusals import assert_refused, each_refused

TWO = MachineModel.uniform(2)


@pytest.fixture
def graph():
    graph = Graph()
    graph.input("x", (4, 3))
    graph.parameter("w", (3,))
    return graph


@pytest.fixture
def x(graph):
    return graph.regions["x"]


@pytest.fixture
def w(graph):
    return graph.regions["w"]


def launch(pattern, *inputs, **options):
    """A call of `launch` with the regions of those names."""

    def call(graph):
        regions = [graph.regions.get(name, name) for name in inputs]
        return graph.launch("op", pattern, regions, **{"kernel": tiny._copy} | options)

    return call


def lower_of_two(graph):
    return lower(graph, data_parallel(graph, TWO), TWO)


def add_to_a_maximum(graph, x):
    """Parts of a region combine in one way."""
    m = tiny.row_max(x, "m")
    graph.launch("op", "b c, b ->", [x, m], kernel=tiny._copy, adds=[m])
    lower_of_two(graph)


def update_beside_a_halo(graph, w):
    """Under other names of axes, as in a backward function, whose gradients come under those of the forward."""
    inputs, halo = [w, replace(w, axes=("z",))], {"k": Window("c", size=3, padding=1)}
    graph.launch("op", "c, k ->", inputs, kernel=tiny._copy, writes=[0], windows=halo)


def lower_a_region_of(shape):
    graph = Graph()
    graph.output("y", ops.tanh(graph.input("x", shape)))
    lower_of_two(graph)


def parts_of_the_gradient_of(name, parts):
    """Of a parameter of seven samples; and of one that is used without samples."""
    graph = Graph()
    h = ops.linear(graph.input("rows", (7, 3)), 3, name="fc")
    h = ops.add(h, ops.tanh(graph.parameter("shift", (3,))))
    loss = ops.mean_squared_error(h, graph.input("wanted", (7, 3)))
    return by_parts(list(differentiate(loss, [graph.regions[name]]).values()), parts)


def differentiated(backward):
    """A call that differentiates an operator with this backward function."""

    def call(graph, x):
        y = launch("b c -> b c", "x", backward=backward)(graph)
        differentiate(tiny.mean_square(y), [x])

    return call


def offload_in_training(names):
    def call(graph, x):
        tiny.sgd(tiny.mean_square(tiny.tanh(tiny.linear(x, 2))))
        offload(graph, names)

    return call


def offload_of_what_is_updated(graph):
    value = tiny.copy(graph.input("t", (4,), "int32"), "value")
    tiny.double(value)
    tiny.sgd(tiny.mean_square(tiny.embedding(value, 9, 2)))
    offload(graph, ["value"])


def output_twice(graph, x, w):
    graph.output("y", x)
    graph.output("y", x)
    graph.output("y", w)


DTYPES = (
    "kernels take bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, "
    "float64, complex64, complex128"
)
WIDE = str(np.dtype("longdouble"))
# A dtype, what it is called, and why it is refused.
NO_DTYPES = [
    *((name, name, DTYPES) for name in ("datetime64[s]", ">f4")),
    ("U5", "<U5", DTYPES),
    *([("longdouble", WIDE, DTYPES)] if WIDE != "float64" else []),
    ("float31", "float31", "which NumPy does not know"),
]
OTHER = Graph().input("z", (3,))
REFUSED = [
    (
        "a region of a name that is taken",
        lambda graph: graph.parameter("x", (2,)),
        "region 'x': the graph has a region of this name already",
    ),
    *(
        (
            f"a region of {dtype}",
            lambda graph, dtype=dtype: graph.input("y", (4,), dtype),
            f"region 'y': dtype is '{name}', {why}",
            TypeError,
        )
        for dtype, name, why in NO_DTYPES
    ),
    *(
        (
            f"an output of {dtype}",
            launch("c -> c", "w", dtype=dtype),
            f"region 'op': dtype is '{name}', {why}",
            TypeError,
        )
        for dtype, name, why in NO_DTYPES
    ),
    (
        "a pattern that is no text",
        launch(3, "x"),
        "'op': pattern is 3, a string is needed",
        TypeError,
    ),
    (
        "a shape in part",
        lambda graph: graph.input("y", (3.5,)),
        "region 'y': shape: 3.5 is given, whole numbers are needed",
        TypeError,
    ),
    (
        "a shape in words",
        lambda graph: graph.input("y", "ab"),
        "region 'y': shape: 'ab' is given, whole numbers are needed",
        TypeError,
    ),
    (
        "a name that is no text",
        lambda graph: graph.input(3, (4,)),
        "the name of a region or operator is 3, a string is needed",
        TypeError,
    ),
    (
        "first values in words",
        lambda graph: graph.parameter("y", (4,), "zeros"),
        "region 'y': init is 'zeros', a number or a distribution is needed",
        TypeError,
    ),
    *(
        (said, launch("b i -> b i", "x", **options), f"'op': {said}", TypeError)
        for options, said in (
            ({"sizes": 3}, "sizes is 3, a dictionary is needed"),
            ({"sizes": {"c": 1.5}}, "size of axis 'c': 1.5 is given, whole numbers are needed"),
            ({"sizes": {"c": True}}, "size of axis 'c': True is given, whole numbers are needed"),
            ({"windows": {"b": 3}}, "window 'b' is 3, a Window or an Image is needed"),
            ({"backward": 3}, "backward is 3, a function is needed"),
        )
    ),
    (
        "an extent that is not positive",
        lambda graph: graph.input("y", (4, 0)),
        "region 'y': extents are positive, not (4, 0)",
    ),
    (
        "an input that is no region",
        launch("b c, . -> b c", "x", 2),
        "'op': input 1 is a int, not a region",
        TypeError,
    ),
    (
        "a region of another graph",
        launch("c -> c", OTHER),
        "'op': input 0: region 'z' belongs to another graph",
    ),
    (
        "an output of another graph",
        lambda graph: graph.output("y", OTHER),
        "output 'y': region 'z' belongs to another graph",
    ),
    (
        "a region is no array",
        lambda x: x.sum(),
        "region 'x' has no attribute 'sum': a region is not an array; use ops.*",
        AttributeError,
    ),
    ("two outputs of one name", output_twice, "output 'y': is 'x' already"),
    (
        "an operator that is not there",
        lambda graph: graph.operator("fc"),
        "operator 'fc': the graph has no operator of this name",
    ),
    (
        "a dtype that cannot be known",
        launch("-> c", sizes={"c": 2}),
        "'op': an operator without inputs names the dtype of its output",
    ),
    (
        "too many dtypes",
        launch("c -> c", "w", dtype=["float32"] * 3),
        "'op': 3 dtypes were given for 1 outputs",
    ),
    (
        "an update of what is no input",
        lambda graph, x: launch("c ->", "w", writes=[x])(graph),
        "'op': writes names 'x', which is not an input",
    ),
    ("an update of input -1", launch("c ->", "w", writes=[-1]), "'op': writes names input -1 of 1"),
    ("an update of input 1", launch("c ->", "w", writes=[1]), "'op': writes names input 1 of 1"),
    (
        "an addition to what is no input",
        lambda graph, x: launch("c ->", "w", adds=[x])(graph),
        "'op': adds names 'x', which is not an input",
    ),
    ("an addition to input 1", launch("c ->", "w", adds=[1]), "'op': adds names input 1 of 1"),
    (
        "an addition and an update",
        launch("c ->", "w", writes=[0], adds=[0]),
        "'op': 'w' is named twice among what is updated in place",
    ),
    (
        "an addition in an output",
        launch("c -> add[c]", "w"),
        "pattern 'c -> add[c]': 'add' stands in an input, not in the output 'add[c]'",
    ),
    (
        "an addition to a maximum",
        add_to_a_maximum,
        "operator 'op': it adds to 'm', of which its maker takes the maximum",
    ),
    *(
        (
            f"bytes that 64 bits do not count, {power}",
            lambda shape=(2**power,) * 2: lower_a_region_of(shape),
            f"lower: all regions on 2 devices are {16 * 4**power} bytes, and bytes are counted up to 2^63 - 1; "
            f"the largest is 'x', {(2**power,) * 2} of float32",
        )
        for power in (31, 40)
    ),
    (
        "samples that cannot be cut",
        lambda: parts_of_the_gradient_of("fc.weight", 2),
        "by_parts: 'fc.dweight': 7 samples cannot be cut into 2 equal parts",
    ),
    (
        "a gradient that is no sum over samples",
        lambda: parts_of_the_gradient_of("shift", 7),
        "by_parts: 'tanh.dx', which 'tanh.dx' makes, is no sum over samples",
    ),
    (
        "parts of what is no gradient",
        lambda w: by_parts([w], 2),
        "by_parts: 'w' is no sum over samples",
    ),
    (
        "a kernel that accumulates on CPUs alone",
        lambda: Kernel(tiny._copy, accumulates=True, cuda=Kernel(tiny._copy)),
        f"kernel '{tiny._copy.__module__}._copy': it accumulates, so its variant for GPUs does, too",
    ),
    (
        "an update of what is read again",
        launch("c, c ->", "w", "w", writes=[0]),
        "'op': 'w' is updated in place and read again by another term",
    ),
    (
        "an update of what is read with a halo",
        update_beside_a_halo,
        "'op': 'w' is updated in place and read again by another term",
    ),
    (
        "an update through a window",
        launch("k -> c", "w", writes=[0], windows={"k": Window("c", size=2)}),
        "'op': 'w' is updated in place, so its term has no window",
    ),
    (
        "an update of what nobody reads",
        lambda w: update("up", w, [], kernel=tiny._double),
        "update 'up': no operator reads 'w'",
    ),
    (
        "a loss that is no scalar",
        lambda x: differentiate(tiny.tanh(x), [x]),
        "differentiate: the loss 'tanh' is a scalar, not of shape (4, 3)",
    ),
    (
        "a loss that no operator makes",
        lambda graph, x: differentiate(graph.input("loss", ()), [x]),
        "differentiate: no operator makes the loss 'loss'",
    ),
    (
        "a loss that does not depend on the region",
        lambda x, w: differentiate(tiny.mean_square(x), [w]),
        "differentiate: 'loss' does not depend on 'w'",
    ),
    (
        "an operator without backward",
        differentiated(None),
        "differentiate: operator 'op' has no backward",
    ),
    (
        "a backward of too many gradients",
        differentiated(lambda op, gy: (gy, gy)),
        "differentiate: backward of 'op' gives 2 gradients for 1 inputs",
    ),
    (
        "a backward that gives no regions",
        differentiated(lambda op, gy: np.ones((4, 3))),
        "differentiate: backward of 'op' gives a ndarray for 'x', a region or None is needed",
        TypeError,
    ),
    (
        "a gradient of another shape",
        differentiated(lambda op, gy: tiny.column_sum(gy)),
        "differentiate: backward of 'op' gives a gradient of shape (3,) for 'x', which is (4, 3)",
    ),
    (
        "homes of an input",
        lambda graph: homes(graph, ["w", "x"]),
        "homes: the graph has no parameter 'x'",
    ),
    (
        "homes of what is not there",
        lambda graph: homes(graph, "fc"),
        "homes: the graph has no parameter 'fc'",
    ),
    (
        "offload of what is not there",
        offload_in_training(["tanh", "no"]),
        "operator 'no': the graph has no operator of this name",
    ),
    (
        "offload of a backward operator",
        offload_in_training("tanh.dx"),
        "offload: 'tanh.dx' is a backward operator",
    ),
    (
        "offload of what is updated in place",
        offload_of_what_is_updated,
        "offload: 'value' makes 'value', which 'double' updates in place",
    ),
]
test_refused = each_refused(REFUSED)


@pytest.mark.parametrize("flops", [-1, float("nan"), float("inf"), "many", len])
def test_flops_that_are_no_cost(graph, flops):
    """And nothing of the operator is left."""
    message = f"'op': flops is a number from 0, not {flops!r}"
    assert_refused(message, lambda: launch("b c -> b c", "x", flops=flops)(graph))
    assert not graph.operators and set(graph.regions) == {"x", "w"}


def test_no_region_of_a_dtype_that_is_refused_is_left(graph):
    for dtype, *_ in NO_DTYPES:
        for call in (graph.input, lambda name, _, dtype: launch("c -> c", "w", dtype=dtype)(graph)):
            with pytest.raises(TypeError):
                call("y", (4,), dtype)
    assert set(graph.regions) == {"x", "w"}
