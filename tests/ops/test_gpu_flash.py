"""Attention that keeps no scores: its CUDA kernels as C++ give what NumPy gives, in every precision, and compile."""

import numpy as np
import pytest

from ops.cuda import flash
from ops.cuda.flash import flash_source
from taskflow import MachineModel, ParallelConfig, Rect, single_device
from tests import laws, shim
from tests.ops.launches import Launches
from tests.ops.test_gpu_attention import heads
from tests.ops.test_gpu_cudnn import on_numpy, run
from tests.sampling import crossed

PRECISION = {"float64": 1e-12, "float32": 1e-6, "float16": 4e-3, "bfloat16": 3e-2, "tf32": 2e-3}
SHAPES = [  # queries, keys, features of a head, and of its values: of one tile, of several, with rests of all kinds
    (6, 6, 4, 4),
    (70, 70, 16, 16),
    (33, 130, 16, 8),
    (130, 33, 8, 24),
    (40, 40, 80, 80),
    (2, 65, 5, 3),
    (20, 40, 128, 128),
]
MASKS = [
    (False, 0),
    (True, 0),
    (True, 21),
]  # whether it is causal, and the number of the first query

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def context(first, uses_tf32=False):
    """What kernels are told of queries that begin at number `first`, and of keys that begin at 0."""
    queries, keys = Rect((0, first, 0, 0), (1, first + 1, 1, 1)), Rect((0, 0, 0, 0), (1, 1, 1, 1))
    return Launches([queries, keys, keys, queries, keys], uses_tf32)


def reference(q, k, v, g, scale, first, is_causal):
    """Attention in float64 by the book: result, statistics and the three gradients, of (batch, points, heads, .)."""
    q, k, v, g = (np.asarray(a, np.float64).swapaxes(1, 2) for a in (q, k, v, g))
    scores = q @ k.swapaxes(2, 3) * scale
    if is_causal:
        hidden = np.arange(k.shape[2]) > first + np.arange(q.shape[2])[:, None]
        scores = np.where(hidden, -np.inf, scores)
    statistics = np.log(np.exp(scores).sum(axis=3))
    p = np.exp(scores - statistics[..., None])
    y = p @ v
    slopes = p * (g @ v.swapaxes(2, 3) - (g * y).sum(axis=3, keepdims=True)) * scale
    made = slopes @ k, slopes.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ g
    return y.swapaxes(1, 2), statistics, *(a.swapaxes(1, 2) for a in made)


def dtype_of(name):
    return np.dtype(name if name != "bfloat16" else pytest.importorskip("ml_dtypes").bfloat16)


CASES = crossed([*SHAPES, *SHAPES], ("float32", "float16"), MASKS)
CASES += crossed(SHAPES[2:3], ("float64", "bfloat16", "tf32"), MASKS)


@needs_compiler
@pytest.mark.parametrize("shape, dtype, mask", CASES, ids=str)
def test_kernels_give_what_numpy_gives(shape, dtype, mask):
    if dtype == "tf32":
        check(shape, *mask, np.dtype("float32"), PRECISION[dtype], uses_tf32=True)
    else:
        check(shape, *mask, dtype_of(dtype), PRECISION[dtype])


def gaps(a):
    """The same numbers, with room behind each row."""
    wide = np.zeros((*a.shape[:3], a.shape[3] + 3), a.dtype)
    wide[..., : a.shape[3]] = a
    return wide[..., : a.shape[3]]


def by_head(a):
    """The same numbers, head by head."""
    return np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)


def by_feature(a):
    """The same numbers, with the features of a head far from each other."""
    return np.ascontiguousarray(a.swapaxes(2, 3)).swapaxes(2, 3)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", [gaps, by_head, by_feature])
def test_arrays_may_lie_in_memory_in_any_way(layout, dtype):
    check((20, 30, 16, 16), True, 0, dtype_of(dtype), PRECISION[dtype], layout)


def check(shape, is_causal, first, dtype, tolerance, layout=np.array, uses_tf32=False):
    queries, keys, width, value_width = shape
    rng, (batch, heads) = np.random.default_rng(0), (2, 3) if queries < 10 else (1, 2)
    extents = {
        "q": (queries, width),
        "k": (keys, width),
        "v": (keys, value_width),
        "g": (queries, value_width),
    }
    q, k, v, g = (
        layout(rng.normal(size=(batch, n, heads, e)).astype(dtype)) for n, e in extents.values()
    )
    y, gq, gk, gv = (layout(np.full_like(a, np.nan)) for a in (g, q, k, v))
    statistics = np.empty(
        (batch, heads, queries), np.float64 if dtype == np.float64 else np.float32
    )
    once, again = context(first, uses_tf32), context(first, uses_tf32)
    options = {"scale": width**-0.5, "is_causal": is_causal}
    flash.forward(once, q, k, v, y, statistics, **options)
    flash.gradients(again, g, y, statistics, q, k, v, gq, gk, gv, **options)
    assert (len(once.names), len(again.names)) == (1, 1)
    expected = reference(q, k, v, g, width**-0.5, first, is_causal)
    found = {"y": y, "statistics": statistics, "gq": gq, "gk": gk, "gv": gv}
    for (name, a), wanted in zip(found.items(), expected):
        error = np.max(np.abs(np.asarray(a, np.float64) - wanted)) / np.max(np.abs(wanted))
        assert error <= tolerance and (not uses_tf32 or error > 1e-5), (
            f"{name}: off by {error:.2g} of the largest value"
        )


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_number_that_is_none_is_seen_in_its_rows_alone(dtype):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 40, 1, 16)).astype(dtype) for _ in range(3))
    y, statistics = np.empty_like(q), np.empty((1, 1, 40), np.float32)
    k[0, 20] = np.nan
    flash.forward(context(0), q, k, v, y, statistics, scale=0.25, is_causal=True)
    assert (
        np.isfinite(y[0, :20]).all()
        and np.isnan(y[0, 20:]).all()
        and np.isnan(statistics[0, 0, 20:]).all()
    )


@pytest.mark.parametrize("dtype, features", crossed([*PRECISION], [16, 64, 128]))
def test_kernels_compile_for_gpus(dtype, features):
    for architecture in shim.ARCHITECTURES if dtype == "bfloat16" else ["sm_90"]:
        if features * {"float64": 8, "float32": 4, "tf32": 8}.get(dtype, 2) <= 512:
            assert len(shim.compile_for(flash_source(dtype, features).text, architecture)) > 0


@needs_compiler
@pytest.mark.parametrize(
    "degrees, precision, tolerance",
    [
        *((d, "float32", 1e-6) for d in ({"c": 3}, {"h": 2, "n": 2}, {"c": 2, "h": 2})),
        ({"c": 2, "n": 2}, "float16", 0.01),
    ],
    ids=str,
)
def test_splits_give_the_numbers_of_one_device(degrees, precision, tolerance):
    """Parts of the queries see other keys; the same bits come out of every run."""
    model = heads(7, 9, True, precision)
    machine = MachineModel.uniform(4)
    strategy, names = (
        single_device(model.graph, machine),
        dict(zip("nch", model.graph.operator("a").outputs[0].axes)),
    )
    for name in ("a", "a.dx"):
        axes = {names[axis]: n for axis, n in degrees.items()}
        strategy[name] = ParallelConfig(
            axes, devices=tuple(range(int(np.prod(list(degrees.values())))))
        )
    runs = [run(model, shim.ShimStreams(seed), machine, strategy) for seed in (0, 1)]
    laws.assert_close(runs[0], on_numpy(model), tolerance)
    laws.assert_close(runs[0], runs[1], 0)
