"""Backward functions read their operator alone, so a graph may be transformed first; and no product mixes dtypes."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import ops
import taskflow
from ops.torch.compare import evaluate
from taskflow import Context, Graph, LogicalRegion, differentiate, replace_regions
from taskflow.graph.rebuild import rebuild
from tests.sampling import IS_THOROUGH

from .cases import CASES, Case
from .interpreter import first_values
from .test_operators import DIFFERENTIABLE


def gradients_of(graph: Graph, output: LogicalRegion) -> list[str]:
    """All operators, once the sum of the outputs, each times a number, is differentiated."""
    sources = [r for r in (*graph.inputs, *graph.parameters) if r.is_floating]
    probe = graph.input("probe", output.shape, output.dtype)
    differentiate(ops.sum_to(ops.multiply(output, probe), (), name="loss"), sources)
    return [
        f"{op} of {', '.join(f'{r.name} {r.dtype}' for r in op.args)}" for op in graph.operators
    ]


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
def test_a_graph_made_of_another_one_has_the_same_gradients(case: Case) -> None:
    graph, output = case.build()
    other = rebuild(graph, graph.operators)
    found = gradients_of(other, other.regions[output.name])
    assert found == gradients_of(graph, output)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_inputs_of_half_size_are_computed_with(dtype: str) -> None:
    """Of every operator one case, and its gradients: kernels that do not take such arrays get others."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    first = {case.name.split()[0]: case for case in reversed(CASES)}
    assert len(first) > 50
    cases = list(first.values())  # half of them in each dtype, all by HYPOTHESIS_PROFILE=thorough
    for case in cases if IS_THOROUGH else cases[dtype == "bfloat16" :: 2]:
        graph, output = case.build()
        graph = replace_regions(
            graph,
            {r.name: replace(r, dtype=dtype) for r in graph.regions.values() if r.is_floating},
        )
        if case.is_differentiable:
            gradients_of(graph, graph.regions[output.name])
        values = evaluate(graph, first_values(graph, high=case.high))
        assert all(values[r.name].dtype == r.dtype for op in graph.operators for r in op.outputs), (
            case.name
        )


class _Numpy:
    """NumPy whose products refuse operands of two dtypes, as cuBLAS does."""

    count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(np, name)

    def matmul(self, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        assert x.dtype == y.dtype, f"a product of {x.dtype} and {y.dtype}"
        assert out.dtype in (x.dtype, np.float32 if x.itemsize == 2 else x.dtype), (
            f"a product of {x.dtype} into {out.dtype}"
        )
        _Numpy.count += 1
        wide = np.result_type(x.dtype, "float32")
        np.copyto(out, np.matmul(x.astype(wide), y.astype(wide)), casting="unsafe")


class _Gpu(Context):
    """What kernels see of a GPU that has none of its kernels."""

    xp = _Numpy()


PRODUCTS = ("matmul", "einsum", "bmm", "linear", "multihead", "attention", "expert", "scaled")


def in_half(case: Case, dtype: str) -> Graph:
    """The case in float32, its gradients in half."""
    graph, output = case.build()
    narrow = {r.name: replace(r, dtype="float32") for r in graph.regions.values() if r.is_floating}
    graph = taskflow.precision(replace_regions(graph, narrow), dtype, None)
    gradients_of(graph, graph.regions[output.name])
    return graph


def run_products(graph: Graph) -> int:
    """Run all operators whose kernels take half arrays on a GPU as they would there; how many products they make."""
    values, before = first_values(graph), _Numpy.count
    for op in graph.operators:
        values.update({r.name: np.ones(r.shape, r.dtype) for r in op.outputs})
        arrays = [values.setdefault(r.name, np.ones(r.shape, r.dtype)) for r in op.args]
        if op.kernel.takes_mixed_on_cuda:
            context = _Gpu([r.rect for r in op.args], {a: (0, n) for a, n in op.extents.items()})
            op.kernel(context, *arrays)
    return _Numpy.count - before


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "case", [c for c in DIFFERENTIABLE if c.name.startswith(PRODUCTS)], ids=str
)
def test_no_product_mixes_dtypes(case: Case, dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    run_products(in_half(case, dtype))


@pytest.mark.parametrize("equation", ["bi,bi->bi", "bi,bj->bij", "bi,bi->"])
def test_an_einsum_that_the_policy_leaves_with_two_dtypes(equation: str) -> None:
    """Nothing is summed, or the result is a number: so its operands stay as they are."""

    def build() -> tuple[Graph, LogicalRegion]:
        graph = Graph()
        x, w = graph.input("x", (3, 4), "float64"), graph.parameter("w", (3, 4), 0.5, "float64")
        return graph, ops.einsum(equation, ops.relu(x), w)

    graph = in_half(SimpleNamespace(build=build), "float16")  # type: ignore[arg-type]
    assert {r.dtype for r in graph.operator("einsum").inputs} == {"float16", "float32"}
    assert run_products(graph) >= 3


def test_a_product_of_two_dtypes_is_that_of_the_wider() -> None:
    graph, random = Graph(), np.random.default_rng(0)
    x, y = graph.input("x", (3, 4), "float32"), graph.input("y", (4, 2), "float64")
    op = ops.matmul(x, y).graph.operators[0]
    a, b, z = random.random((3, 4), np.float32), random.random((4, 2)), np.zeros((3, 2), np.float32)
    op.kernel(
        _Gpu([r.rect for r in op.args], {axis: (0, n) for axis, n in op.extents.items()}), a, b, z
    )
    np.testing.assert_array_equal(z, (a.astype(np.float64) @ b).astype(np.float32))
