"""Programs: what they compute by compiled loops, by passes of NumPy and by CUDA kernels, and what they refuse."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ops.expressions.assign import assign, assign_together
from ops.expressions.program import Pass, Program, program
from taskflow import Context
from tests import shim
from tests.ops.test_cuda_source import Context as OnGpu

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Mapping[str, Array]

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def some(*shape: int, seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape))


STEPS = program(
    "d = g + n * p; v = 0.9 * v + d\np = p - rate * v; total += p * p",
    "p g v rate total",
    {"n": 0.1},
)
CHANNELS = program(
    "sum += x\nscaled += (x - mean) * sqrt(abs(w))\n\nsum = sum / n",
    "x mean w sum scaled",
    {"n": 6},
    along=1,
)
GATES = program("i = tanh(i); t = i * o\no = t + c", "(i o) c", contracts=True)
CASES: dict[str, tuple[Program, Arrays]] = {
    "states": (
        STEPS,
        dict(
            zip(STEPS.arguments, [*(some(4, 6, seed=k) for k in range(3)), np.array(0.1), some()])
        ),
    ),
    "channels": (
        CHANNELS,
        dict(zip(CHANNELS.arguments, [some(300, 3, 2), *(some(3, seed=k) for k in range(4))])),
    ),
    "parts": (GATES, dict(zip(GATES.arguments, [some(5, 2, 7), some(5, 7)]))),
}


def expected(name: str, arrays: Arrays) -> dict[str, Array]:
    a = dict(arrays)
    if name == "states":
        v = 0.9 * a["v"] + a["g"] + 0.1 * a["p"]
        p = a["p"] - 0.1 * v
        return {"v": v, "p": p, "total": (p * p).sum()}
    if name == "channels":
        x, root = a["x"], np.sqrt(abs(a["w"]))
        return {
            "sum": x.sum(axis=(0, 2)) / 6,
            "scaled": ((x - a["mean"][:, None]) * root[:, None]).sum(axis=(0, 2)),
        }
    i = np.tanh(a["i o"][:, 0])
    return {"i o": np.stack([i, i * a["i o"][:, 1] + a["c"]], axis=1)}


def check(name: str, found: Arrays) -> None:
    for key, value in (CASES[name][1] | expected(name, CASES[name][1])).items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("layout", ["as it is", "turned"])
def test_compiled_loops(name: str, layout: str) -> None:
    text, arrays = CASES[name]
    turned = {
        k: np.asfortranarray(a) if layout == "turned" else a.copy() for k, a in arrays.items()
    }
    assign(Context((), {}), *turned.values(), program=text)
    check(name, turned)


@pytest.mark.parametrize("name", ["states", "parts"])
def test_other_dtypes_go_by_passes(name: str) -> None:
    text, arrays = CASES[name]
    copies = {k: a.astype(np.longdouble) for k, a in arrays.items()}
    assign(Context((), {}), *copies.values(), program=text)
    check(name, copies)


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_cuda_kernels(name: str) -> None:
    text, arrays = CASES[name]
    copies = {k: a.copy() for k, a in arrays.items()}
    ctx: Any = OnGpu()
    assign.on_cuda(ctx, *copies.values(), program=text)
    check(name, copies)
    assert len(ctx.launched) == {"states": 3, "channels": 5, "parts": 1}[name]


@needs_compiler
def test_many_points_in_one_launch() -> None:
    text = program("p = p - rate / fix * g", "p g rate", each_step="fix = t ** 2")
    rate, points = np.array(0.1), [[some(n), some(n, seed=1)] for n in (3, 5000, 17)]
    wanted = [p - 0.1 / 9 * g for p, g in points]
    ctx: Any = OnGpu()
    ctx.constant, ctx.address = np.copy, lambda a: a.ctypes.data
    ctx.cell = lambda slot, dtype, value: np.full(1, value(Step(2)))
    assign_together.on_cuda.together(ctx, [[*point, rate] for point in points], program=text)()  # type: ignore[misc]
    assert len(ctx.launched) == 1
    for (p, _), value in zip(points, wanted, strict=True):
        np.testing.assert_allclose(p, value, rtol=1e-13)


class Step:
    def __init__(self, step: int) -> None:
        self.step = step


def test_a_step_that_is_skipped_changes_no_state() -> None:
    text = program("v = v + g; way = v * p; p = p - way", "p g v way").unless("skip", 3)
    assert text.arguments == ("p", "g", "v", "skip", "way")
    p, g, v, way = (some(9, seed=k) for k in range(4))
    for skip in (1.0, 0.0):
        found = [a.copy() for a in (p, g, v)]
        out = np.full_like(way, np.nan)
        assign_together(Context((), {}), *found, np.array(skip), out, program=text)
        wanted = [p, g, v, 0 * p] if skip else [p - (v + g) * p, g, v + g, (v + g) * p]
        for a, b in zip([*found, out], wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)


def test_numbers_of_a_step() -> None:
    text = program("p = p * fix", "p", {"beta": 0.5}, "fix = 1 - beta ** t")
    assert [text.numbers_at(step)["fix"] for step in (0, 2)] == [0.5, 0.875]


def test_long_sums_are_exact() -> None:
    x, total = np.full(1 << 16, 0.1, np.float32), np.empty((), np.float32)
    assign(Context((), {}), x, total, program=program("total += x", "x total"))
    assert total == np.float32(np.float64(np.float32(0.1)) * (1 << 16))


def test_names() -> None:
    one = Pass.parse("a = b + a; c = a * d\nd = c; e += d")
    assert (one.reads, one.targets, one.maps) == (
        {"a", "b", "d"},
        {"a", "c", "d", "e"},
        {"a", "c", "d"},
    )
    assert str(one) == "a = b + a; c = a * d\nd = c; e += d"


@pytest.mark.parametrize("text", ["x + y", "x == y", "x =", "x.y = z"])
def test_what_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        Pass.parse(text)
