"""Checks for operators, public: what every operator must pass, custom ones too.

`check_operator` runs the real executor on small float64 arrays: values against a plain NumPy reference, gradients
against central finite differences, and every split of every axis against the unsplit operators, forward and backward,
in memory that is poisoned, between red zones, and with every task's privileges verified. Differences of float32 show no
gradient, so a graph of another dtype is checked in its float64 twin, and what it gives itself against the twin's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from taskflow.backend import Context
from taskflow.core.random import fill, random_key
from taskflow.execute import Executor
from taskflow.graph.differentiate import differentiate
from taskflow.graph.family import Family, families
from taskflow.graph.graph import Graph, LogicalRegion, Operator
from taskflow.graph.rebuild import replace_regions
from taskflow.lowering import lower
from taskflow.lowering.lowering import Lowering
from taskflow.machine import MachineModel
from taskflow.strategy.rules import leaders
from taskflow.strategy.strategy import ParallelConfig, Strategy
from taskflow.tasks.task_graph import Array

Build = Callable[[], tuple[Graph, LogicalRegion]]
Values = Mapping[str, Array]
Split = tuple[str, str, int]  # operator, axis, degree

_ROUNDED = {
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}  # of the largest value: against the float64 twin


@dataclass(frozen=True)
class _Results:
    """Outputs of one step and the values of persistent regions after it."""

    outputs: dict[str, Array]
    regions: dict[str, Array]


def check_operator(
    build: Build,
    reference: Callable[[Values], Array] | None = None,
    *,
    degrees: Sequence[int] = (2, 3),
    values: Values | None = None,
    high: int = 3,
    differentiable: bool = True,
    tolerance: float = 1e-10,
    seed: int = 0,
    moved: int = 200,
) -> list[Split]:
    """Check the operators of a small graph.

    Args:
        build: makes a new (graph, output region) each time; extents small and odd.
        reference: the output from the values of inputs, parameters and states, by region name; they are float64.
        degrees: tried for every axis that may be split and is long enough.
        values: of regions by name; the others are random, integers below `high`.
        high: bound of random integers.
        differentiable: whether gradients of all inputs and parameters of floating point are checked.
        tolerance: absolute and relative, for splits and the reference (gradients: 1e-6 for the differences' own error).
        seed: of random values.
        moved: so many elements of each region, evenly spread, are moved for the differences; all if it has no more.

    Returns:
        the splits that were checked: (operator, axis, degree).

    Raises:
        AssertionError: two results differ, or one is no number; the message names the split and the region.
        PermissionError: a kernel reads what nobody wrote, writes outside of its arrays, or leaves a part of its output
            unwritten.
        ValueError: what is asked for cannot be checked: there is nothing of floating point, or there are complex
            numbers.
    """
    graph, output = build()
    _refuse_what_cannot_be_checked(graph, output, differentiable)
    narrow = {**_random_values(graph, seed, high), **(values or {})}
    original = build
    build = _widened(build)
    twin = build()[0].regions
    given = {name: np.asarray(value, twin[name].dtype) for name, value in narrow.items()}
    expected = None if reference is None else np.asarray(reference(given))
    graph, names = _with_gradients(build, given, differentiable)
    lowering = Lowering(
        graph, MachineModel.uniform(max(degrees, default=1))
    )  # once: splits share most of their rows
    base = _run(lowering, given, _whole(graph))
    if expected is not None:
        _assert_close(base.outputs["checked"], expected, tolerance, f"value of '{output.name}'")
    _assert_numbers(base, output.name, expected)
    _check_rounded(original, narrow, base, differentiable)
    if differentiable:
        _check_slopes(build, given, base, names, moved)
    return _check_splits(lowering, given, base, degrees, tolerance)


def _check_splits(
    lowering: Lowering,
    values: Values,
    base: _Results,
    degrees: Sequence[int],
    tolerance: float,
) -> list[Split]:
    """Every split of every axis against the whole operators; the splits.

    Operators are split together, the k-th split of each in one run; if that fails, alone, to name the one that does.
    """
    checked = [_splits_of(family, degrees) for family in families(lowering.graph)]

    def check(*splits: Split) -> None:
        configs = {name: ParallelConfig({axis: degree}) for name, axis, degree in splits}
        split = _run(lowering, values, Strategy({**_whole(lowering.graph), **configs}))
        where = ", ".join(f"'{name}' split {axis}:{degree}" for name, axis, degree in splits)
        _assert_same(split, base, tolerance, where)

    for together in zip_longest(*checked):
        splits = [split for split in together if split]
        try:
            check(*splits)
        except Exception:
            for split in splits:
                check(split)
            raise
    return [split for splits in checked for split in splits]


def _splits_of(family: Family, degrees: Sequence[int]) -> list[Split]:
    """Those that are neither finer than an axis nor along an inner one of a group."""
    op = family.leader
    if op.kernel.function in (_dot, _scale):
        return []
    return [
        (op.name, axis, degree)
        for axis in op.split_axes
        for degree in degrees
        if family.allows({axis: degree})
    ]


def _refuse_what_cannot_be_checked(
    graph: Graph, output: LogicalRegion, differentiable: bool
) -> None:
    regions = graph.regions.values()
    if wrong := next((r for r in regions if r.dtype.startswith("complex")), None):
        raise ValueError(
            f"check_operator: '{wrong.name}' is {wrong.dtype}, complex numbers are not checked"
        )
    if differentiable and not any(
        r.is_floating for r in regions if r.role in ("input", "parameter")
    ):
        raise ValueError(
            "check_operator: no input or parameter is of floating point: say differentiable=False"
        )
    if differentiable and not output.is_floating:
        raise ValueError(
            f"check_operator: '{output.name}' is {output.dtype}: say differentiable=False"
        )


def _widened(build: Build) -> Build:
    """The same graph in float64."""

    def build_twin() -> tuple[Graph, LogicalRegion]:
        graph, output = build()
        narrow = [r for r in graph.regions.values() if r.is_floating and r.dtype != "float64"]
        twin = replace_regions(graph, {r.name: replace(r, dtype="float64") for r in narrow})
        return twin, twin.regions[output.name]

    return build_twin


def _check_rounded(
    build: Build, values: dict[str, Array], base: _Results, differentiable: bool
) -> None:
    """Values and gradients of a graph of another dtype than float64, against those of its twin."""
    graph, output = build()
    tolerance = max(_ROUNDED.get(r.dtype, 0.0) for r in graph.regions.values())
    if not tolerance:
        return
    graph, _ = _with_gradients(build, values, differentiable)
    rounded = _run(Lowering(graph, MachineModel.uniform(1)), values, _whole(graph)).outputs
    for name, wide in base.outputs.items():
        if name != "probed":
            what = f"value of '{output.name}'" if name == "checked" else name
            scale = max(1.0, float(np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))))
            narrow = rounded[name].astype(wide.dtype)
            _assert_close(
                narrow / scale, wide / scale, tolerance, f"{what} in {graph.outputs[name].dtype}"
            )


def _whole(graph: Graph) -> Strategy:
    return Strategy({op.name: ParallelConfig({}, (0,)) for op in leaders(graph)})


def _random_values(graph: Graph, seed: int, high: int) -> dict[str, Array]:
    values: dict[str, Array] = {}
    for number, region in enumerate(graph.regions.values()):
        generator = np.random.default_rng([seed, number])
        if region.role in ("input", "parameter") and region.is_floating:
            values[region.name] = generator.standard_normal(region.shape).astype(region.dtype)
        elif region.role in ("input", "parameter"):
            values[region.name] = generator.integers(0, high, region.shape).astype(region.dtype)
        elif region.role == "state":
            values[region.name] = np.empty(region.shape, region.dtype)
            fill(
                values[region.name],
                region.init,
                random_key(0, region.name),
                region.shape,
                region.rect,
            )
    return values


def _with_gradients(
    build: Build, values: dict[str, Array], differentiable: bool
) -> tuple[Graph, list[str]]:
    """The graph with `output . probe` as its loss, and gradients of all floating inputs and parameters as outputs."""
    graph, output = build()
    graph.output("checked", output)
    sources = [
        r for r in graph.regions.values() if r.role in ("input", "parameter") and r.is_floating
    ]
    if not differentiable:
        return graph, []
    probe = graph.input("probe", output.shape, output.dtype)
    values["probe"] = np.random.default_rng(1).standard_normal(output.shape).astype(output.dtype)
    loss = graph.output("probed", probed_sum(output, probe))
    names = []
    for region, gradient in differentiate(loss, sources).items():
        graph.output(f"gradient of {region.name}", gradient)
        names.append(region.name)
    return graph, names


def probed_sum(x: LogicalRegion, probe: LogicalRegion) -> LogicalRegion:
    """The scalar sum of `x * probe` over regions of equal shape: a loss that makes every element of `x` count."""
    term = " ".join(f"p{k}" for k in range(x.ndim)) or "."
    pattern = f"{term}, {term} -> ."
    backward = _probed_backward
    made = x.graph.launch(
        "probed", pattern, [x, probe], kernel=_dot, backward=backward, dtype="float64"
    )
    assert isinstance(made, LogicalRegion)
    return made


def _probed_backward(op: Operator, gradient: LogicalRegion) -> tuple[Any, None]:
    term = op.bound.term_text(1)
    inputs = [gradient, op.inputs[1]]
    dtype = op.inputs[0].dtype
    pattern = f"., {term} -> {term}"
    return gradient.graph.launch("probed.dx", pattern, inputs, kernel=_scale, dtype=dtype), None


def _dot(ctx: Context, x: Array, probe: Array, out: Array) -> None:
    out[...] = (x * probe).sum()


def _scale(ctx: Context, factor: Array, probe: Array, out: Array) -> None:
    ctx.xp.multiply(probe, factor, out=out, casting="same_kind")


def _run(lowering: Lowering, values: Values, strategy: Strategy) -> _Results:
    with Executor(lowering.lower(strategy), watch=True, allow_nan=True) as step:
        for name in step.persistent:
            if name in values:
                step.write(name, values[name])
        outputs = step({r.name: values[r.name] for r in lowering.graph.inputs})
        return _Results(outputs, {name: step.read(name) for name in step.persistent})


def _check_slopes(
    build: Build,
    values: Values,
    base: _Results,
    names: Sequence[str],
    moved: int,
    step: float = 1e-5,
) -> None:
    """Central differences of the probed sum by elements of the named regions."""
    graph, output = build()
    graph.output("checked", output)
    task_graph = lower(graph, _whole(graph), MachineModel.uniform(1))
    fed = [r.name for r in graph.inputs]
    with Executor(task_graph, record=False, allow_nan=True) as run:
        first = {n: run.read(n) for n in run.persistent}

        def loss(name: str, value: Array) -> float:
            changed = {**first, **values, name: value}
            for persistent in first:
                run.write(persistent, changed[persistent])
            run._run.step = 0  # random operators draw the same numbers at every call
            return float((run({n: changed[n] for n in fed})["checked"] * values["probe"]).sum())

        for name in names:
            value = values[name]
            chosen = np.unique(np.linspace(0, value.size - 1, min(moved, value.size)).astype(int))
            slopes = [_slope(partial(loss, name), value, index, step) for index in chosen]
            gradient = base.outputs[f"gradient of {name}"].reshape(-1)[chosen]
            _assert_close(gradient, np.array(slopes), 1e-6, f"gradient of '{name}'")


def _slope(loss: Callable[[Array], float], value: Array, index: int, step: float) -> float:
    """The central difference by one element."""
    ends = []
    for sign in (1, -1):
        other = value.copy()
        other.reshape(-1)[index] += sign * step
        ends.append(loss(other))
    return (ends[0] - ends[1]) / (2 * step)


def _assert_same(actual: _Results, expected: _Results, tolerance: float, where: str) -> None:
    for name, value in expected.outputs.items():
        _assert_close(actual.outputs[name], value, tolerance, f"{where}: {name}")
    for name, value in expected.regions.items():
        _assert_close(actual.regions[name], value, tolerance, f"{where}: region '{name}'")


def _assert_numbers(results: _Results, output: str, reference: Array | None) -> None:
    """Nothing is NaN but what the reference makes so."""
    for name, value in {**results.outputs, **results.regions}.items():
        is_none = np.isnan(value)
        where = name
        if name == "checked":
            is_none = is_none & ~np.isnan(0.0 if reference is None else reference)
            where = f"value of '{output}'"
        assert not is_none.any(), (
            f"{where}: {np.count_nonzero(is_none)} of {value.size} elements are NaN"
        )


def _assert_close(actual: Array, expected: Array, tolerance: float, where: str) -> None:
    """To `tolerance`, absolute and relative."""
    assert actual.shape == expected.shape, (
        f"{where}: shape {actual.shape} instead of {expected.shape}"
    )
    wrong = ~np.isclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0].tolist())
        values = f"at {index} {float(actual[index]):.9g} instead of {float(expected[index]):.9g}"
        raise AssertionError(
            f"{where}: {np.count_nonzero(wrong)} of {wrong.size} elements differ, {values}"
        )
