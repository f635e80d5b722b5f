"""All of torch.nn and torch.nn.functional through the door: what is said of each call is torch's number, or a refusal.

A case is a module and its inputs. `verdict` imports it, and compares outputs and the gradients of inputs and weights
with torch's, on the example and on inputs of zeros, ties, kinks and large values, with masks that are full and empty.

Most of the time of an import is torch's, and the same for one call as for a hundred: so cases are imported together,
as parts of one module that are compared one by one (`verdicts`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch

import ops
from ops.torch.compare import evaluate
from ops.torch.peer import Peer, array_of
from taskflow import differentiate

# other numbers than the import tries itself
KINKS = (-21.0, -6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 7.0, 19.0)
TOLERANCE = 1e-9  # of the largest value, in float64
TOLERANCE_OF_FLOAT32 = 1e-4  # where a module casts to it
# Scores of 1e8 have eight digits behind the point, and softmax makes them factors.
TOLERANCE_OF_LARGE = 1e-6


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


Case = tuple[str, Callable[[], Any], tuple[Any, ...]]
TOGETHER = 12  # cases of one import


class Several(torch.nn.Module):
    """Modules side by side, each with inputs of its own."""

    def __init__(self, modules: list[Any], inputs: list[tuple[Any, ...]]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(modules)
        self.inputs = [slice(*each) for each in pairwise([0, *accumulate(map(len, inputs))])]

    def forward(self, *given: Any) -> Any:
        return tuple(part(*given[own]) for part, own in zip(self.parts, self.inputs, strict=True))


def verdicts(cases: Iterable[Case], alone: Callable[[str], bool]) -> Iterator[tuple[str, Verdict]]:
    """Every case's; those of whose names `alone` holds, and those that do not come out right together, one by one."""
    every = list(cases)
    single = [case for case in every if alone(case[0])]
    rest = [case for case in every if not alone(case[0])]
    for k in range(0, len(rest), TOGETHER):
        some = rest[k : k + TOGETHER]
        inputs = [tuple(map(torch.clone, given)) for _, _, given in some]  # cases share some
        module = Several([make() for _, make, _ in some], inputs)
        if verdict(module, sum(inputs, ())).kind == "right":
            yield from ((name, Verdict("right")) for name, _, _ in some)
        else:
            single += some
    yield from ((name, verdict(make(), given)) for name, make, given in single)


def verdict(module: Any, inputs: tuple[Any, ...]) -> Verdict:
    """What comes of the import of a module in float64."""
    try:
        model = ops.from_torch(module, inputs)
    except (ValueError, TypeError) as error:
        text = str(error)
        is_refusal = text.startswith("from_torch: ") and "\n" not in text
        return Verdict("refused" if is_refusal else "wrong", text)
    if any("drop" in op.name for op in model.graph.operators):
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
        is_several = isinstance(module, Several)
        parts = zip(module.parts, module.inputs) if is_several else [(module, slice(None))]
        self.parts = [
            Part(f"parts.{k}." if is_several else "", part, own, inputs)
            for k, (part, own) in enumerate(parts)
        ]
        answers = [part.answer(inputs) for part in self.parts]
        outputs = [(k, y) for found, _ in answers for k, y in enumerate(found)]
        made = {name: g for _, found in answers for name, g in found.items()}
        regions = [r for k, r in enumerate(self.model.inputs.values()) if made.get(k) is not None]
        terms = [
            ops.multiply(ops.sum(r), k + 1.0)
            for r, (k, y) in zip(self.model.outputs, outputs, strict=True)
            if y.requires_grad
        ]
        wanted = [*regions, *graph.parameters]
        self.gradients = differentiate(reduce(ops.add, terms), wanted) if terms and wanted else {}
        self.is_wide = all(r.dtype != "float32" for r in graph.regions.values())

    def difference(self, inputs: tuple[Any, ...], tolerance: float) -> str:
        """Where the numbers differ from torch's on these inputs; nothing of parts where torch takes none such."""
        answers = [part.answer_if_any(inputs) for part in self.parts]
        if not any(answers):
            return ""
        values = dict(zip(self.model.inputs, map(array_of, inputs), strict=True)) | self.weights
        found, first = evaluate(self.model.graph, values), 0
        pairs, expected = list[tuple[str, Any, Any]](), dict[str, Any]()
        regions = list(self.model.inputs.values())
        for part, answer in zip(self.parts, answers, strict=True):
            if answer:
                outputs, made = answer
                own = self.model.outputs[first : first + part.outputs]
                pairs += [
                    (f"output {first + k}", found[r.name], array_of(y))
                    for k, (r, y) in enumerate(zip(own, outputs, strict=True))
                ]
                expected |= part.gradients(inputs, made, regions)
            first += part.outputs
        pairs += [
            (f"the gradient of {r.name}", found[g.name], expected[r.name])
            for r, g in self.gradients.items()
            if r.name in expected
        ]
        tolerance = tolerance if self.is_wide else TOLERANCE_OF_FLOAT32
        return next(
            (f"{what}: {text}" for what, a, b in pairs if (text := differing(a, b, tolerance))), ""
        )


class Part:
    """A module in torch that reads some of the inputs.

    Attributes:
        outputs: how many.
    """

    def __init__(self, name: str, module: Any, own: slice, inputs: tuple[Any, ...]) -> None:
        self.name, self.module, self.outputs = name, module, 0
        self.numbers = range(len(inputs))[own]
        given = inputs[own]
        spec = torch.utils._pytree.tree_flatten((given, {}))[1]
        self.followed = Peer.of(module, spec, given).followed

    def answer(self, inputs: tuple[Any, ...]) -> tuple[list[Any], dict[Any, Any]]:
        """The outputs, and gradients by number of the input and name of the parameter; buffers stay as they were."""
        leaves = [
            inputs[number].clone().requires_grad_(k in self.followed)
            for k, number in enumerate(self.numbers)
        ]
        before = {name: b.clone() for name, b in self.module.named_buffers()}
        found = [
            y
            for y in torch.utils._pytree.tree_leaves(self.module(*leaves))
            if isinstance(y, torch.Tensor)
        ]
        self.outputs = len(found)
        parameters = {f"{self.name}{name}": p for name, p in self.module.named_parameters()}
        wanted: dict[Any, Any] = dict(zip(self.numbers, leaves, strict=True)) | parameters
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

    def answer_if_any(self, inputs: tuple[Any, ...]) -> tuple[list[Any], dict[Any, Any]] | None:
        """Nothing where torch takes no such inputs."""
        try:
            return self.answer(inputs)
        except (RuntimeError, ValueError, IndexError):
            return None

    def gradients(
        self, inputs: tuple[Any, ...], made: dict[Any, Any], regions: list[Any]
    ) -> dict[str, Any]:
        """Of inputs and parameters, by the regions' names; zeros where torch gives none."""
        given = {name: g for name, g in made.items() if g is not None}
        theirs = {
            regions[k].name: array_of(given.get(k, torch.zeros_like(inputs[k])))
            for k in self.numbers
        }
        named = {
            f"{self.name}{name}": array_of(given.get(f"{self.name}{name}", torch.zeros_like(p)))
            for name, p in self.module.named_parameters()
        }
        return theirs | ops.from_torch_state(named)


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
