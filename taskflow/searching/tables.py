"""Tables: what every configuration of an operator takes, and what moves between those of two, as a pool has it.

Takes a space and the judge of its strategies; gives the columns on which the exhaustive search bounds. A family is an
operator that a strategy names with those that follow it, as one configuration decides for all of them. What moves of a
region depends on the points of the operators that touch it. Where these are of one or two families its fragment is
known as soon as both are decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from taskflow.core.columns import Array, pointers
from taskflow.graph.graph import Operator
from taskflow.searching.bound import least_seconds, whole_seconds
from taskflow.searching.packed_judge import PackedJudge
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
    operators = list(space.graph.operators)
    pool = judge.pool
    leaders = {name: number for number, name in enumerate(space.names)}
    family = np.array([leaders[op.follows or op.name] for op in operators])
    sizes = [space.size(name) for name in space.names]
    points = np.full((2, len(operators), max(sizes)), -1, np.int64)
    for name in space.names:
        for number, config in enumerate(space.configs(name)):
            points[:, judge.followers[name], number] = judge.columns(name, config)
    additions = list(judge.lowering.additions.makers)
    points[:, additions] = -1  # where these have points depends on who makes what they add
    of = pool.op_rows.data[points[1]]
    until = np.append(0.0, np.cumsum(pool.packed.seconds[: pool.packed.filled["rows"][0]]))
    seconds = until[of["first"] + of["count"]] - until[of["first"]]
    splits = [Splits(op, space) for op in operators]
    whole = whole_seconds(judge.lowering, judge.costs)
    whole *= np.array([split.work for split in splits])[:, None]
    writers = list(_writers(operators, splits))
    return BoundTables(
        family,
        points[1],
        seconds,
        least_seconds(splits, whole, space.machine, judge.costs),
        whole.min(axis=1),
        np.array([float(split.most) for split in splits]),
        pointers([len(of_operator) for of_operator in writers]),
        np.array([writer for of_operator in writers for writer in of_operator], np.int64),
        *_fragments(judge, family, sizes, points[0]),
    )


def _writers(operators: Sequence[Operator], splits: Sequence[Splits]) -> Iterator[list[int]]:
    """Per operator who makes what every point of it reads."""
    made: dict[str, int] = {}
    for number, op in enumerate(operators):
        # Of what it adds to, only the first part waits.
        read = [
            k for k in range(len(op.inputs)) if splits[number].reads[k] > 0 and k not in op.adds
        ]
        yield [made[op.inputs[k].name] for k in read if op.inputs[k].name in made]
        made.update((region.name, number) for region in op.written)


def _fragments(
    judge: PackedJudge, family: Array, sizes: Sequence[int], points: Array
) -> tuple[Array, Array]:
    """`families` and `fragment` of all regions."""
    families = np.full((len(judge.touching), 2), -1, np.int64)
    fragment = np.full((len(families), max(sizes), max(sizes)), -1, np.int64)
    every = np.arange(len(judge.machine.devices))
    for region, ops in enumerate(judge.touching):
        of = np.unique(family[list(ops)])
        is_open = region in judge.lowering.fetched or (points[list(ops), 0] < 0).any()
        if is_open or not 0 < len(of) <= 2:
            continue
        families[region] = of[0], of[-1]
        for chosen in np.ndindex(*(sizes[f] for f in of)):
            numbers = np.zeros(len(family), np.int64)
            for f, number in zip(of, chosen, strict=True):
                numbers[family == f] = points[family == f, number]
            key = judge.key(region, numbers.tolist(), ())
            if key not in judge.pool.known:
                judge.pool.add_fragments(np.array([region]), numbers, [every])
                judge.pool.settle({key: judge.pool.fragments - 1})
            fragment[region, chosen[0], chosen[-1]] = judge.pool.known[key]
    return families, fragment
