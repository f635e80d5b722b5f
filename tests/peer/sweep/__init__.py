"""All of torch.nn and torch.nn.functional through the door: what is said of each call is torch's number, or a refusal.

A case is a module and its inputs. `verdict` imports it alone, `verdicts` many as one module. Both compare outputs and
the gradients of inputs and weights with torch's, on the example and on inputs of zeros, ties, kinks and large values,
with masks that are full and empty.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch

import ops
from ops.torch.compare import evaluate
from ops.torch.peer import Peer, array_of
from taskflow import differentiate
from tests.peer.batches import import_together
from tests.peer.sweep.alone import is_alone

# other numbers than the import tries itself
KINKS = (-21.0, -6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 7.0, 19.0)
TOLERANCE = 1e-9  # of the largest value, in float64
TOLERANCE_OF_FLOAT32 = 1e-4  # where a module casts to it
TOLERANCE_OF_LARGE = (
    1e-6  # scores of 1e8 have eight digits behind the point, and softmax makes them factors
)


Case = tuple[str, Callable[[], Any], tuple[Any, ...]]  # a name, what makes the module, its inputs


@dataclass(frozen=True)
class Verdict:
    """ "right", "refused" or "wrong", and what was said or differed."""

    kind: str
    text: str = ""


def tensors(text: str, seed: int = 0) -> tuple[Any, ...]:
    """Inputs as `"2 3; i5 2"` says: normal numbers of a shape, integers below 5, `u` in (0, 1), `s` ±1, `b` booleans,
    `l` logarithms of probabilities, `p` probabilities; `.` is a number."""
    random = torch.Generator().manual_seed(seed)
    return tuple(_tensor(part.split(), random) for part in text.split(";"))


def _tensor(words: list[str], random: Any) -> Any:
    kind = words.pop(0) if not words[0].isdigit() and words[0] != "." else ""
    shape = tuple(int(w) for w in words if w != ".")
    x = torch.randn(shape, generator=random, dtype=torch.float64)
    if kind.startswith("i"):
        return torch.randint(0, int(kind[1:]), shape, generator=random)
    made = {
        "u": lambda: torch.sigmoid(x),
        "s": lambda: torch.where(x > 0, 1.0, -1.0).double(),
        "b": lambda: x > 0,
    }
    made |= {
        "l": lambda: torch.log_softmax(x, -1),
        "p": lambda: torch.softmax(x, -1),
        "": lambda: x,
    }
    return made[kind]()


def verdicts(cases: Sequence[Case]) -> Iterator[tuple[str, Verdict]]:
    """Of every case what `verdict` says of it alone. Those that may go together are imported as one."""
    for name, make, inputs in cases:
        if is_alone(name):
            yield name, verdict(make(), inputs)
    yield from _together([case for case in cases if not is_alone(case[0])])


def _together(cases: Sequence[Case]) -> Iterator[tuple[str, Verdict]]:
    """Where they cannot be imported as one, those of each half."""
    if len(cases) < 2:
        yield from ((name, verdict(make(), inputs)) for name, make, inputs in cases)
        return
    modules = [make() for _, make, _ in cases]
    try:
        models = import_together([(m, c[2]) for m, c in zip(modules, cases, strict=True)])
    except Exception:  # the case alone says what it is
        middle = len(cases) // 2
        yield from (*_together(cases[:middle]), *_together(cases[middle:]))
        return
    for (name, make, inputs), module, model in zip(cases, modules, models, strict=True):
        found = verdict_of(module, model, inputs)
        yield name, found if found.kind == "right" else verdict(make(), inputs)


def verdict(module: Any, inputs: tuple[Any, ...]) -> Verdict:
    """What comes of the import of a module in float64."""
    try:
        model = ops.from_torch(module, inputs)
    except (ValueError, TypeError) as error:
        text = str(error)
        is_refusal = text.startswith("from_torch: ") and "\n" not in text
        return Verdict("refused" if is_refusal else "wrong", text)
    return verdict_of(module, model, inputs)


def verdict_of(module: Any, model: Any, inputs: tuple[Any, ...]) -> Verdict:
    """Whether what was imported has torch's numbers."""
    if any(op.kernel.function.__name__ == "_drop" for op in model.graph.operators):
        return Verdict("right")  # what is drawn differs; the import has compared it without
    beside = Beside(module, model, inputs)
    for name, values in varied(inputs):
        if text := beside.difference(values, TOLERANCE_OF_LARGE if name == "large" else TOLERANCE):
            return Verdict("wrong", f"{name}: {text}")
    return Verdict("right")


def varied(inputs: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The example, and others of the same shapes."""
    yield "the example", inputs
    random = torch.Generator().manual_seed(1)
    of_floats = {
        "zeros": torch.zeros_like,
        "kinks": lambda x: torch.tensor(KINKS, dtype=x.dtype)[
            torch.randint(len(KINKS), x.shape, generator=random)
        ],
        "large": lambda x: torch.where(torch.rand(x.shape, generator=random) < 0.5, -1e4, 1e4).to(
            x.dtype
        ),
        "zeros and ones": lambda x: torch.randint(2, x.shape, generator=random).to(x.dtype),
    }
    for name, make in of_floats.items():
        yield name, tuple(make(x) if x.is_floating_point() else x for x in inputs)
    if any(x.dtype == torch.bool for x in inputs):
        for name, value in (("empty", False), ("full", True)):
            yield (
                name,
                tuple(torch.full_like(x, value) if x.dtype == torch.bool else x for x in inputs),
            )
    if any(x.dtype == torch.int64 for x in inputs):
        yield (
            "the least",
            tuple(x if x.dtype != torch.int64 else torch.full_like(x, x.min()) for x in inputs),
        )


class Beside:
    """A module beside its graph with gradients of inputs and weights, of the sum of all outputs: k + 1 times each."""

    def __init__(self, module: Any, model: Any, inputs: tuple[Any, ...]) -> None:
        self.module, self.model = module, model.with_regions({}, {})
        self.weights, graph = model.weights, self.model.graph
        self.followed = Peer.of(
            module, torch.utils._pytree.tree_flatten((inputs, {}))[1], inputs
        ).followed
        outputs, made = self.of_torch(inputs)
        regions = [r for k, r in enumerate(self.model.inputs.values()) if made.get(k) is not None]
        parts = [
            ops.multiply(ops.sum(r), k + 1.0)
            for k, r in enumerate(self.model.outputs)
            if outputs[k].requires_grad
        ]
        wanted = [*regions, *graph.parameters]
        self.gradients = differentiate(reduce(ops.add, parts), wanted) if parts and wanted else {}
        self.is_wide = all(r.dtype != "float32" for r in graph.regions.values())

    def of_torch(self, inputs: tuple[Any, ...]) -> tuple[list[Any], dict[Any, Any]]:
        """The outputs, and gradients by number of the input and name of the parameter; buffers stay as they were."""
        leaves = [x.clone().requires_grad_(k in self.followed) for k, x in enumerate(inputs)]
        before = {name: b.clone() for name, b in self.module.named_buffers()}
        found = [
            y
            for y in torch.utils._pytree.tree_leaves(self.module(*leaves))
            if isinstance(y, torch.Tensor)
        ]
        wanted = dict(enumerate(leaves)) | dict(self.module.named_parameters())
        wanted = {name: x for name, x in wanted.items() if x.requires_grad}
        total = sum(((k + 1) * y).sum() for k, y in enumerate(found) if y.requires_grad)
        is_differentiable = bool(wanted) and isinstance(total, torch.Tensor)
        made = (
            torch.autograd.grad(total, list(wanted.values()), allow_unused=True)
            if is_differentiable
            else ()
        )
        for name, b in self.module.named_buffers():
            b.data.copy_(before[name])
        return found, dict(zip(wanted, made))

    def difference(self, inputs: tuple[Any, ...], tolerance: float) -> str:
        """Where the numbers differ from torch's on these inputs; nothing where torch takes none such."""
        try:
            outputs, made = self.of_torch(inputs)
        except (RuntimeError, ValueError, IndexError):
            return ""
        values = dict(zip(self.model.inputs, map(array_of, inputs), strict=True)) | self.weights
        found, given = (
            evaluate(self.model.graph, values),
            {k: g for k, g in made.items() if g is not None},
        )
        named = {
            name: array_of(given.get(name, torch.zeros_like(p)))
            for name, p in self.module.named_parameters()
        }
        theirs = {
            r.name: given.get(k, torch.zeros_like(inputs[k]))
            for k, r in enumerate(self.model.inputs.values())
        }
        expected = {name: array_of(g) for name, g in theirs.items()} | ops.from_torch_state(named)
        pairs = [
            (f"output {k}", found[r.name], array_of(outputs[k]))
            for k, r in enumerate(self.model.outputs)
        ]
        pairs += [
            (f"the gradient of {r.name}", found[g.name], expected[r.name])
            for r, g in self.gradients.items()
        ]
        tolerance = tolerance if self.is_wide else TOLERANCE_OF_FLOAT32
        return next(
            (f"{what}: {text}" for what, a, b in pairs if (text := differing(a, b, tolerance))), ""
        )


def differing(found: Any, expected: Any, tolerance: float) -> str:
    """Where two arrays differ, or nothing."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape}, torch's is {expected.dtype} {expected.shape}"
    ours, theirs = found.astype(float), expected.astype(float)
    largest = max(1.0, float(np.abs(theirs).max(initial=0.0, where=np.isfinite(theirs))))
    wrong = ~np.isclose(ours, theirs, rtol=0, atol=tolerance * largest, equal_nan=True)
    if not wrong.any():
        return ""
    at = tuple(np.argwhere(wrong)[0].tolist())
    return f"{np.count_nonzero(wrong)} of {wrong.size} elements, at {at} {ours[at]:.6g} for {theirs[at]:.6g}"
