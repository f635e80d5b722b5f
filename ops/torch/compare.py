"""An imported module beside torch itself: outputs, buffers and gradients, on the example and on adversarial inputs.

Takes the module, its inputs and what was read of it; gives the parameters that have no gradient in torch. The graph
runs here operator by operator on whole arrays, without a machine and without other ranks. A number may hang on the last
bits of the weights (the side of a kink, the first of two that are nearly equal, a variance of few points); torch's own
numbers then move with those bits, and may differ by ten times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from ops.elementwise.arithmetic import add, multiply
from ops.reduce.reductions import sum_to
from ops.torch.adversaries import adversaries
from ops.torch.exporting import quiet
from ops.torch.imported import Imported
from ops.torch.peer import TOLERANCES, Answer, Peer, array_of, tensors_of
from ops.torch.refusals import one_line
from ops.torch.state import from_torch_state
from taskflow import Array, Context, Graph, LogicalRegion, Operator, differentiate

Numbers = dict[str, Array]  # an output, buffer or gradient, as messages call it -> its values


def compare(module: Any, inputs: Sequence[Any], spec: Any, model: Imported) -> list[str]:
    """The parameters of the graph that have no gradient in torch; `model` has the module's weights as they are.

    Raises:
        ValueError: an output, a gradient or a buffer differs from torch's, or a gradient has a hook.
    """
    _check_hooks(module)
    beside = _Beside.of(Peer.of(module, spec, inputs), model, inputs)
    expected = beside.theirs(beside.answer)
    scales = _scales(expected)
    beside.check("", inputs, expected, scales)
    for name, changed in adversaries(inputs):
        beside.check_on(name, changed, scales)
    return beside.frozen


def _check_hooks(module: Any) -> None:
    for name, p in module.named_parameters():
        if p._post_accumulate_grad_hooks:
            raise ValueError(
                f"from_torch: the gradient of '{name}' has a hook, which is not supported"
            )


@dataclass(frozen=True)
class _Beside:
    """A module's graph beside the module.

    Attributes:
        peer: the module.
        model: the graph with gradients, and weights.
        answer: of torch, on the example: what has a gradient in torch has one here.
        gradients: "the gradient of ..." -> its region, or None where a part of torch's gradient is of no region.
        frozen: parameters without a gradient in torch.
        coarsest: the tolerance of the coarsest dtype: what is float64 in the end may have been float32 before.
    """

    peer: Peer
    model: Imported
    answer: Answer
    coarsest: float
    gradients: dict[str, LogicalRegion] = field(default_factory=dict)
    frozen: list[str] = field(default_factory=list)

    @staticmethod
    def of(peer: Peer, model: Imported, inputs: Sequence[Any]) -> _Beside:
        """With the gradients of parameters and inputs, in a copy of the graph."""
        try:
            answer = peer.run(inputs)
        except RuntimeError as error:
            raise ValueError(
                f"from_torch: torch has no gradient of the module: {one_line(error)}"
            ) from error
        if len(answer.outputs) != len(model.outputs):
            raise ValueError(
                f"from_torch: forward returns {len(answer.outputs)} tensors, the graph has {len(model.outputs)}"
            )
        model = model.with_regions({}, model.weights)
        coarsest = max(TOLERANCES.get(r.dtype, 0.0) for r in model.graph.regions.values())
        made = _Beside(peer, model, answer, coarsest)
        made._differentiate()
        return made

    def _differentiate(self) -> None:
        parameters = self.model.graph.parameters
        followed = self._followed()
        self.frozen.extend(r.name for r in parameters if r.name not in followed)
        parts = [
            self._probed(k, r)
            for k, r in enumerate(self.model.outputs)
            if self.answer.outputs[k].requires_grad
        ]
        if not parts or not self.answer.gradients:
            return
        by = [r for r in parameters if r.name in followed]
        for k, r in enumerate(self.model.inputs.values()):
            if f"input {k}" in self.answer.gradients:
                by.append(r)
        try:
            gradients = differentiate(reduce(add, parts), by)
        except ValueError as error:
            raise ValueError(f"from_torch: {error}") from error
        self.gradients.update({f"the gradient of '{r.name}'": g for r, g in gradients.items()})

    def _followed(self) -> set[str]:
        """The regions of parameters that have a gradient in torch, or a part of one."""
        flags = from_torch_state(
            {
                name: np.full(p.shape, name in self.answer.gradients)
                for name, p in self.peer.module.named_parameters()
            }
        )
        followed = [name for name in flags if flags[name].any()]
        for name in followed:
            if name not in self.model.graph.regions:
                raise ValueError(
                    f"from_torch: '{name}' has a gradient in torch, and is not in the graph"
                )
        return set(followed)

    def _probed(self, k: int, region: LogicalRegion) -> LogicalRegion:
        probe = self.model.graph.input(f"probe {k}", region.shape, region.dtype)
        return sum_to(multiply(region, probe), ())

    def check_on(self, name: str, inputs: Sequence[Any], scales: Mapping[str, float]) -> None:
        """ValueError where they differ on these inputs, if torch takes such."""
        try:
            with quiet():
                expected = self.theirs(self.peer.run(inputs))
        except (RuntimeError, ValueError, IndexError, AssertionError):
            return  # torch itself says that they are out of range
        here = _scales(expected)
        self.check(name, inputs, expected, {what: max(scales[what], here[what]) for what in here})

    def check(
        self, name: str, inputs: Sequence[Any], expected: Numbers, scales: Mapping[str, float]
    ) -> None:
        """ValueError where they differ by more than rounding, and more than ten times as much as torch itself moves."""
        where = f" on {name}" if name else ""
        tolerances = self.tolerances(scales)
        try:
            ours = self.ours(inputs)
        except Exception as error:
            raise ValueError(
                f"from_torch: the graph does not run{where or ' on the example'}: {error}"
            ) from error
        try:
            _check(where, ours, expected, tolerances)
        except ValueError:
            moves = self._moves(name, inputs, expected)
            for what in tolerances:
                tolerances[what] = max(tolerances[what], 10 * moves.get(what, 0.0))
            _check(where, ours, expected, tolerances)

    def _moves(self, name: str, inputs: Sequence[Any], expected: Numbers) -> dict[str, float]:
        """How far torch's own numbers move when weights, or all numbers, are nudged."""
        nudged = "all" if name in ("", "large numbers") else "weights"
        with quiet(), np.errstate(all="ignore"):
            other = self.theirs(self.peer.run(inputs, nudged))
            return {
                what: _largest(other[what].astype(float) - value.astype(float))
                for what, value in expected.items()
            }

    def ours(self, inputs: Sequence[Any]) -> Numbers:
        """By the graph."""
        values = evaluate(self.model.graph, self._fed(inputs))
        made = {f"output {k}": values[region.name] for k, region in enumerate(self.model.outputs)}
        made |= {
            f"the buffer '{name}'": values[name] for name in self.answer.buffers if name in values
        }
        return made | {what: values[region.name] for what, region in self.gradients.items()}

    def _fed(self, inputs: Sequence[Any]) -> Numbers:
        """What the graph reads: weights, inputs and probes."""
        pairs = zip(self.model.inputs.values(), tensors_of(inputs), strict=True)
        return {
            **self.model.weights,
            **{region.name: array_of(tensor) for region, tensor in pairs},
            **{f"probe {k}": probe for k, probe in self.peer.probes.items()},
        }

    def theirs(self, answer: Answer) -> Numbers:
        """By torch."""
        made = {f"output {k}": array_of(tensor) for k, tensor in enumerate(answer.outputs)}
        made |= {f"the buffer '{name}'": value for name, value in answer.buffers.items()}
        slopes = self._slopes(answer.gradients)
        return made | {f"the gradient of '{name}'": value for name, value in slopes.items()}

    def _slopes(self, gradients: Mapping[str, Any]) -> Numbers:
        """torch's gradients by region; zeros where torch has none."""
        slopes = from_torch_state(
            {
                name: array_of(gradients[name]) if name in gradients else np.zeros(p.shape)
                for name, p in self.peer.module.named_parameters()
            }
        )
        for k, r in enumerate(self.model.inputs.values()):
            if f"input {k}" in gradients:
                slopes[r.name] = array_of(gradients[f"input {k}"])
            else:
                slopes[r.name] = np.zeros(r.shape, r.dtype)
        return slopes

    def tolerances(self, scales: Mapping[str, float]) -> dict[str, float]:
        """The largest difference that rounding explains, by what is compared."""
        largest = max((scales[what] for what in self.gradients), default=0.0)
        measured = {
            what: largest if what in self.gradients else scale for what, scale in scales.items()
        }
        return {what: self.coarsest * scale for what, scale in measured.items()}


def _check(
    where: str, computed: Numbers, expected: Numbers, tolerances: Mapping[str, float]
) -> None:
    """ValueError unless all that is expected agrees up to rounding."""
    for what in [what for what in computed if what in expected]:
        ours = computed[what]
        theirs = expected[what]
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            raise ValueError(
                f"from_torch: {what} is {ours.dtype} {ours.shape}, torch's is {theirs.dtype} {theirs.shape}"
            )
        wrong = ~_is_close(ours, theirs, tolerances[what])
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0].tolist())
            raise ValueError(
                f"from_torch: {what} differs from torch's{where} in {np.count_nonzero(wrong)} of {wrong.size} "
                f"elements, at {at} {float(ours[at]):.6g} for {float(theirs[at]):.6g}"
            )


def _is_close(ours: Array, theirs: Array, tolerance: float) -> Array:
    """Element by element; integers are exact."""
    computed = ours.astype(np.float64)
    expected = theirs.astype(np.float64)
    atol = tolerance if ours.dtype.name in TOLERANCES else 0.0
    with np.errstate(all="ignore"):
        close: Array = np.isclose(computed, expected, rtol=0, atol=atol, equal_nan=True)
    return close


def _scales(numbers: Numbers) -> dict[str, float]:
    return {what: _largest(value) for what, value in numbers.items()}


def _largest(value: Array) -> float:
    wide = value.astype(np.float64)
    return float(np.abs(wide).max(initial=0.0, where=np.isfinite(wide)))


def evaluate(graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """The value of every region after one step, from those of inputs, parameters and states."""
    by_region = {
        r.name: np.array(values[r.name], r.dtype)
        for r in graph.regions.values()
        if r.name in values
    }
    for op in graph.operators:
        by_region.update({r.name: np.empty(r.shape, r.dtype) for r in op.outputs})
        _run(op, by_region)
    return by_region


def _run(op: Operator, by_region: Mapping[str, Array]) -> None:
    rects = [op.bound.rect(k, {}) for k in range(len(op.args))]
    context = Context(rects, {axis: (0, extent) for axis, extent in op.extents.items()})
    arrays = [by_region[r.name][rect.slices()] for r, rect in zip(op.args, rects)]
    reads = [k < len(op.inputs) for k in range(len(arrays))]
    written = [k in op.writes or not is_read for k, is_read in enumerate(reads)]
    for array, is_written in zip(arrays, written):
        array.flags.writeable = is_written  # kernels are compiled for that
    with np.errstate(all="ignore"):
        op.kernel.for_dtypes(arrays, reads, written)(context, *arrays)
