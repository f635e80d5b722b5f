"""The cut between two stages of a pipeline is moved: some operators go to the devices of the stage beside theirs."""

from __future__ import annotations

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem
from taskflow.strategy.strategy import ParallelConfig


def move_cut(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """A random cut, by one, two, four ... operators, between stages of as many devices each."""
    is_pipeline = max(plan.parts, problem.repeat) > 1
    names = problem.variant(plan).space.names if is_pipeline else []
    places = [sorted(set(plan.strategy[name].devices)) for name in names]
    cuts = [k for k in range(1, len(places)) if places[k] != places[k - 1]]
    if not cuts:
        return None
    cut = cuts[int(generator.random() * len(cuts))]
    before = places[cut - 1]
    behind = places[cut]
    width = 1 << int(generator.random() * (len(names) // (len(cuts) + 1)).bit_length())
    moved = range(cut - width, cut)
    here = before
    there = behind
    if generator.random() < 1 / 2:
        moved = range(cut, cut + width)
        here = behind
        there = before
    if len(here) != len(there) or any(places[k : k + 1] != [here] for k in moved):
        return None
    return problem.changed(plan, {names[k]: _placed(plan.strategy[names[k]], there) for k in moved})


def _placed(config: ParallelConfig, devices: list[int]) -> ParallelConfig:
    """A configuration on as many other devices, in the same order."""
    other = dict(zip(sorted(set(config.devices)), devices, strict=True))
    return ParallelConfig(dict(config.degrees), [other[device] for device in config.devices])
