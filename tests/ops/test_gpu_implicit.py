"""Convolution as products whose columns are never made: its CUDA kernels as C++ give what NumPy gives, and compile."""

import numpy as np
import pytest

import ops
from ops.cuda import implicit
from ops.cuda.implicit import kernel_source
from ops.cuda.rows import sums_of_channels
from taskflow import Graph, MachineModel, ParallelConfig, Window, single_device
from tests import laws, shim
from tests.ops.launches import Launches
from tests.ops.test_gpu_cudnn import images, on_numpy, run, trained
from tests.sampling import crossed

PRECISION = {"float64": 1e-12, "float32": 1e-6, "float16": 3e-3, "bfloat16": 2e-2, "tf32": 1e-3}
CASES = {  # images, groups, channels of a group and of its result, the image, sizes, strides, dilations, corner
    "3 by 3": (2, 1, 16, 24, (9, 7), (3, 3), (1, 1), (1, 1), (-1, -1)),
    "many channels": (1, 1, 72, 80, (5, 6), (3, 3), (1, 1), (1, 1), (-1, -1)),
    "few channels": (2, 1, 3, 5, (8, 9), (3, 2), (1, 1), (1, 1), (0, -1)),
    "strides": (2, 1, 8, 16, (11, 9), (3, 3), (2, 3), (1, 1), (-1, 0)),
    "gaps": (2, 1, 8, 8, (9, 8), (2, 1), (3, 2), (1, 1), (0, 0)),
    "dilations": (1, 1, 8, 16, (10, 9), (3, 2), (1, 2), (2, 3), (-2, -1)),
    "groups": (2, 3, 8, 16, (6, 5), (3, 3), (1, 1), (1, 1), (-1, -1)),
    "channels apart": (2, 5, 1, 1, (6, 5), (3, 3), (2, 1), (1, 1), (-1, -1)),
    "a point": (3, 1, 20, 40, (5, 5), (1, 1), (1, 1), (1, 1), (0, 0)),
    "a corner inside": (1, 1, 4, 4, (9, 9), (3, 3), (1, 1), (1, 1), (2, 3)),
    "outside": (1, 1, 4, 4, (3, 3), (2, 2), (1, 1), (1, 1), (-4, -1)),
    "many pixels": (2, 1, 4, 4, (24, 19), (3, 3), (1, 1), (1, 1), (-1, -1)),
}

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def dtype_of(name):
    if name == "tf32":
        return np.dtype("float32")
    return np.dtype(name if name != "bfloat16" else pytest.importorskip("ml_dtypes").bfloat16)


def columns(x, extents, sizes, strides, dilations, corner):
    """What every window reads: (images, h, w, kh, kw, channels)."""
    down, right = (
        corner[d] + np.arange(extents[d])[:, None] * strides[d] + np.arange(sizes[d]) * dilations[d]
        for d in (0, 1)
    )
    is_there = ((down >= 0) & (down < x.shape[1]))[:, None, :, None] & (
        (right >= 0) & (right < x.shape[2])
    )[None, :, None]
    read = x[:, down.clip(0, x.shape[1] - 1)][:, :, :, right.clip(0, x.shape[2] - 1)]
    return np.where(is_there[None, ..., None], read.transpose(0, 1, 3, 2, 4, 5), 0)


def reference(case, x, weight, bias, gy):
    """Result, gradient of the image and of the weight, in float64."""
    _, groups, ins, outs, _, sizes, strides, dilations, corner = case
    x, weight, bias, gy = (np.asarray(a, np.float64) for a in (x, weight, bias, gy))
    read = columns(x, gy.shape[1:3], sizes, strides, dilations, corner)
    read = read.reshape(*read.shape[:5], groups, ins)
    by_group = weight.reshape(groups, outs, *sizes, ins)
    y = np.einsum("nhwijgc,goijc->nhwgo", read, by_group).reshape(gy.shape) + bias
    g = gy.reshape(*gy.shape[:3], groups, outs)
    gweight = np.einsum("nhwgo,nhwijgc->goijc", g, read).reshape(weight.shape)
    slopes, gx = np.einsum("nhwgo,goijc->nhwijgc", g, by_group), np.zeros(x.shape)
    for h, w, i, j in np.ndindex(*gy.shape[1:3], *sizes):
        row, col = (
            corner[d] + n * strides[d] + k * dilations[d]
            for d, (n, k) in enumerate(((h, i), (w, j)))
        )
        if 0 <= row < x.shape[1] and 0 <= col < x.shape[2]:
            gx[:, row, col] += slopes[:, h, w, i, j].reshape(len(x), -1)
    return y, gx, gweight


@needs_compiler
@pytest.mark.parametrize(
    "name, dtype",
    [
        *crossed([*CASES], ("float32", "float16")),
        *crossed(("3 by 3", "groups"), ("float64", "bfloat16", "tf32")),
    ],
)
def test_kernels_give_what_numpy_gives(name, dtype, monkeypatch):
    monkeypatch.setattr(implicit, "_LEAST_PIXELS", 64)
    count, groups, ins, outs, extents, sizes, strides, dilations, corner = case = CASES[name]
    made = [
        (n - c - (k - 1) * d - 1 + max(-c, 0)) // s + 1 for n, k, s, d, c in zip(extents, *case[5:])
    ]
    rng = np.random.default_rng(0)
    shapes = (
        (count, *extents, groups * ins),
        (groups * outs, *sizes, ins),
        (groups * outs,),
        (count, *made, groups * outs),
    )
    x, weight, bias, gy = arrays = [
        rng.normal(size=shape).astype(dtype_of(dtype)) for shape in shapes
    ]
    windows = tuple(Window(a, k, s, 0, d) for a, k, s, d in zip("hw", sizes, strides, dilations))
    rounds = dtype == "tf32"
    y, rectified, gx, gweight = (np.full_like(a, np.nan) for a in (gy, gy, x, weight))
    implicit.forward(Launches((), rounds), x, weight, bias, y, windows, corner, groups)
    implicit.forward(
        Launches((), rounds), x, weight, bias, rectified, windows, corner, groups, is_rectified=True
    )
    np.testing.assert_array_equal(rectified, np.where(y < 0, 0, y))
    implicit.gradient_x(Launches((), rounds), gy, weight, gx, windows, corner, groups)
    implicit.gradient_weight(Launches((), rounds), gy, x, gweight, windows, corner, groups)
    for what, found, wanted in zip(
        ("y", "gx", "gweight"), (y, gx, gweight), reference(case, *arrays)
    ):
        error = np.max(np.abs(np.asarray(found, np.float64) - wanted)) / np.max(np.abs(wanted))
        assert error <= PRECISION[dtype] and (not rounds or error > 1e-5), (
            f"{what}: off by {error:.2g} of the largest value"
        )


@needs_compiler
def test_pixels_are_shared_among_blocks_whose_sums_are_added_up(monkeypatch):
    x, gy, gweight = (
        np.ones(shape, np.float32) for shape in ((1, 40, 40, 8), (1, 40, 40, 8), (8, 1, 1, 8))
    )
    windows = Window("h"), Window("w")
    once = Launches()
    implicit.gradient_weight(once, gy, x, gweight, windows, (0, 0), 1)
    assert (gweight == 1600).all() and once.names == [
        "slopes_of_weight_float32",
        "add_parts_float32",
    ]
    monkeypatch.setattr(implicit, "_LEAST_PIXELS", 1600)
    whole = Launches()
    implicit.gradient_weight(whole, gy, x, gweight, windows, (0, 0), 1)
    assert (gweight == 1600).all() and whole.names == ["slopes_of_weight_float32"]


@needs_compiler
@pytest.mark.parametrize(
    "shape, dtype",
    crossed(
        [(2, 3, 5, 7), (2, 64, 40, 30), (3, 70, 20, 9), (1, 300, 40, 5), (2, 1, 90, 90)],
        ["float64", "float32", "float16", "bfloat16"],
    ),
)
def test_sums_of_channels_are_those_of_numpy(shape, dtype):
    gy = np.random.default_rng(0).normal(size=shape).astype(dtype_of(dtype))
    gbias = np.full(shape[1], np.nan, "float64" if dtype == "float64" else "float32")
    for given in (gy, np.ascontiguousarray(gy.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
        sums_of_channels(launches := Launches(), given, gbias)
        wanted = gy.astype(np.float64).sum((0, 2, 3))
        np.testing.assert_allclose(
            gbias, wanted, rtol=0, atol=1e-12 if dtype == "float64" else 1e-4
        )
    assert launches.names == [f"sum_columns_{dtype}", f"sum_columns_{gbias.dtype}"]


def test_too_many_pixels_are_refused(monkeypatch):
    monkeypatch.setattr(implicit, "_MOST_PIXELS", 20)
    x, weight = np.ones((1, 5, 5, 2), np.float32), np.ones((2, 1, 1, 2), np.float32)
    with pytest.raises(
        ValueError, match="a convolution on a GPU: 25 pixels of a tile, more than 20"
    ):
        implicit.forward(Launches(), x, weight, None, x, (Window("h"), Window("w")), (0, 0), 1)


@needs_compiler
@pytest.mark.parametrize(
    "degrees, precision, tolerance",
    [
        *(
            (degrees, "float32", 1e-6)
            for degrees in ({"n": 2, "h": 2}, {"h": 2, "w": 2}, {"o": 3}, {"c": 2, "w": 2})
        ),
        ({"c": 2, "h": 2}, "float16", 0.01),
    ],
    ids=str,
)
def test_splits_give_the_numbers_of_one_device(degrees, precision, tolerance):
    """Tiles read a halo, sums over channels are partial; the same bits come out of every run."""
    model, machine = images(precision=precision, stride=2), MachineModel.uniform(4)
    strategy, count = single_device(model.graph, machine), int(np.prod(list(degrees.values())))
    split = [
        op.name
        for op in model.graph.operators
        if op.name.startswith("conv2d") and degrees.keys() <= op.extents.keys()
    ]
    strategy |= {name: ParallelConfig(degrees, devices=tuple(range(count))) for name in split}
    assert len(split) >= 2
    runs = [run(model, shim.ShimStreams(seed), machine, strategy) for seed in (0, 1)]
    laws.assert_close(runs[0], on_numpy(model), tolerance)
    laws.assert_close(runs[0], runs[1], 0)


@needs_compiler
def test_sequences_in_groups():
    graph = Graph()
    y = ops.conv1d(
        ops.relu(ops.conv1d(graph.input("x", (3, 4, 9)), 6, 3, padding=1)), 4, 2, stride=2, groups=2
    )
    model = trained(graph, y)
    laws.assert_close(run(model, shim.ShimStreams()), on_numpy(model), 1e-6)


DEPTHS = {"float32": 32, "tf32": 32, "float64": 16, "float16": 16, "bfloat16": 32}


@pytest.mark.parametrize(
    "kernel, dtype", crossed(["convolve", "slopes_of_image", "slopes_of_weight"], [*DEPTHS])
)
def test_kernels_compile_for_gpus(kernel, dtype):
    for architecture in shim.ARCHITECTURES if dtype == "bfloat16" else ["sm_90"]:
        for cols in (16, 64):
            assert (
                len(
                    shim.compile_for(
                        kernel_source(kernel, dtype, cols, DEPTHS[dtype]).text, architecture
                    )
                )
                > 0
            )
