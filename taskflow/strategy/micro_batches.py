"""Micro-batches: any strategy, once for every part of the samples.

A micro-batch is a part of a sample split whose points share a device. So what splits samples into `shards` on different
devices splits them into `parts * shards` here: micro-batch after micro-batch, each as the strategy has it. Operators
without samples, updates say, are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from numbers import Integral

from taskflow.graph.family import Family, families
from taskflow.graph.graph import Graph
from taskflow.graph.samples import sample_groups
from taskflow.strategy.strategy import Degree, ParallelConfig, Strategy, points_along
from taskflow.strategy.strategy import parts as parts_of

InParts = dict[tuple[object, ...], ParallelConfig]  # by what a configuration in parts is made of


def micro_batches(graph: Graph, strategy: Strategy, parts: int) -> Strategy:
    """The strategy with so many equal micro-batches.

    Raises:
        ValueError: an operator has fewer samples than points along them, cannot be split so, or its samples do not
            divide into `parts`.
    """
    check_parts(parts)
    chosen = strategy.copy()
    if parts == 1:
        return chosen
    sample = sample_groups(graph)
    made = InParts()
    for family in families(graph, strategy):
        name = family.leader.name
        if name not in strategy:
            continue
        axes = sample.get(name, ())
        chosen[name] = in_parts("micro-batches", family, axes, strategy[name], parts, made)
        if _extent(family, axes) % parts and chosen[name] != strategy[name]:
            raise ValueError(
                f"micro-batches: the {_extent(family, axes)} samples of '{name}' do not divide into {parts}"
            )
    return chosen


def _extent(family: Family, axes: Sequence[str]) -> int:
    """The points along all of these axes."""
    return prod(family.leader.extents[axis] for axis in axes)


def check_parts(parts: int) -> None:
    """ValueError: this is no number of micro-batches."""
    if not isinstance(parts, Integral) or isinstance(parts, bool) or parts < 1:
        raise ValueError(f"micro-batches: {parts!r} of them; a positive number is needed")


def most_micro_batches(graph: Graph, strategy: Strategy, parts: int) -> int:
    """The most micro-batches, up to `parts`, that the graph takes under the strategy."""
    for count in range(parts, 1, -1):
        with suppress(ValueError):
            micro_batches(graph, strategy, count)
            return count
    return 1


def in_parts(
    where: str,
    family: Family,
    axes: Sequence[str],
    config: ParallelConfig,
    parts: int,
    made: InParts | None = None,
) -> ParallelConfig:
    """The configuration of a family once for every micro-batch, which are cut along the axes of its samples.

    What is `made` is not made again: those of equal layers are one object, with one list of devices.

    Raises:
        ValueError: there are too few samples, or the family cannot be split so; the message begins with `where`.
    """
    leader = family.leader
    degrees = dict(config.degrees)
    axes = [axis for axis in axes if axis in leader.split_axes]
    if not axes:
        return config
    own_axes = [axis for axis in axes if axis in degrees]
    shares = degrees.get(axes[-1], 1)
    shards = prod(parts_of(degrees[axis]) for axis in own_axes)
    extent = _extent(family, axes)
    wanted = shards * parts
    if extent < wanted:
        raise ValueError(
            f"{where}: '{leader.name}' has {extent} samples; {parts} micro-batches in {shards} parts need {wanted}"
        )
    cut: dict[str, Degree] = {**family.share_out(axes, wanted)}
    if isinstance(shares, tuple) and len(axes) == 1:
        cut = {axes[0]: tuple(share / parts for share in shares) * parts}
    rest = {axis: degree for axis, degree in degrees.items() if axis not in axes}
    if prod(map(parts_of, cut.values())) < wanted or not family.allows({**cut, **rest}):
        named = " ".join(axes)
        raise ValueError(
            f"{where}: '{leader.name}' or what follows it cannot be split into {wanted} along its samples, '{named}'"
        )
    key = config, tuple(cut.items()), tuple(own_axes), parts
    if made is None or key not in made:
        devices = points_along(config, own_axes).reshape(-1).tolist()
        made = {} if made is None else made
        made[key] = ParallelConfig({**cut, **rest}, devices * parts)
    return made[key]
