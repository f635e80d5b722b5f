"""The grids of experts, from patterns alone: data, tensor and sequence parallelism, sharded state.

Axes that meet in a dimension of a region are one group, through all of the forward pass: the heads between the
projections into and out of an attention, the hidden units between two linear layers, the words of a vocabulary. Tensor
parallelism (Shoeybi et al., "Megatron-LM", arXiv 1909.08053) splits operators with weights along one group each, so
that what one makes the next reads as it lies, by its output axis, then by its input axis, and one sum follows. Groups
are taken in the order of how many operators cannot be split along them, and only if all operators that have weights
along them are still free; so channels of successive convolutions alternate. All other operators are replicas, or split
along their samples, or along the group that most of them have: sequence parallelism (Korthikanti et al., arXiv
2205.05198). Tensor parallel devices are neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from math import prod

import numpy as np

from taskflow.core.columns import Array
from taskflow.graph.family import Family, families
from taskflow.graph.graph import Graph
from taskflow.graph.homes import is_home
from taskflow.graph.samples import sample_axes
from taskflow.searching.placement import divisors
from taskflow.strategy.strategy import REPLICAS, ParallelConfig, Strategy, replicas

EVEN = 16  # points of each part at least, where an extent has no equal parts
RESTS = (
    "replicas",
    "samples",
    "sequence",
)  # how operators that tensor parallelism does not split are split

Axis = tuple[str, str]  # leader, axis
Choice = tuple[int, int]  # degree of tensor parallelism, and the number of a group of axes or WHOLE
WHOLE = -1  # replicas in the place of tensor parallelism


class Grids:
    """Grids of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.families = {family.leader.name: family for family in families(graph)}
        self.samples = sample_axes(graph)
        weights = {r.name for r in graph.parameters} | {
            r.name for op in graph.operators if is_home(op) for r in op.outputs
        }
        self._weight_axes = {
            name: {
                axis
                for k, r in enumerate(family.leader.inputs)
                if r.name in weights
                for axis in family.leader.bound.term_axes[k]
            }
            for name, family in self.families.items()
        }
        self._is_weighted = {
            name
            for name, family in self.families.items()
            if any(r.name in weights and r.ndim > 1 for r in family.leader.inputs)
        }
        self._groups = _groups(graph, self.families)
        self._chosen = cache(self._choose)  # by the degree of tensor parallelism
        self._sequence = cache(self._choose_sequence)

    def strategy(
        self,
        devices: Sequence[int],
        tensor: int,
        rest: str = "replicas",
        context: int = 1,
        expert: int = 1,
        heads: int = 1,
        is_folded: bool = False,
    ) -> Strategy | None:
        """Each operator over all devices, `tensor` neighbours for a part of the samples; None: there is no such grid.

        Args:
            devices: their number is a multiple of `tensor` times `context`.
            tensor: degree of tensor parallelism.
            rest: one of RESTS.
            context: degree of context parallelism: parts of the sequence of all operators, `tensor` devices apart.
            expert: degree of expert parallelism: parts of the experts, over devices that split samples otherwise.
            heads: those of `context` that have as many parts of heads in attention, and of the sequence elsewhere.
            is_folded: whether a part of the sequence of attention is the d-th of twice as many blocks and the d-th from
                behind, whose work under a causal mask is that of any other; always where it is in such blocks.
        """
        data = len(devices) // (tensor * context)
        if (tensor > 1 and not self._chosen(tensor)) or data > self._most_samples:
            return None
        if (context > 1 and not self.sequence) or (expert > 1 and not self._experts):
            return None
        extents = data, context // heads, heads, tensor
        chosen = {
            name: self._in_context(name, devices, extents, rest, is_folded)
            if context > 1
            else self.config(name, devices, data, tensor, rest)
            for name in self.families
        }
        for name, (along, slots) in self._experts.items() if expert > 1 else ():
            degrees = (slots, data * context // expert), (along, expert), (REPLICAS, tensor)
            chosen[name] = grid_config(self.families[name], devices, degrees)
        return Strategy.of_graph(self.graph, chosen)

    def has_product(self, name: str) -> bool:
        """Whether a leader multiplies by weights, or scores keys."""
        return name in self._is_weighted or name in self.scores

    def choices(self, name: str, devices: Sequence[int]) -> dict[Choice, ParallelConfig]:
        """The grids that an operator alone may have, on all devices."""
        axes = {WHOLE: REPLICAS, **self._group_axes[name]}
        configs: dict[Choice, ParallelConfig] = {}
        for tensor in divisors(len(devices)):
            for number, axis in axes.items():
                config = self._beside_samples(name, devices, axis, tensor)
                if config is not None and config not in configs.values():
                    configs[tensor, number] = config
        return configs

    def _beside_samples(
        self, name: str, devices: Sequence[int], axis: str, tensor: int
    ) -> ParallelConfig | None:
        """`axis` over neighbours, and samples, where there are as many, over the others; None: it cannot be."""
        most = self.families[name].most
        sample = self.samples.get(name)
        if axis != REPLICAS and (axis == sample or not most[axis] >= tensor > 1):
            return None
        data = len(devices) // tensor
        along = sample if sample and most[sample] >= data else REPLICAS
        return grid_config(self.families[name], devices, ((along, data), (axis, tensor)))

    @cached_property
    def _group_axes(self) -> Mapping[str, Mapping[int, str]]:
        """Leader -> number of a group -> its axis there along which it can be split."""
        axis_of: dict[str, dict[int, str]] = {name: {} for name in self.families}
        for number, group in enumerate(self._groups):
            for name, axis in group:
                if axis in self.families[name].leader.split_axes:
                    axis_of[name][number] = axis
        return axis_of

    @cached_property
    def _most_samples(self) -> int:
        return max(
            (
                self.families[name].most[axis]
                for name, axis in self.samples.items()
                if name in self.families
            ),
            default=1,
        )

    def config(
        self, name: str, devices: Sequence[int], data: int, tensor: int, rest: str
    ) -> ParallelConfig:
        """The configuration of one operator in a grid of `data` times `tensor` devices."""
        family = self.families[name]
        sample = self.samples.get(name)
        if family.is_of_numbers:
            return replicas(devices)
        axis = self._chosen(tensor).get(name) if tensor > 1 else None
        if axis is None and rest == "sequence" and tensor > 1:
            axis = self._sequence(tensor).get(name)
        if axis is None and (
            not sample or (rest == "samples" and family.most[sample] >= data * tensor)
        ):
            return grid_config(family, devices, ((sample, data * tensor),) if sample else ())
        if not sample:
            return self._without_samples(family, devices, str(axis), data, tensor)
        return grid_config(family, devices, ((sample, data), (axis or REPLICAS, tensor)))

    def _without_samples(
        self, family: Family, devices: Sequence[int], axis: str, data: int, tensor: int
    ) -> ParallelConfig:
        """Along `axis` over all devices, if it has so many points; else along the largest axis of no weights, too."""
        if self._can((family.leader.name, axis), data * tensor):
            return grid_config(family, devices, ((axis, data * tensor),))
        others = [
            a
            for a in family.leader.split_axes
            if a != axis and a not in self._weight_axes[family.leader.name]
        ]
        other = max(others, key=lambda a: family.most[a], default=REPLICAS)
        return grid_config(family, devices, ((other, data), (axis, tensor)))

    def _in_context(
        self,
        name: str,
        devices: Sequence[int],
        extents: tuple[int, int, int, int],
        rest: str,
        is_folded: bool,
    ) -> ParallelConfig:
        """The configuration of one operator in a grid of data, parts of the sequence, heads and tensor parallelism."""
        family = self.families[name]
        if family.is_of_numbers:
            return replicas(devices)
        along = self.sequence.get(name) or REPLICAS
        grid = self._context_grid(name, devices, extents, is_folded)
        split = self._chosen(grid.shape[2]).get(name) if grid.shape[2] > 1 else None
        if split is None and rest == "sequence" and grid.shape[2] == extents[3]:
            split = along
        return grid_config(
            family,
            grid.reshape(-1).tolist(),
            zip((self.samples.get(name), along, split or REPLICAS), grid.shape, strict=True),
        )

    def _context_grid(
        self, name: str, devices: Sequence[int], extents: tuple[int, int, int, int], is_folded: bool
    ) -> Array:
        """(data, parts of the sequence, tensor parallelism) devices; of scores the heads are with the last."""
        _, parts, heads, tensor = extents
        grid = np.array(devices[: prod(extents)]).reshape(extents)
        is_folded = self.fewest == 2 * parts or (is_folded and self._is_causal)
        along = self.sequence.get(name, REPLICAS)
        if is_folded and self.families[name].most.get(along, 0) >= 2 * parts > 2:
            grid = np.hstack([grid, grid[:, ::-1]])
        if name in self.scores:
            grid = grid.swapaxes(2, 3)
            tensor = tensor * heads
        return grid.reshape(len(grid), -1, tensor)

    @cached_property
    def _is_causal(self) -> bool:
        """Whether a table says how many keys, that all gather, a query of attention sees."""
        leaders = (self.families[name].leader for name in self.scores)
        return any(leader.windows[dim].is_whole for leader in leaders for dim, _ in leader.work)

    @cached_property
    def fewest(self) -> int:
        """Points of the sequence of the operator that has fewest: blocks, where attention is in rounds."""
        leaders = ((self.families[name].leader, axis) for name, axis in self.sequence.items())
        return min((leader.extents[axis] for leader, axis in leaders), default=0)

    @cached_property
    def _data_groups(self) -> list[list[Axis]]:
        """Those of data that are not of samples."""
        return [g for g in self._groups if self._is_data(g) and not self._is_sample(g)]

    @cached_property
    def sequence(self) -> Mapping[str, str]:
        """Leader -> its axis in the group of data, not of samples, that most operators have: queries, not keys."""
        axis_of: dict[str, str] = {}
        for name, axis in reversed(max(self._data_groups, key=len, default=[])):
            if axis in self.families[name].leader.split_axes:
                axis_of[name] = axis
        return axis_of

    @cached_property
    def scores(self) -> tuple[str, ...]:
        """Leaders that have the axis of the sequence twice, of queries and of keys: the core of attention."""
        times = Counter(name for name, _ in max(self._data_groups, key=len, default=[]))
        for name, axis in self.sequence.items():  # keys that a table names
            leader = self.families[name].leader
            times[name] += sum(leader.windows[dim].axis == axis for dim, _ in leader.work)
        return tuple(name for name in self.families if times[name] > 1)

    @cached_property
    def _experts(self) -> Mapping[str, tuple[str, str | None]]:
        """Leaders with a product for each expert -> the axis of experts, and that of their slots."""
        axes_of: dict[str, tuple[str, str | None]] = {}
        for name in self._is_weighted & self.families.keys():
            leader = self.families[name].leader
            weights = self._weight_axes[name]
            read = leader.bound.term_axes[0]
            made = leader.bound.term_axes[len(leader.inputs)]
            if read & weights - made and (along := read & weights & made):
                slots = (a for a in leader.extents if a in read & made and a not in weights)
                axes_of[name] = min(along), next(slots, None)
        return {name: axes_of[name] for name in self.families if name in axes_of}

    # -- which axis --------------------------------------------------------------------------------------------------

    def _choose(self, tensor: int) -> Mapping[str, str]:
        """Leader -> the axis along which tensor parallelism of that degree splits it."""
        axis_of: dict[str, str] = {}
        for group, weighted in self._in_order(tensor):
            if not any(name in axis_of for name, _ in weighted):
                for name, axis in group:
                    if (name, axis) in weighted or name not in self._is_weighted:
                        axis_of.setdefault(name, axis)
        return axis_of

    def _in_order(self, tensor: int) -> Iterator[tuple[list[Axis], list[Axis]]]:
        """What can be split of groups with weights, and what of it has weights.

        First come those that fewest operators cannot be split along, those that two operators with weights share, and
        those by which the fewest partial results are summed: heads before the features of a whole decoder.
        """
        order = []
        for k, every in enumerate(self._groups):
            group = [axis for axis in every if self._can(axis, tensor)]
            weighted = [axis for axis in group if axis[1] in self._weight_axes[axis[0]]]
            if weighted and not self._is_data(every):
                rank = len(every) - len(group), len(weighted) < 2, self._sums(weighted), k
                order.append((*rank, group, weighted))
        for *_, group, weighted in sorted(order):
            yield group, weighted

    def _sums(self, weighted: Iterable[Axis]) -> float:
        """Bytes of partial results for a flop that is split, where operators are split along these axes."""
        size_bytes = 0.0
        flops = 0.0
        for name, axis in weighted:
            leader = self.families[name].leader
            made = leader.bound.term_axes[len(leader.inputs) :]
            size_bytes += sum(
                r.size_bytes
                for r, axes in zip(leader.outputs, made, strict=True)
                if axis not in axes
            )
            flops += leader.total_flops
        return size_bytes / flops if flops else 0.0

    def _choose_sequence(self, tensor: int) -> Mapping[str, str]:
        """Leader -> the axis of the group of data, not of samples, that most other operators have."""
        taken = self._chosen(tensor)
        groups = [
            [axis for axis in group if axis[0] not in taken and self._can(axis, tensor)]
            for group in self._data_groups
        ]
        largest: list[Axis] = max(groups, key=len, default=[])
        return dict(largest)

    def _is_sample(self, group: Iterable[Axis]) -> bool:
        return any(self.samples.get(name) == axis for name, axis in group)

    def _is_data(self, group: Iterable[Axis]) -> bool:
        """Whether an operator with weights has the axis and its weights have not, as samples and a sequence."""
        return any(n in self._is_weighted and axis not in self._weight_axes[n] for n, axis in group)

    def _can(self, axis: Axis, tensor: int) -> bool:
        """Whether a leader can be split along an axis in so many about equal parts, beside its samples."""
        family = self.families[axis[0]]
        (name, along) = axis
        extent = family.leader.extents[along]
        is_even = extent % tensor == 0 or extent >= EVEN * tensor
        return is_even and family.allows({along: tensor}) and self.samples.get(name) != along


def grid_config(
    family: Family, devices: Sequence[int], degrees: Iterable[tuple[str | None, int]]
) -> ParallelConfig:
    """A grid over `devices`, row-major in the order of `degrees`; the axes in the order of the operator.

    Where an operator has no such axis, or too few points along it, there are replicas in its place.
    """
    able = _able(family, degrees)
    axes = [*family.leader.extents, REPLICAS]
    order = tuple(sorted(range(len(able)), key=lambda k: axes.index(able[k][0])))
    split: dict[str, int] = {}
    for axis, degree in sorted(able, key=lambda part: axes.index(part[0])):
        split[axis] = split.get(axis, 1) * degree
    return ParallelConfig(
        split,
        _row_major(
            devices if isinstance(devices, range) else tuple(devices),
            tuple(degree for _, degree in able),
            order,
        ),
    )


def _able(family: Family, degrees: Iterable[tuple[str | None, int]]) -> list[tuple[str, int]]:
    """The degrees above one, along axes that can be split so."""
    able = [
        (axis if axis and family.most.get(axis, 0) >= degree else REPLICAS, degree)
        for axis, degree in degrees
        if degree > 1
    ]
    if family.allows({axis: degree for axis, degree in able if axis}):
        return able
    return [*able[:1], *((REPLICAS, degree) for _, degree in able[1:])]


@lru_cache
def _row_major(
    devices: Sequence[int], extents: tuple[int, ...], order: tuple[int, ...]
) -> tuple[int, ...]:
    """Devices of a grid of these extents, of which the dimensions are in this order: one object for all operators."""
    points = np.array(devices[: prod(extents)]).reshape(extents).transpose(order)
    return tuple(points.reshape(-1).tolist())


def _groups(graph: Graph, families_of: Mapping[str, Family]) -> list[list[Axis]]:
    """Axes of leaders that meet in a dimension of a region of the forward pass; in program order."""
    parent: dict[object, object] = {}

    def root(x: object) -> object:
        while (above := parent.setdefault(x, x)) != x:
            parent[x] = x = parent[above]  # path halving
        return x

    for meeting in _meetings(graph):
        parent[root(meeting[0])] = root(meeting[1])
    members: dict[object, list[Axis]] = {}
    for name, family in families_of.items():
        for axis in family.leader.extents:
            members.setdefault(root((name, axis)), []).append((name, axis))
    return list(members.values())


def _meetings(graph: Graph) -> Iterator[tuple[Axis, tuple[str, int]]]:
    """Axes of leaders with dimensions of regions of the forward pass that they, or operators behind them, go along."""
    for op in graph.operators:
        for term, region in () if op.is_backward else zip(op.bound.terms, op.args, strict=True):
            for dim, names in enumerate(term.dims):
                if names:
                    axis = op.follows or op.name, op.bound.axis_of(names[0])
                    yield axis, (region.name, dim)
