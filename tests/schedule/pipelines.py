"""Pipelines of cells, a cell a stage: placements by name, and random ones."""

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from hypothesis import strategies as st

from taskflow import Graph, MachineModel, lower, reorder, stages
from taskflow.simulation.simulate import schedule
from tests.schedule.cells import CellCosts, chain

Groups = list[tuple[int, ...]]  # the devices of every stage


def straight(count: int, times: int = 1) -> Groups:
    """A stage a device, `times` over."""
    return [(device,) for device in range(count)] * times


def there_and_back(count: int) -> Groups:
    """Two cells a device; those of the last one are one stage."""
    return straight(count) + straight(count)[::-1]


def both_ways(count: int) -> Groups:
    """Two pipelines in opposite directions."""
    return [tuple(dict.fromkeys((k, count - 1 - k))) for k in range(count)]


def to_all(count: int) -> Groups:
    """A stage a device, and one on all of them."""
    return [*straight(count), tuple(range(count))]


PLACEMENTS: dict[str, Callable[[int], Groups]] = {
    "straight": straight,
    "several": lambda count: straight(count, 3),
    "there and back": there_and_back,
    "both ways": both_ways,
    "to all": to_all,
    "passes": lambda count: straight(count, 3),  # of which the last alone goes back
}


class Pipeline(NamedTuple):
    """A graph and its rows, as lowered.

    Attributes:
        devices: of every stage.
        parts: micro-batches.
    """

    graph: Graph
    rows: object
    devices: Sequence[tuple[int, ...]]
    parts: int


def pipeline(groups: Groups, parts: int, is_joint: bool = False, forward_only: int = 0) -> Pipeline:
    """A cell a group of devices; each has the same number of samples in every micro-batch."""
    machine = MachineModel.uniform(1 + max(map(max, groups)))
    samples = parts * math.lcm(*map(len, groups))
    graph = chain(len(groups), samples, is_joint=is_joint, forward_only=forward_only)
    cuts = [f"cell{k}" for k in range(1, len(groups))]
    plan = stages(graph, machine, parts=parts, cuts=cuts, devices=groups)
    devices = [
        group for group, _ in groupby(groups)
    ]  # neighbours on the same devices are one stage
    return Pipeline(graph, lower(graph, plan, machine), devices, parts)


@st.composite
def pipelines(draw, placement=None, devices=(1, 4), parts=(1, 8)):
    """A pipeline of this placement, or of any: cells on one or two devices each, in any order."""
    count, parts = draw(st.integers(*devices)), draw(st.integers(*parts))
    group = st.lists(st.integers(0, count - 1), min_size=1, max_size=2, unique=True).map(tuple)
    if placement is None:
        groups = draw(st.lists(group, min_size=1, max_size=5))
    else:
        groups = PLACEMENTS[placement](count)
    forward_only = 2 * count if placement == "passes" else 0
    return pipeline(groups, parts, draw(st.booleans()), forward_only)


@st.composite
def cell_costs(draw):
    """A forward pass may take longer than a backward one."""
    return CellCosts(*(draw(st.integers(1, 4)) / 2 for _ in range(4)))


def units(rows, order, **costs):
    """The time that an order takes: compute alone."""
    costs = CellCosts(**costs)
    ordered = reorder(rows, costs, order)
    return schedule(ordered, costs.seconds(ordered))[2]
