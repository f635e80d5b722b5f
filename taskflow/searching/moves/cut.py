"""The cut between two stages of a pipeline is moved: some operators go to the devices of the stage beside theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem
from taskflow.strategy.strategy import ParallelConfig


def move_cut(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """A random cut, by one, two, four ... operators, between stages of as many devices each."""
    if max(plan.parts, problem.repeat) == 1:
        return None
    names = problem.variant(plan).space.names
    places = [sorted(set(plan.strategy[name].devices)) for name in names]
    changes = {
        names[k]: _placed(plan.strategy[names[k]], devices)
        for k, devices in _across_a_cut(places, generator).items()
    }
    return problem.changed(plan, changes)


def _across_a_cut(
    places: Sequence[list[int]], generator: np.random.Generator
) -> Mapping[int, list[int]]:
    """Places beside a random cut -> the devices on its other side; empty: the stages have no such places."""
    cuts = [k for k in range(1, len(places)) if places[k] != places[k - 1]]
    if not cuts:
        return {}
    cut = cuts[int(generator.random() * len(cuts))]
    width = 1 << int(generator.random() * (len(places) // (len(cuts) + 1)).bit_length())
    moved = range(cut - width, cut)
    here, there = places[cut - 1 : cut + 1]
    if generator.random() < 1 / 2:
        moved = range(cut, cut + width)
        here, there = there, here
    if len(here) != len(there) or any(places[k : k + 1] != [here] for k in moved):
        return {}
    return dict.fromkeys(moved, there)


def _placed(config: ParallelConfig, devices: list[int]) -> ParallelConfig:
    """A configuration on as many other devices, in the same order."""
    other = dict(zip(sorted(set(config.devices)), devices, strict=True))
    return ParallelConfig(dict(config.degrees), [other[device] for device in config.devices])
