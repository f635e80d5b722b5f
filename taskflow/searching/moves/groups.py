"""Stages on other devices: two become one, one becomes two, or one gives devices to the other; they may be unequal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.grids import RESTS
from taskflow.searching.problem import SearchProblem
from taskflow.searching.shapes import ONE_STAGE
from taskflow.strategy.strategy import ParallelConfig, Strategy

Stages = list[tuple[int, list[int]]]  # first operator, and devices, of each


def change_groups(
    plan: Plan, problem: SearchProblem, generator: np.random.Generator
) -> Plan | None:
    """Of a random stage, and the one behind it. Within new groups samples are split."""
    if problem.space is not None:
        return None
    first = problem.variant(Plan(Strategy({})))
    names = first.space.names
    stages = _stages(names, plan)
    k = int(generator.random() * len(stages))
    begin, devices = stages[k]
    end = stages[k + 1][0] if k + 1 < len(stages) else len(names)
    if generator.random() < 1 / 2 and k + 1 < len(stages):
        both = devices + stages[k + 1][1]
        size = int(generator.random() * len(both))  # 0: one stage of both
        new = [(begin, both[:size]), (end, both[size:])] if size else [(begin, both)]
        changed = [*stages[:k], *new, *stages[k + 2 :]]
    else:
        size = int(generator.random() * len(devices))
        cut = begin + int(generator.random() * (end - begin))
        if not size or cut == begin:
            return None
        new = [(begin, devices[:size]), (cut, devices[size:])]
        changed = [*stages[:k], *new, *stages[k + 1 :]]
    if len({d for _, members in changed for d in members}) < sum(
        len(members) for _, members in changed
    ):
        return None  # a group has several stages
    configs = dict[str, ParallelConfig]()
    ends = [at for at, _ in changed[1:]] + [len(names)]
    for (at, here), until in zip(changed, ends, strict=True):
        if here in (members for _, members in stages):
            continue
        for name in names[at:until]:
            configs[name] = first.grids.config(name, here, len(here), 1, RESTS[0])
    kept = {n: c for n, c in plan.strategy.data.items() if n in first.grids.families}
    strategy = Strategy.of_graph(first.graph, kept | configs)
    parts = max(plan.parts, 2) if len(changed) > 1 else plan.parts
    schedule = plan.schedule if plan.parts > 1 else ONE_STAGE[0]
    return replace(plan, strategy=strategy, parts=parts, schedule=schedule if parts > 1 else None)


def _stages(names: Sequence[str], plan: Plan) -> Stages:
    """Runs of operators on the same devices."""
    stages: Stages = []
    for k, name in enumerate(names):
        devices = sorted(set(plan.strategy[name].devices))
        if not stages or stages[-1][1] != devices:
            stages.append((k, devices))
    return stages
