"""A strategy for torch's own DTensor: a `parallelize_plan` where that can say it, and what it cannot say, by name.

A plan of torch is a style per submodule on one mesh of all devices; ours is a configuration per operator. So what can
be said is an operator that is a submodule with weights, if its points are all devices in order and every degree is a
product of neighbouring dimensions of the mesh, which has the prime factors of the number of devices. What stands
between submodules (scores, sums) is placed by torch, by what it reads; convolutions are whole there.

Outputs stay split along the batch. Along another axis they do where only elementwise operators read them up to the next
submodule, as in Megatron's perceptron; else they are gathered, so that views of any kind see whole dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ops.building import terms
from ops.torch.imported import Imported
from taskflow import Graph, Operator, ParallelConfig

_REPLICAS = "replicas"  # no axis, as `ParallelConfig` has it
Axes = tuple[str | None, ...]  # of every dimension of the mesh, what is split over it
Split = tuple[int | None, ...]  # the same as dimensions of a tensor


@dataclass(frozen=True)
class Placed:
    """How a submodule lies on the mesh: per dimension of the mesh the dimension of a tensor that is split, or None.

    Attributes:
        weights: of each weight by its name in the submodule.
        read, made: of its input, and of its output.
    """

    weights: dict[str, Split]
    read: Split
    made: Split


@dataclass(frozen=True)
class DTensorPlan:
    """What torch can be told of a strategy.

    Attributes:
        mesh: extents of the mesh, for `init_device_mesh(kind, plan.mesh)`.
        placed: submodule -> how it lies there.
        unsaid: operator -> why its configuration is not in the plan.
    """

    mesh: tuple[int, ...]
    placed: dict[str, Placed]
    unsaid: dict[str, str]

    @property
    def styles(self) -> dict[str, Any]:
        """Submodule -> style: the `parallelize_plan` of torch's `parallelize_module`; all else is replicated."""
        make = _style_class()
        tied = dict[int, Any]()
        whole = Placed({}, (None,) * len(self.mesh), (None,) * len(self.mesh))
        return {
            **{name: make(p, tied) for name, p in self.placed.items()},
            "": make(whole, tied, is_root=True),
        }

    def parallelize(self, module: Any, kind: str = "cpu") -> Any:
        """The module with distributed weights, on a mesh of all ranks of torch.distributed's default group."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import parallelize_module

        return parallelize_module(module, init_device_mesh(kind, self.mesh), self.styles)


def to_dtensor(strategy: Mapping[str, ParallelConfig], module: Any, model: Imported) -> DTensorPlan:
    """The strategy as a `parallelize_plan` of torch's DTensor, as far as that can say it.

    Args:
        strategy: of the graph, for a number of devices that is used by one of its operators at least.
        module: that the graph was made of.
        model: what `from_torch` gave of it; its graph may have an optimizer by now.

    Raises:
        ValueError: no operator of the strategy is in the graph; a convolution under torch before 2.12.
    """
    graph = model.graph
    forward = [op for op in graph.operators if not op.is_backward and not op.writes]
    configs = {
        op.name: strategy[op.follows or op.name]
        for op in forward
        if (op.follows or op.name) in strategy
    }
    if not configs:
        raise ValueError("to_dtensor: the strategy has no operator of the graph")
    mesh = _prime_factors(max(max(c.devices) for c in configs.values()) + 1)
    modules = {
        name: m
        for name, m in module.named_modules()
        if next(m.parameters(recurse=False), None) is not None
    }
    _check_convolutions([op.name for op in forward if op.windows and op.name in modules])
    placed = dict[str, Placed]()
    unsaid = dict[str, str]()
    readers = _readers(graph)
    for op in forward:
        if (config := configs.get(op.name)) is None:
            continue
        axes, why = _on_mesh(config, mesh)
        split = {a for a in axes if a is not None}
        if op.name not in modules:
            if not why and split - set(_dims(terms(op)[1][0])[:1]):
                why = "it is no submodule with weights: torch places it by what it reads"
            if why and prod(n for _, n in _degrees(config)) > 1:
                unsaid[op.name] = why
            continue
        why = why or _not_placed(op, split)
        if why:
            unsaid[op.name], axes = why, (None,) * len(mesh)
        if inner := split & set(_flattened(op)):
            unsaid[op.name] = (
                f"axis '{min(inner)}' lies in the rows that torch flattens for a product"
            )
            axes = tuple(None if a in inner else a for a in axes)
        if inner := split & _summed(op, forward):
            unsaid[op.name] = f"axis '{min(inner)}' is summed within it, which torch does whole"
            axes = tuple(None if a in inner else a for a in axes)
        placed[op.name] = _placed(op, axes, _stays_split(op, readers, modules))
    updates = [op.name for op in graph.operators if op.writes and op.name in strategy]
    unsaid |= dict.fromkeys(
        updates, "an update is no submodule: see torch's ZeroRedundancyOptimizer"
    )
    return DTensorPlan(mesh, placed, unsaid)


def _check_convolutions(names: Sequence[str]) -> None:
    """ValueError where torch would compute them wrongly: patches of MLP-Mixer differed by 0.5 under torch 2.11."""
    import torch

    if names and torch.__version__ < "2.12":
        raise ValueError(
            f"to_dtensor: '{names[0]}' is a convolution, which DTensor computes rightly from torch 2.12 on, "
            f"and this is torch {torch.__version__}"
        )


def _prime_factors(count: int) -> tuple[int, ...]:
    factors = []
    factor = 2
    while count > 1:
        while count % factor == 0:
            factors.append(factor)
            count //= factor
        factor += 1
    return tuple(factors) or (1,)


def _degrees(config: ParallelConfig) -> list[tuple[str, int]]:
    return [(a, d if isinstance(d, int) else len(d)) for a, d in config.degrees]


def _on_mesh(config: ParallelConfig, mesh: Sequence[int]) -> tuple[Axes, str]:
    """The axis that is split over each dimension of the mesh, or why there is none."""
    nothing: Axes = (None,) * len(mesh)
    if any(not isinstance(d, int) for _, d in config.degrees):
        return nothing, "its parts are not equal"
    if config.points == 1:
        return nothing, ""
    if config.devices != tuple(range(prod(mesh))):
        return (
            nothing,
            f"its points lie on the devices {', '.join(map(str, config.devices))}, not on all in order",
        )
    axes = list[str | None]()
    rest = list(mesh)
    for axis, degree in _degrees(config):
        while degree > 1:
            if not rest or degree % rest[0]:
                return nothing, f"its degrees do not divide the mesh {tuple(mesh)}"
            degree //= rest.pop(0)
            axes.append(None if axis == _REPLICAS else axis)
    return (*axes, *(None for _ in rest)), ""


def _dims(term: str) -> list[str]:
    """The axis of every dimension of a term; '' where there is none or a group of several."""
    text = term.replace("^", "")
    dims = list[str]()
    depth = ""
    for word in text.split():
        if depth or word.startswith("("):
            depth = "" if word.endswith(")") else "("
            dims += [""] if not depth else []
        else:
            dims.append("" if word in ".1" else word)
    return [] if text.strip() == "." else dims


def _not_placed(op: Operator, split: Iterable[str]) -> str:
    """Why torch cannot split a submodule so, or nothing."""
    if op.windows and split:
        return "it is a convolution, which torch's DTensor computes whole"
    for axis in split:
        if not any(axis in _dims(t) for t in (*terms(op)[0], *terms(op)[1])):
            return f"axis '{axis}' is a part of a dimension"
    return ""


def _flattened(op: Operator) -> list[str]:
    """The leading dimensions but the first of what is multiplied by a matrix: torch makes them one with that."""
    read = terms(op)[0]
    is_product = len(read) > 1 and len(_dims(read[1])) == 2
    return _dims(read[0])[1:-1] if is_product and op.inputs[0].is_floating else []


def _summed(op: Operator, forward: Iterable[Operator]) -> set[str]:
    """The axes of its input along which another operator of the submodule sums it.

    DTensor of torch 2.13 fails for RMSNorm there: it adds to a partial mean in place.
    """
    axes = _dims(terms(op)[0][0])
    summed = set[str]()
    for part in forward:
        if part.name.startswith(f"{op.name}.") and part.inputs[0].name == op.inputs[0].name:
            (read, *_), (made, *_) = terms(part)
            summed |= {
                a for a, inner in zip(axes, _dims(read), strict=True) if inner not in _dims(made)
            }
    return summed


def _readers(graph: Graph) -> dict[str, list[Operator]]:
    readers: dict[str, list[Operator]] = {}
    for op in graph.operators:
        for region in {r.name for r in op.inputs}:
            readers.setdefault(region, []).append(op)
    return readers


def _stays_split(
    op: Operator, readers: Mapping[str, list[Operator]], modules: Mapping[str, Any]
) -> bool:
    """Whether only elementwise operators read the result, up to submodules, which ask for what they need."""
    waiting = [op.outputs[0]]
    is_read = False
    while waiting:
        region = waiting.pop()
        for reader in readers.get(region.name, ()):
            if reader.is_backward or reader.name in modules:
                is_read = True
                continue
            read, made = terms(reader)
            if len(read) != 1 or made != read:
                return False
            waiting += reader.outputs
    return is_read


def _placed(op: Operator, axes: Axes, stays_split: bool) -> Placed:
    read, (made, *_) = terms(op)

    def of(term: str, kept: bool = True) -> Split:
        dims = _dims(term)
        return tuple(dims.index(a) if a in dims and (kept or dims[0] == a) else None for a in axes)

    both = list(zip(op.inputs, read, strict=True))
    return Placed(
        {r.name.rpartition(".")[2]: of(t) for r, t in both if r.is_persistent},
        of(next(t for r, t in both if not r.is_persistent)),
        of(made, stays_split),
    )


def _style_class() -> Any:
    """The style of a submodule, made when torch is there."""
    import torch
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel.style import ParallelStyle

    def placements(split: Split) -> list[Any]:
        return [Replicate() if dim is None else Shard(dim) for dim in split]

    class PlannedStyle(ParallelStyle):  # type: ignore[misc]
        """Weights, input and output where they are placed; of the root, all that no other style has placed."""

        def __init__(self, placed: Placed, tied: dict[int, Any], is_root: bool = False) -> None:
            """`tied` is of all styles: a weight under two names stays one, as the first of them places it."""
            self.placed = placed
            self.tied = tied
            self.is_root = is_root

        def __repr__(self) -> str:
            return f"PlannedStyle({self.placed})"

        def _distributed(self, name: str, p: Any, mesh: Any) -> Any:
            if id(p) not in self.tied:
                split = self.placed.weights.get(name, (None,) * mesh.ndim)
                tensor = distribute_tensor(p.data, mesh, placements(split))
                made = torch.nn.Parameter(tensor, p.requires_grad)
                self.tied[id(p)] = made, p  # alive, so that its number is no other's
            return self.tied[id(p)][0]

        def _apply(self, module: Any, mesh: Any) -> Any:
            whole = placements((None,) * mesh.ndim)
            for part in module.modules() if self.is_root else [module]:
                for name, p in list(part._parameters.items()):
                    if p is not None and not isinstance(p, DTensor):
                        part.register_parameter(name, self._distributed(name, p, mesh))
                for name, buffer in list(part._buffers.items()):
                    if buffer is not None and not isinstance(buffer, DTensor):
                        part._buffers[name] = distribute_tensor(buffer, mesh, whole)

            def arrive(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
                return tuple(at(x, self.placed.read) for x in args)

            def at(x: Any, split: Split) -> Any:
                if not isinstance(x, torch.Tensor):
                    return x
                x = (
                    x
                    if isinstance(x, DTensor)
                    else DTensor.from_local(x, mesh, whole, run_check=False)
                )
                return x.redistribute(mesh, placements(split))

            module.register_forward_pre_hook(arrive)
            if not self.is_root:
                module.register_forward_hook(lambda _, args, output: at(output, self.placed.made))
            return module

    return PlannedStyle
