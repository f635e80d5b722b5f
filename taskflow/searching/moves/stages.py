"""Stages of a pipeline: a cut between two is moved, they get other devices, and there are more micro-batches or fewer.

Two stages become one, one becomes two, or one gives devices to the other; they may be unequal.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.grids import RESTS
from taskflow.searching.problem import SearchProblem, Variant
from taskflow.strategy.strategy import ParallelConfig, Strategy


class StageSection(NamedTuple):
    """Operators behind each other on the same devices."""

    names: list[str]
    devices: list[int]

    def with_samples_split(self, variant: Variant) -> dict[str, ParallelConfig]:
        """Configurations of the operators: samples over all of the devices."""
        count = len(self.devices)
        config = variant.grids.config
        return {name: config(name, self.devices, count, 1, RESTS[0]) for name in self.names}


def _sections(plan: Plan, names: list[str]) -> list[StageSection]:
    sections: list[StageSection] = []
    for name in names:
        devices = sorted(set(plan.strategy[name].devices))
        if not sections or sections[-1].devices != devices:
            sections.append(StageSection([], devices))
        sections[-1].names.append(name)
    return sections


def change_parts(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """Twice as many micro-batches, or half as many, whatever nobody judged. Steps in a row are micro-batches."""
    if problem.space is not None or problem.repeat > 1:
        return None
    for parts in (2 * plan.parts, plan.parts // 2)[:: 1 if generator.random() < 1 / 2 else -1]:
        if parts and problem.is_new(other := problem.in_parts(plan, parts)):
            return other
    return None


def move_cut(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """A random cut, by one, two, four ... operators, between stages of as many devices each."""
    if max(plan.parts, problem.repeat) == 1:
        return None
    names = problem.variant(plan).space.names
    sections = _sections(plan, names)
    if len(sections) < 2:
        return None
    here, there = list(pairwise(sections))[int(generator.random() * (len(sections) - 1))]
    width = 1 << int(generator.random() * (len(names) // len(sections)).bit_length())
    names = here.names[-width:]
    if generator.random() < 1 / 2:
        here, there = there, here
        names = here.names[:width]
    if len(here.devices) != len(there.devices) or width > len(here.names):
        return None
    return problem.changed(
        plan, {name: _placed(plan.strategy[name], there.devices) for name in names}
    )


def _placed(config: ParallelConfig, devices: list[int]) -> ParallelConfig:
    """A configuration on as many other devices, in the same order."""
    other = dict(zip(sorted(set(config.devices)), devices, strict=True))
    return ParallelConfig(dict(config.degrees), [other[device] for device in config.devices])


def change_groups(
    plan: Plan, problem: SearchProblem, generator: np.random.Generator
) -> Plan | None:
    """Other devices for a random stage, and the one behind it. Within new groups samples are split."""
    if problem.space is not None:
        return None
    before = _sections(plan, problem.plain.space.names)
    after = _regrouped(before, generator)
    devices = [device for section in after for device in section.devices]
    if not after or len(set(devices)) < len(devices):
        return None  # a group has several stages
    plan = replace(plan, strategy=_with_samples_split(plan.strategy, before, after, problem.plain))
    parts = max(plan.parts, 2) if len(after) > 1 and problem.repeat == 1 else plan.parts
    return problem.in_parts(plan, parts)


def _regrouped(sections: list[StageSection], generator: np.random.Generator) -> list[StageSection]:
    """Sections of which a random one, or two, have other groups; empty: it cannot be split so."""
    k = int(generator.random() * len(sections))
    if generator.random() < 1 / 2 and k + 1 < len(sections):
        new = _shared_out(sections[k], sections[k + 1], generator)
        return [*sections[:k], *new, *sections[k + 2 :]]
    new = _split(sections[k], generator)
    return [*sections[:k], *new, *sections[k + 1 :]] if new else []


def _shared_out(
    one: StageSection, other: StageSection, generator: np.random.Generator
) -> list[StageSection]:
    """Two with the devices of both shared out otherwise, or as one."""
    devices = one.devices + other.devices
    size = int(generator.random() * len(devices))
    if not size:
        return [StageSection(one.names + other.names, devices)]
    return [StageSection(one.names, devices[:size]), StageSection(other.names, devices[size:])]


def _split(section: StageSection, generator: np.random.Generator) -> list[StageSection]:
    """One as two, each with some of its operators and devices; empty: one of them would have none."""
    names, devices = section
    size = int(generator.random() * len(devices))
    cut = int(generator.random() * len(names))
    if not size or not cut:
        return []
    return [StageSection(names[:cut], devices[:size]), StageSection(names[cut:], devices[size:])]


def _with_samples_split(
    strategy: Strategy, before: list[StageSection], after: list[StageSection], variant: Variant
) -> Strategy:
    """Other configurations for the operators of new groups: samples over all of their devices."""
    data = strategy.data
    configs = {name: data[name] for name in data if name in variant.grids.families}
    for section in after:
        if all(other.devices != section.devices for other in before):
            configs |= section.with_samples_split(variant)
    return Strategy.of_graph(variant.graph, configs)
