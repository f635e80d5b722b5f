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
from tests.refusals import assert_refused


@pytest.fixture
def graph():
    graph = Graph()
    graph.input("x", (4, 3))
    graph.parameter("w", (3,))
    return graph


def launch(graph, pattern, inputs, **options):
    regions = [graph.regions.get(name, name) for name in inputs]
    return lambda: graph.launch("op", pattern, regions, **{"kernel": tiny._copy} | options)


def test_a_region_of_a_name_that_is_taken(graph):
    assert_refused(
        "region 'x': the graph has a region of this name already",
        lambda: graph.parameter("x", (2,)),
    )


@pytest.mark.parametrize("dtype", ["longdouble", "U5", "datetime64[s]", ">f4", "float31"])
def test_a_dtype_that_no_kernel_takes(graph, dtype):
    with pytest.raises(
        TypeError,
        match=r"^region 'y': dtype is '.*', (kernels take bool, int8, .*|which NumPy does .*)$",
    ):
        graph.input("y", (4,), dtype)
    with pytest.raises(TypeError, match=r"^region 'op': dtype is"):
        launch(graph, "c -> c", ["w"], dtype=dtype)()
    assert set(graph.regions) == {"x", "w"}


def test_a_pattern_that_is_no_text(graph):
    assert_refused("'op': pattern is 3, a string is needed", launch(graph, 3, ["x"]), TypeError)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda g: g.input("y", (3.5,)),
            "region 'y': shape: 3.5 is given, whole numbers are needed",
        ),
        (
            lambda g: g.input("y", "ab"),
            "region 'y': shape: 'ab' is given, whole numbers are needed",
        ),
        (lambda g: g.input(3, (4,)), "the name of a region or operator is 3, a string is needed"),
        (
            lambda g: g.parameter("y", (4,), "zeros"),
            "region 'y': init is 'zeros', a number or a distribution is needed",
        ),
    ],
)
def test_a_region_of_no_shape_name_or_value(graph, make, message):
    assert_refused(message, lambda: make(graph), TypeError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": 3}, "'op': sizes is 3, a dictionary is needed"),
        ({"sizes": {"c": 1.5}}, "'op': size of axis 'c': 1.5 is given, whole numbers are needed"),
        ({"sizes": {"c": True}}, "'op': size of axis 'c': True is given, whole numbers are needed"),
        ({"windows": {"b": 3}}, "'op': window 'b' is 3, a Window is needed"),
        ({"backward": 3}, "'op': backward is 3, a function is needed"),
    ],
)
def test_arguments_of_another_type(graph, options, message):
    assert_refused(message, launch(graph, "b i -> b i", ["x"], **options), TypeError)


def test_an_extent_that_is_not_positive(graph):
    assert_refused("region 'y': extents are positive, not (4, 0)", lambda: graph.input("y", (4, 0)))


def test_an_input_that_is_no_region(graph):
    message = "'op': input 1 is a int, not a region"
    assert_refused(message, launch(graph, "b c, . -> b c", ["x", 2]), TypeError)


@pytest.mark.parametrize("flops", [-1, float("nan"), float("inf"), "many", len])
def test_flops_that_are_no_cost(graph, flops):
    message = f"'op': flops is a number from 0, not {flops!r}"
    assert_refused(message, launch(graph, "b c -> b c", ["x"], flops=flops))
    assert not graph.operators and set(graph.regions) == {"x", "w"}


def test_a_region_of_another_graph(graph):
    other = Graph().input("z", (3,))
    message = "'op': input 0: region 'z' belongs to another graph"
    assert_refused(message, lambda: graph.launch("op", "c -> c", [other], kernel=tiny._copy))
    assert_refused(
        "output 'y': region 'z' belongs to another graph", lambda: graph.output("y", other)
    )


def test_a_region_is_no_array(graph):
    message = "region 'x' has no attribute 'sum': a region is not an array; use ops.*"
    assert_refused(message, lambda: graph.regions["x"].sum(), AttributeError)


def test_two_outputs_of_one_name(graph):
    graph.output("y", graph.regions["x"])
    graph.output("y", graph.regions["x"])
    assert_refused("output 'y': is 'x' already", lambda: graph.output("y", graph.regions["w"]))


def test_an_operator_that_is_not_there(graph):
    assert_refused(
        "operator 'fc': the graph has no operator of this name", lambda: graph.operator("fc")
    )


def test_dtypes_that_cannot_be_known(graph):
    assert_refused(
        "'op': an operator without inputs names the dtype of its output",
        launch(graph, "-> c", [], sizes={"c": 2}),
    )
    assert_refused(
        "'op': 3 dtypes were given for 1 outputs",
        launch(graph, "c -> c", ["w"], dtype=["float32"] * 3),
    )


def test_an_update_in_place_of_what_is_no_input(graph):
    message = "'op': writes names 'x', which is not an input"
    assert_refused(message, launch(graph, "c ->", ["w"], writes=[graph.regions["x"]]))
    for k in (-1, 1):
        assert_refused(
            f"'op': writes names input {k} of 1", launch(graph, "c ->", ["w"], writes=[k])
        )


def test_an_addition_to_what_is_no_input(graph):
    message = "'op': adds names 'x', which is not an input"
    assert_refused(message, launch(graph, "c ->", ["w"], adds=[graph.regions["x"]]))
    assert_refused("'op': adds names input 1 of 1", launch(graph, "c ->", ["w"], adds=[1]))
    message = "'op': 'w' is named twice among what is updated in place"
    assert_refused(message, launch(graph, "c ->", ["w"], writes=[0], adds=[0]))
    message = "pattern 'c -> add[c]': 'add' stands in an input, not in the output 'add[c]'"
    assert_refused(message, launch(graph, "c -> add[c]", ["w"]))


def test_an_addition_to_a_maximum(graph):
    """Parts of a region combine in one way."""
    m = tiny.row_max(graph.regions["x"], "m")
    graph.launch("op", "b c, b ->", [graph.regions["x"], m], kernel=tiny._copy, adds=[m])
    machine = MachineModel.uniform(2)
    message = "operator 'op': it adds to 'm', of which its maker takes the maximum"
    assert_refused(message, lambda: lower(graph, data_parallel(graph, machine), machine))


@pytest.mark.parametrize("shape, total", [((2**31, 2**31), 2**66), ((2**40, 2**40), 2**84)])
def test_bytes_that_64_bits_do_not_count(shape, total):
    graph, machine = Graph(), MachineModel.uniform(2)
    graph.output("y", ops.tanh(graph.input("x", shape)))
    message = (
        f"lower: all regions on 2 devices are {total} bytes, and bytes are counted up to 2^63 - 1; "
        f"the largest is 'x', {shape} of float32"
    )
    assert_refused(message, lambda: lower(graph, data_parallel(graph, machine), machine))


def test_gradients_that_are_no_sums_over_samples(graph):
    """Of a parameter that is used without samples; and of seven samples in two parts."""
    h = ops.linear(graph.input("rows", (7, 3)), 3, name="fc")
    h = ops.add(h, ops.tanh(graph.parameter("shift", (3,))))
    loss = ops.mean_squared_error(h, graph.input("wanted", (7, 3)))
    found = gradients_of(loss, "fc.weight")
    message = "by_parts: 'fc.dweight': 7 samples cannot be cut into 2 equal parts"
    assert_refused(message, lambda: by_parts(found, 2))
    found = gradients_of(loss, "shift")
    message = "by_parts: 'tanh.dx', which 'tanh.dx' makes, is no sum over samples"
    assert_refused(message, lambda: by_parts(found, 7))
    assert_refused(
        "by_parts: 'w' is no sum over samples", lambda: by_parts([graph.regions["w"]], 2)
    )


def gradients_of(loss, name):
    return list(differentiate(loss, [loss.graph.regions[name]]).values())


def test_a_kernel_that_accumulates_on_cpus_alone():
    message = (
        f"kernel '{tiny._copy.__module__}._copy': it accumulates, so its variant for GPUs does, too"
    )
    assert_refused(message, lambda: Kernel(tiny._copy, accumulates=True, cuda=Kernel(tiny._copy)))


def test_an_update_in_place_of_what_is_read_again(graph):
    message = "'op': 'w' is updated in place and read again by another term"
    assert_refused(message, launch(graph, "c, c ->", ["w", "w"], writes=[0]))


def test_an_update_in_place_of_what_is_read_with_a_halo_under_other_axis_names(graph):
    """As in a backward function, whose gradients come under the names of the forward's axes."""
    w = graph.regions["w"]
    inputs, halo = [w, replace(w, axes=("z",))], {"k": Window("c", size=3, padding=1)}
    message = "'op': 'w' is updated in place and read again by another term"
    assert_refused(
        message,
        lambda: graph.launch("op", "c, k ->", inputs, kernel=tiny._copy, writes=[0], windows=halo),
    )


def test_an_update_in_place_through_a_window(graph):
    message = "'op': 'w' is updated in place, so its term has no window"
    assert_refused(
        message, launch(graph, "k -> c", ["w"], writes=[0], windows={"k": Window("c", size=2)})
    )


def test_an_update_of_what_nobody_reads(graph):
    message = "update 'up': no operator reads 'w'"
    assert_refused(message, lambda: update("up", graph.regions["w"], [], kernel=tiny._double))


# -- gradients ---------------------------------------------------------------------------------------------------------


def test_a_loss_that_is_no_scalar(graph):
    y = tiny.tanh(graph.regions["x"])
    message = "differentiate: the loss 'tanh' is a scalar, not of shape (4, 3)"
    assert_refused(message, lambda: differentiate(y, [graph.regions["x"]]))


def test_a_loss_that_no_operator_makes(graph):
    loss = graph.input("loss", ())
    message = "differentiate: no operator makes the loss 'loss'"
    assert_refused(message, lambda: differentiate(loss, [graph.regions["x"]]))


def test_a_loss_that_does_not_depend_on_the_region(graph):
    loss = tiny.mean_square(graph.regions["x"])
    message = "differentiate: 'loss' does not depend on 'w'"
    assert_refused(message, lambda: differentiate(loss, [graph.regions["w"]]))


def test_an_operator_without_backward(graph):
    loss = tiny.mean_square(
        graph.launch("op", "b c -> b c", [graph.regions["x"]], kernel=tiny._copy)
    )
    message = "differentiate: operator 'op' has no backward"
    assert_refused(message, lambda: differentiate(loss, [graph.regions["x"]]))


def test_a_backward_of_too_many_gradients(graph):
    backward = lambda op, gy: (gy, gy)
    loss = tiny.mean_square(launch(graph, "b c -> b c", ["x"], backward=backward)())
    message = "differentiate: backward of 'op' gives 2 gradients for 1 inputs"
    assert_refused(message, lambda: differentiate(loss, [graph.regions["x"]]))


def test_a_backward_that_gives_no_regions(graph):
    loss = tiny.mean_square(
        launch(graph, "b c -> b c", ["x"], backward=lambda op, gy: np.ones((4, 3)))()
    )
    message = "differentiate: backward of 'op' gives a ndarray for 'x', a region or None is needed"
    assert_refused(message, lambda: differentiate(loss, [graph.regions["x"]]), TypeError)


def test_a_gradient_of_another_shape(graph):
    backward = lambda op, gy: tiny.column_sum(gy)
    loss = tiny.mean_square(launch(graph, "b c -> b c", ["x"], backward=backward)())
    message = (
        "differentiate: backward of 'op' gives a gradient of shape (3,) for 'x', which is (4, 3)"
    )
    assert_refused(message, lambda: differentiate(loss, [graph.regions["x"]]))


def test_homes_of_what_is_no_parameter(graph):
    message = "homes: the graph has no parameter 'x'"
    assert_refused(message, lambda: homes(graph, ["w", "x"]))
    assert_refused("homes: the graph has no parameter 'fc'", lambda: homes(graph, "fc"))


def test_offload_of_what_is_no_forward_operator(graph):
    tiny.sgd(tiny.mean_square(tiny.tanh(tiny.linear(graph.regions["x"], 2))))
    assert_refused(
        "operator 'no': the graph has no operator of this name",
        lambda: offload(graph, ["tanh", "no"]),
    )
    assert_refused("offload: 'tanh.dx' is a backward operator", lambda: offload(graph, "tanh.dx"))


def test_offload_of_what_is_updated_in_place(graph):
    value = tiny.copy(graph.input("t", (4,), "int32"), "value")
    tiny.double(value)
    tiny.sgd(tiny.mean_square(tiny.embedding(value, 9, 2)))
    message = "offload: 'value' makes 'value', which 'double' updates in place"
    assert_refused(message, lambda: offload(graph, ["value"]))
