"""Many modules imported as one: torch.export takes a third of a second for a graph of one call as for one of a hundred.

The modules are parts of one, each with inputs of its own; `import_together` gives what `from_torch` makes of each:

    parts    a(x), b(y, z)
    module   forward(x, y, z) = [a(x), b(y, z)], with the weights 'part0.weight', 'part1.weight'
    graph    part0 = ..., part1 = ...
    given    [graph of a over x and 'weight', graph of b over y, z and 'weight']

`from_torch`'s own comparison is done part by part, on the part's own graph: a tolerance is that of the part's numbers,
and inputs that one part does not take are tried on the others. A rule that refuses a call is an error: alone, torch
would take that call apart, and in the whole batch every other call of that function, whose rule nobody would see.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from unittest import mock

import torch
from torch import nn

import ops
from ops.torch.compare import compare
from ops.torch.imported import Imported
from taskflow.graph.rebuild import rebuild

_tree = torch.utils._pytree
Given = tuple[Any, tuple[Any, ...]]  # a module and its inputs


@dataclass(frozen=True)
class Part:
    """One module of a batch.

    Attributes:
        module, inputs: as for `from_torch`.
        prefix: of the names of its weights and buffers in the batch.
        fed, made: the first of its inputs and of its outputs in those of the batch, and the first that is not.
    """

    module: Any
    inputs: tuple[Any, ...]
    prefix: str
    fed: slice
    made: slice

    def own(self, whole: Imported) -> Imported:
        """What the batch's graph has of this part, under the names that it has alone."""
        inputs = dict([*whole.inputs.items()][self.fed])
        outputs = whole.outputs[self.made]
        wanted, kept = {r.name for r in (*inputs.values(), *outputs)}, []
        for op in reversed(whole.graph.operators):
            updates = any(op.inputs[k].name.startswith(self.prefix) for k in op.writes)
            if updates or any(r.name in wanted for r in op.outputs):
                wanted.update(r.name for r in op.args)
                kept.append(op)
        renamed = {
            name: replace(whole.graph.regions[name], name=self.alone(name))
            for name in wanted
            if whole.graph.regions[name].is_persistent
        }
        graph = rebuild(whole.graph, kept[::-1], renamed)
        names = {name: self.alone(name) if name in renamed else name for name in wanted}
        for name in graph.regions.keys() - names.values():
            del graph.regions[name]
        return Imported(
            graph,
            {key: graph.regions[r.name] for key, r in inputs.items()},
            tuple(graph.regions[names[r.name]] for r in outputs),
            {names[name]: value for name, value in whole.weights.items() if name in names},
        )

    def alone(self, name: str) -> str:
        """A weight's name without that of the part."""
        return name.removeprefix(self.prefix)


class Together(nn.Module):
    """Modules side by side; the result is a list of theirs."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self.slices = [part.fed for part in parts]
        for part in parts:
            self.add_module(part.prefix.removesuffix("."), part.module)

    def forward(self, *given: Any) -> list[Any]:
        return [part(*given[fed]) for part, fed in zip(self.children(), self.slices, strict=True)]


def import_together(given: Sequence[Given]) -> list[Imported]:
    """What `from_torch` makes of each module on its inputs.

    Raises:
        ValueError: any of them is refused, or has a call that its rule refuses and torch takes apart.
    """
    parts = _parts(given)

    def compare_parts(module: Any, inputs: Any, spec: Any, whole: Imported) -> list[str]:
        frozen = list[str]()
        for part in parts:
            leaves, own_spec = _tree.tree_flatten((part.inputs, {}))
            own = part.own(whole)
            for name in compare(part.module, leaves, own_spec, own):
                frozen.append(
                    part.prefix + name if part.prefix + name in whole.graph.regions else name
                )
        return frozen

    door = import_module("ops.torch.from_torch")
    with (
        mock.patch.object(door, "compared", compare_parts),
        mock.patch.object(door, "decomposition_of", lambda target: None),
    ):
        whole = ops.from_torch(Together(parts), tuple(x for _, inputs in given for x in inputs))
    return [part.own(whole) for part in parts]


def _parts(given: Sequence[Given]) -> list[Part]:
    parts, fed, made = list[Part](), 0, 0
    for k, (module, inputs) in enumerate(given):
        count = _count_of_outputs(module, inputs)
        parts.append(
            Part(
                module,
                inputs,
                f"part{k}.",
                slice(fed, fed + len(inputs)),
                slice(made, made + count),
            )
        )
        fed, made = fed + len(inputs), made + count
    return parts


def _count_of_outputs(module: Any, inputs: tuple[Any, ...]) -> int:
    """How many tensors forward gives; the module stays as it is."""
    state = {name: b.clone() for name, b in module.named_buffers()}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        found = module(*(x.clone() for x in inputs))
    for name, b in module.named_buffers():
        b.data.copy_(state[name])
    return sum(x is not None for x in _tree.tree_leaves(found))
