"""Operators in the reference interpreter: every split against none; two of one name.

Values and gradients are those of `test_check_operator`, by the real executor.
"""

from collections.abc import Sequence

import numpy as np
import pytest

import ops
from taskflow import Graph, LogicalRegion, ParallelConfig, differentiate
from tests.sampling import IS_THOROUGH

from . import cases
from .cases import CASES, Case
from .interpreter import Values, first_values, run
from .test_check_operator import degrees_of

DIFFERENTIABLE = [c for c in CASES if c.is_differentiable]


def with_loss(case: Case) -> Graph:
    """The graph of a case with the loss sum(output * probe), and gradients of all that is differentiable."""
    graph, output = case.build()
    sources = [r for r in (*graph.inputs, *graph.parameters) if r.dtype == "float64"]
    loss = ops.sum_to(
        ops.multiply(output, graph.input("probe", output.shape, "float64")), (), name="loss"
    )
    differentiate(loss, sources)
    return graph


def slopes(
    graph: Graph, values: Values, loss: str, name: str, count: int, step: float = 1e-5
) -> np.ndarray:
    """Central differences of the loss by every element of `name`; only the first `count` operators are run."""
    forward = Graph()
    forward.operators = graph.operators[:count]
    result = np.empty_like(values[name])
    for index in np.ndindex(result.shape):
        ends = []
        for sign in (1, -1):
            moved = values[name].copy()
            moved[index] += sign * step
            ends.append(run(forward, {**values, name: moved})[loss])
        result[index] = (ends[0] - ends[1]) / (2 * step)
    return result


def splits(case: Case) -> list[tuple[str, str, int]]:
    graph, _ = case.build()
    leaders = [op for op in graph.operators if op.follows is None]
    return [
        (op.name, axis, degree)
        for op in leaders
        for axis in op.split_axes
        for degree in ((2, 3, 4) if IS_THOROUGH else (2, 3))
        if degree <= op.extents[axis]
    ]


# One in three of the cases that `test_check_operator` does not split.
UNSPLIT = [case for case in CASES if not degrees_of(case)][::3]


@pytest.mark.parametrize(
    "case", [c for c in CASES if "wide" not in c.name] if IS_THOROUGH else UNSPLIT, ids=str
)
def test_splits(case: Case) -> None:
    """Of degree 3 (thorough: 4, too), and halves of variants."""
    graph = with_loss(case) if case.is_differentiable else case.build()[0]
    values = first_values(graph, high=case.high)
    unsplit = run(graph, values)
    assert (
        splits(case)
        or all(n == 1 for r in graph.regions.values() for n in r.shape)
        or case.name in WHOLE
    )
    for name, axis, degree in [split for split in splits(case) if split[2] > 2 or case.is_variant]:
        try:
            split = run(graph, values, {name: ParallelConfig({axis: degree})})
        except ValueError as error:  # the inner axis of a group
            assert "contiguous" in str(error), (name, axis, degree)
            continue
        for region in unsplit:
            np.testing.assert_allclose(
                split[region],
                unsplit[region],
                rtol=1e-12,
                atol=1e-12,
                err_msg=f"{region}, {name} split {axis}:{degree}",
            )


class _OneGraph(Graph):
    """All cases that are built get this graph, and the inputs of the first."""

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> LogicalRegion:
        return self.regions[name] if name in self.regions else super().input(name, shape, dtype)


def test_two_of_one_name_in_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    for case in [c for c in CASES if c.build()[0].parameters]:
        with monkeypatch.context() as patch:
            assert_two_of_one_name(case, patch)


def assert_two_of_one_name(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _OneGraph()
    monkeypatch.setattr(cases, "Graph", lambda: graph)
    (_, one), kept = case.build(), [r.name for r in graph.regions.values() if r.is_persistent]
    _, other = case.build()
    values = first_values(graph, high=case.high)
    added = [r.name for r in graph.regions.values() if r.is_persistent and r.name not in kept]
    results = run(graph, values | {new: values[old] for new, old in zip(added, kept, strict=True)})
    assert other.name != one.name
    np.testing.assert_array_equal(results[other.name], results[one.name], err_msg=case.name)


WHOLE = {"layer_norm of rank 1", "softmax_cross_entropy of one row"}
