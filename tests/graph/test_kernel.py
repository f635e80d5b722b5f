"""Kernels: what is refused, what binding and variants give, and names that are equal from run to run."""

from functools import partial

import numpy as np
import pytest

from taskflow import Array, Context, Graph, Kernel, Pointwise


def double(ctx: Context, x: Array, y: Array, factor: float = 2.0) -> None:
    ctx.xp.multiply(x, factor, out=y)


def make_call(ctx: Context, points: object, **options: object) -> object:
    return lambda: None


@pytest.mark.parametrize(
    "fields, error, message",
    [
        ({"function": 3}, TypeError, "kernel: a function is needed, not a int"),
        ({"function": Kernel(double)}, TypeError, "kernel: a function is needed, not a Kernel"),
        (
            {"function": partial(Kernel(double), factor=3)},
            TypeError,
            f"kernel '{__name__}.double': `bind` gives a Kernel its options, not `partial`",
        ),
        (
            {"cuda": double},
            TypeError,
            f"kernel '{__name__}.double': cuda is a function, not a Kernel",
        ),
        (
            {"expression": "x"},
            TypeError,
            f"kernel '{__name__}.double': expression is a str, not a Pointwise",
        ),
        (
            {"float32_outputs": 1},
            TypeError,
            f"kernel '{__name__}.double': float32_outputs is a int, not a tuple",
        ),
        (
            {"cuda": Kernel(double), "takes_mixed_on_cuda": True},
            ValueError,
            f"kernel '{__name__}.double': its variant for GPUs says itself whether it takes half precision",
        ),
    ],
)
def test_what_is_refused(fields, error, message):
    with pytest.raises(error) as caught:
        Kernel(**{"function": double, **fields})
    assert str(caught.value) == message


def test_what_launch_refuses():
    graph = Graph()
    x = graph.input("x", (4,))
    with pytest.raises(TypeError) as caught:
        graph.launch("y", "b -> b", [x], kernel="double")
    assert str(caught.value) == "'y': kernel is a str, a function or a taskflow.Kernel is needed"
    with pytest.raises(ValueError) as refused:
        graph.launch("y", "b -> b", [x], kernel=Kernel(double, float32_outputs=(1,)))
    assert str(refused.value) == "'y': float32_outputs of its kernel are (1,), it has 1 outputs"


def test_options_are_bound_and_named():
    kernel = Kernel(double, is_captured=True).bind(factor=3.0)
    assert kernel.is_captured
    assert (
        kernel.name
        == f"{__name__}.double((), [('factor', 3.0)])"
        == Kernel(partial(double, factor=3.0)).name
    )
    around = kernel.bind(kernel=kernel, function=double)
    assert (
        f"('kernel', \"{kernel.name}\")" in around.name
        and f"('function', '{__name__}.double')" in around.name
    )
    x, y = np.arange(3.0), np.zeros(3)
    kernel(Context([], {}), x, y)
    np.testing.assert_array_equal(y, 3 * x)


def test_a_variant_for_gpus_gets_the_options_and_says_what_it_takes():
    variant = Kernel(lambda ctx, x, y, factor: None, takes_half=True)
    kernel = Kernel(double, cuda=variant).bind(factor=3.0)
    assert kernel.on_cuda == variant.bind(factor=3.0)
    assert Kernel(double).on_cuda == Kernel(double)
    assert Kernel(double, takes_mixed_on_cuda=True).on_cuda.takes_mixed


def test_an_older_name_of_a_field_is_taken():
    with pytest.warns(FutureWarning, match="use takes_mixed_on_cuda="):
        assert Kernel(double, takes_half_on_cuda=True) == Kernel(double, takes_mixed_on_cuda=True)


def test_points_run_together_if_the_variant_can():
    variant = Kernel(double, together=make_call)
    one, other = Kernel(double, cuda=variant), Kernel(double)
    assert one.for_points is not None and other.for_points is None


def test_kernels_of_equal_fields_are_equal():
    expression = Pointwise("2 * x", ("x",), {"n": 1.0})
    assert Kernel(double, expression=expression).bind(factor=1) == Kernel(
        double, expression=expression
    ).bind(factor=1)
    assert hash(Kernel(double).bind(factor=1)) == hash(Kernel(double).bind(factor=1))
