"""Tables: what every configuration of an operator takes, and what moves between those of two, as a pool has it.

Takes a space and the judge of its strategies; gives the columns on which the exhaustive search bounds. A family is an
operator that a strategy names with those that follow it, as one configuration decides for all of them. What moves of a
region depends on the points of the operators that touch it. Where these are of one or two families its fragment is
known as soon as both are decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.searching.bound import least_seconds, work_seconds
from taskflow.searching.packed_judge import PackedJudge
from taskflow.searching.pool import Pool
from taskflow.searching.space import Space
from taskflow.searching.splits import Splits


class BoundTables(NamedTuple):
    """Operators, and what moves between them, for every configuration.

    Where one has fewer configurations than another the rest is padding, which nobody looks at.

    Attributes:
        family: per operator the number of its leader.
        rows: (operators, configurations) its ROWS in the pool; -1: they are not known before all is decided.
        seconds: (operators, configurations) of all its points together.
        least, whole: per operator the least seconds of a point, and of all of it on one device.
        most: per operator, how many points run side by side at most.
        writer_ptr, writer: per operator those of which every point of it is sure to read something.
        families: (regions, 2) the families that decide its fragment, perhaps one twice; -1: they are more.
        fragment: (regions, configurations of the first, of the second) its number in the pool.
    """

    family: Array
    rows: Array
    seconds: Array
    least: Array
    whole: Array
    most: Array
    writer_ptr: Array
    writer: Array
    families: Array
    fragment: Array


def bound_tables(space: Space, judge: PackedJudge) -> BoundTables:
    """What `boundpass.bound_children` reads."""
    family = np.array([space.names.index(op.follows or op.name) for op in space.graph.operators])
    columns = _columns(space, judge)
    splits = [Splits(op, space) for op in space.graph.operators]
    work = work_seconds(splits, judge.lowering, judge.costs)
    writers = list(_writers(splits))
    return BoundTables(
        family,
        columns[1],
        _seconds(judge.pool, columns[1]),
        least_seconds(splits, work, space.machine, judge.costs),
        work.min(axis=1),
        np.array([float(split.most) for split in splits]),
        pointers(list(map(len, writers))),
        np.array(list(chain.from_iterable(writers)), np.int64),
        *_fragments(judge, family, np.array(list(map(space.size, space.names))), columns[0]),
    )


def _columns(space: Space, judge: PackedJudge) -> Array:
    """(2, operators, configurations): the number of the points of each, and its ROWS in the pool; -1: unknown."""
    most = max(space.size(name) for name in space.names)
    columns = np.full((2, len(space.graph.operators), most), -1, np.int64)
    for name in space.names:
        for number, config in enumerate(space.configs(name)):
            columns[:, judge.followers[name], number] = judge.columns(name, config)
    additions = list(judge.lowering.additions.makers)
    columns[:, additions] = -1  # where these have points depends on who makes what they add
    return columns


def _seconds(pool: Pool, rows: Array) -> Array:
    """Of all of these ROWS together."""
    until = np.append(0.0, np.cumsum(pool.packed.seconds[: pool.packed.filled["rows"][0]]))
    extent = pool.op_rows.data[rows]
    seconds: Array = until[extent["first"] + extent["count"]] - until[extent["first"]]
    return seconds


def _writers(splits: Sequence[Splits]) -> Iterator[list[int]]:
    """Per operator who makes what every point of it reads."""
    made: dict[str, int] = {}
    for number, split in enumerate(splits):
        op = split.operator
        # Of what it adds to, only the first part waits.
        read = [
            region.name
            for k, region in enumerate(op.inputs)
            if split.reads[k] > 0 and k not in op.adds
        ]
        yield [made[name] for name in read if name in made]
        made.update((region.name, number) for region in op.written)


def _fragments(
    judge: PackedJudge, family: Array, sizes: Array, points: Array
) -> tuple[Array, Array]:
    """`families` and `fragment` of all regions."""
    families = np.full((len(judge.touching), 2), -1, np.int64)
    fragment = np.full((len(families), max(sizes), max(sizes)), -1, np.int64)
    for region, deciding in _decided_by_two(judge, family, points):
        families[region] = deciding[0], deciding[-1]
        for chosen in np.ndindex(*sizes[deciding]):
            fragment[region, chosen[0], chosen[-1]] = _fragment(
                judge, region, dict(zip(deciding, chosen, strict=True)), family, points
            )
    return families, fragment


def _decided_by_two(
    judge: PackedJudge, family: Array, points: Array
) -> Iterator[tuple[int, Array]]:
    """Regions of which one or two families decide what moves, and these."""
    for region, ops in enumerate(judge.touching):
        deciding = np.unique(family[list(ops)])
        is_open = region in judge.lowering.fetched or (points[list(ops), 0] < 0).any()
        if not is_open and 0 < len(deciding) <= 2:
            yield region, deciding


def _fragment(
    judge: PackedJudge, region: int, configs: Mapping[int, int], family: Array, points: Array
) -> int:
    """The number of a region's fragment, by the configurations of families; it is made where there is none."""
    numbers = np.zeros(len(family), np.int64)
    for one, config in configs.items():
        numbers[family == one] = points[family == one, config]
    key = judge.key(region, numbers.tolist(), ())
    if key not in judge.pool.known:
        judge.pool.add_fragments(
            np.array([region]), numbers, [np.arange(len(judge.machine.devices))]
        )
        judge.pool.settle({key: judge.pool.fragments - 1})
    return judge.pool.known[key]
