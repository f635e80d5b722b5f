"""All of torch.nn and torch.nn.functional through the door: what is said of each call is torch's number, or a refusal.

A case is a module and its inputs. `verdict` imports it, and compares outputs and the gradients of inputs and weights
with torch's, on the example and on inputs of zeros, ties, kinks and large values, with masks that are full and empty.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch

import ops
from ops.torch.compare import evaluate
from ops.torch.peer import Peer, array_of
from taskflow import differentiate

# the product's own tries and these differ on purpose
KINKS = (-20.0, -6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 20.0)
TOLERANCE = 1e-9  # of the largest value, in float64


@dataclass(frozen=True)
class Verdict:
    """"right", "refused" or "wrong", and what was said or differed."""

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
    made = {"u": lambda: torch.sigmoid(x), "s": lambda: torch.where(x > 0, 1.0, -1.0).double(), "b": lambda: x > 0}
    made |= {"l": lambda: torch.log_softmax(x, -1), "p": lambda: torch.softmax(x, -1), "": lambda: x}
    return made[kind]()


def verdict(module: Any, inputs: tuple[Any, ...]) -> Verdict:
    """What comes of the import of a module in float64."""
    try:
        model = ops.from_torch(module, inputs)
    except (ValueError, TypeError) as error:
        text = str(error)
        is_refusal = text.startswith("from_torch: ") and "\n" not in text
        return Verdict("refused" if is_refusal else "wrong", text)
    except Exception as error:
        return Verdict("wrong", f"{type(error).__name__}: {error}")
    if any("drop" in op.name for op in model.graph.operators):
        return Verdict("right")  # what is drawn differs; the import has compared it without
    followed = Peer.of(module, torch.utils._pytree.tree_flatten((inputs, {}))[1], inputs).followed
    for name, values in varied(inputs):
        if text := differences(module, model, values, followed):
            return Verdict("wrong", f"{name}: {text}")
    return Verdict("right")


def varied(inputs: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The example, and others of the same shapes."""
    yield "the example", inputs
    random = torch.Generator().manual_seed(1)
    of_floats = {
        "zeros": torch.zeros_like,
        "ones": torch.ones_like,
        "kinks": lambda x: torch.tensor(KINKS, dtype=x.dtype)[torch.randint(len(KINKS), x.shape, generator=random)],
        "large": lambda x: torch.where(torch.rand(x.shape, generator=random) < 0.5, -1e4, 1e4).to(x.dtype),
        "ends": lambda x: torch.where(torch.rand(x.shape, generator=random) < 0.5, x.min(), x.max()),
        "zeros and ones": lambda x: torch.randint(2, x.shape, generator=random).to(x.dtype),
    }
    for name, make in of_floats.items():
        yield name, tuple(make(x) if x.is_floating_point() else x for x in inputs)
    for name, value in (("empty", False), ("full", True)):
        yield name, tuple(torch.full_like(x, value) if x.dtype == torch.bool else x for x in inputs)
    yield "the least", tuple(x if x.is_floating_point() else torch.full_like(x, x.min()) for x in inputs)


def differences(module: Any, model: Any, inputs: tuple[Any, ...], followed: frozenset[int]) -> str:
    """Where the numbers differ from torch's on these inputs; nothing where torch takes none such."""
    leaves = [x.clone() for x in inputs]
    for k, x in enumerate(leaves):
        x.requires_grad_(k in followed)
    before = {name: b.clone() for name, b in module.named_buffers()}
    try:
        results = [y for y in torch.utils._pytree.tree_leaves(module(*leaves)) if isinstance(y, torch.Tensor)]
        wanted = [*(x for x in leaves if x.requires_grad), *(p for p in module.parameters() if p.requires_grad)]
        total = sum(((k + 1) * y).sum() for k, y in enumerate(results) if y.requires_grad)
        made = torch.autograd.grad(total, wanted, allow_unused=True) if isinstance(total, torch.Tensor) else []
    except (RuntimeError, ValueError, IndexError):
        return ""
    finally:
        for name, b in module.named_buffers():
            b.data.copy_(before[name])
    values = dict(zip(model.inputs, map(array_of, inputs), strict=True)) | model.weights
    return _compared(module, model, values, results, list(made), followed)


def _compared(
    module: Any, model: Any, values: Any, results: list[Any], made: list[Any], followed: frozenset[int]
) -> str:
    found = evaluate(model.graph, values)
    for k, (region, y) in enumerate(zip(model.outputs, results, strict=True)):
        if text := _difference(found[region.name], array_of(y)):
            return f"output {k}: {text}"
    copied = model.with_regions({}, {})
    graph = copied.graph
    regions = [copied.graph.regions[r.name] for r in copied.outputs]
    parts = [
        ops.multiply(ops.sum(r), k + 1.0) for k, (r, y) in enumerate(zip(regions, results)) if y.requires_grad
    ]
    if not made or not parts:
        return ""
    floats = [r for k, r in enumerate(copied.inputs.values()) if k in followed]
    known = [r for r, g in zip(floats, made) if g is not None]
    gradients = differentiate(reduce(ops.add, parts), [*known, *graph.parameters])
    found = evaluate(graph, values)
    expected = {r.name: g for r, g in zip(floats, made)}
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    given = dict(zip(names, made[len(floats) :]))
    zeros = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    expected |= {
        name: torch.tensor(g)
        for name, g in ops.from_torch_state(
            {name: array_of(zeros[name] if given.get(name) is None else given[name]) for name in zeros}
        ).items()
    }
    for region, gradient in gradients.items():
        theirs = expected[region.name]
        theirs = np.zeros(region.shape) if theirs is None else array_of(theirs)
        if text := _difference(found[gradient.name], theirs):
            return f"the gradient of '{region.name}': {text}"
    return ""


def _difference(found: Any, expected: Any) -> str:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape}, torch's is {expected.dtype} {expected.shape}"
    ours, theirs = found.astype(float), expected.astype(float)
    largest = max(1.0, float(np.abs(theirs).max(initial=0.0, where=np.isfinite(theirs))))
    wrong = ~np.isclose(ours, theirs, rtol=0, atol=TOLERANCE * largest, equal_nan=True)
    if not wrong.any():
        return ""
    at = tuple(np.argwhere(wrong)[0].tolist())
    return f"{np.count_nonzero(wrong)} of {wrong.size} elements, at {at} {ours[at]:.6g} for {theirs[at]:.6g}"
