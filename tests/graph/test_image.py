"""Images: an interval of an axis reads by a table; work is what is read; constants are there without being fed."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ops
import taskflow
from taskflow import Graph, Image, MachineModel, ParallelConfig, checkpoint
from tests import tiny


def tables(generator, points, extent, is_ascending):
    """A table with points that read nothing; both ends ascend, or anything goes."""
    count = generator.integers(0, extent // 2 + 1, points) * (generator.random(points) < 0.7)
    low = generator.integers(0, extent - count + 1)
    high = low + count
    return (np.sort(low), np.sort(high)) if is_ascending else (low, high)


@given(st.integers(0, 999), st.integers(1, 40), st.integers(2, 30), st.booleans())
def test_an_interval_reads_the_smallest_that_holds_what_its_points_read(
    seed, points, extent, is_ascending
):
    low, high = tables(np.random.default_rng(seed), points, extent, is_ascending)
    image = Image("v", low, high)
    for a in range(points):
        for b in range(a, points + 1):
            reads = [k for k in range(a, b) if high[k] > low[k]]
            hull = (min(low[reads]), max(high[reads])) if reads else (0, 0)
            assert image.image((a, b), extent) == hull
            assert image.work((a, b)) == (high - low)[a:b].sum()
    assert image == Image("v", low, high) != Image("w", low, high)
    assert image != Image("v", low, high + 1) and str(image) == str(Image("v", low, high))


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_the_work_of_a_device_is_what_its_points_read(parts):
    for seed in range(20):
        generator = np.random.default_rng(seed)
        low, high = tables(generator, 50, 70, seed % 2)
        graph = Graph()
        x, y = graph.input("x", (70, 4), "float64"), graph.input("y", (50, 4), "float64")
        options = {"kernel": tiny._copy, "windows": {"e": Image("v", low, high)}}
        graph.launch("op", "e f, v f -> v f", [x, y], flops={"e": 3.0}, **options)
        machine = MachineModel.uniform(2 * parts)
        config = ParallelConfig({"v": parts, "f": 2})
        rows = taskflow.lower(graph, taskflow.Strategy({"op": config}), machine)
        is_point = rows.kind == taskflow.Kind.POINT
        bounds = config.bounds("v", 50)
        exact = [3.0 * 2 * (high - low)[a:b].sum() for a, b in pairwise(bounds)]
        np.testing.assert_array_equal(rows.flops[is_point], np.repeat(exact, 2))
        assert graph.operator("op").total_flops == sum(exact) * 2


def test_the_work_of_causal_attention_is_that_of_the_keys_seen_and_all_keys_are_gathered():
    graph = Graph()
    q, k, v = (graph.parameter(name, (1, 8, 2, 3), 1.0, "float64") for name in "qkv")
    y = ops.fused_attention(q, k, v, is_causal=True, name="attention")
    taskflow.differentiate(ops.mean(y), [q, k, v])
    machine = MachineModel.uniform(4)
    strategy = taskflow.single_device(graph, machine)
    axis = graph.operator("attention").bound.terms[0].dims[1][0]
    strategy["attention"] = ParallelConfig({axis: 4})
    rows = taskflow.lower(graph, strategy, machine)
    seen = np.array([1 + 2, 3 + 4, 5 + 6, 7 + 8]) * 2  # of all heads
    for name, products in (("attention", 2), ("attention.dx", 5)):
        points = [row for row in range(len(rows)) if rows.name(row) == name]
        work = rows.flops[[row for row in points if rows.kind[row] == taskflow.Kind.POINT]]
        np.testing.assert_allclose(work, 2 * products * seen * 3)
    windows = graph.operator("attention").windows
    assert windows["t"].image((0, 1), 8) == windows["t"].image((5, 8), 8) == (0, 8)
    assert windows["t"] != Image(axis, windows["t"].low, windows["t"].high)


def with_constant(values):
    graph = Graph()
    x = graph.input("x", (6, 2), "float64")
    c = graph.constant("c", values, "float64")
    weight = tiny.parameter(graph, "weight", (2,))
    graph.output("y", tiny.add_row(tiny.add(tiny.stencil(c), x), weight))
    return graph


def test_a_constant_is_there_wherever_it_is_read_and_in_a_checkpoint_by_digest(tmp_path):
    values = np.arange(12).reshape(6, 2)
    graph, machine = with_constant(values), MachineModel.uniform(3)
    rows = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
    moved = (rows.kind == taskflow.Kind.COPY) | (rows.kind == taskflow.Kind.COLLECTIVE)
    assert not (moved & (rows.region == [r.name for r in rows.regions].index("c"))).any()
    with taskflow.Executor(rows) as step:
        np.testing.assert_array_equal(step.read("c"), values)
        assert step.persistent == ["weight"]
        path = checkpoint.save(step, tmp_path)
        assert list(checkpoint.load(step, path).constants) == ["c"]
        with pytest.raises(ValueError, match="'c': it is a constant, which nothing updates"):
            step.write("c", values)
        shared = taskflow.lower(other := with_constant(values + 1), whole(other), machine)
        with taskflow.Executor(shared, share=step) as evaluation:
            np.testing.assert_array_equal(evaluation.read("c"), values + 1)
    with (
        taskflow.Executor(shared) as step,
        pytest.raises(ValueError, match="other values are in the constant 'c'"),
    ):
        checkpoint.load(step, path)


def whole(graph):
    return taskflow.single_device(graph, MachineModel.uniform(1))
