"""Stages on other devices: two become one, one becomes two, or one gives devices to the other; they may be unequal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from taskflow.schedule.plan import Plan
from taskflow.searching.grids import RESTS
from taskflow.searching.problem import SearchProblem, Variant
from taskflow.strategy.strategy import Strategy


class Section(NamedTuple):
    """Operators from number `begin` to number `end`, on the same devices."""

    begin: int
    end: int
    devices: list[int]


def change_groups(
    plan: Plan, problem: SearchProblem, generator: np.random.Generator
) -> Plan | None:
    """Of a random stage, and the one behind it. Within new groups samples are split."""
    if problem.space is not None:
        return None
    variant = problem.variant(Plan(Strategy({})))
    before = _sections(variant.space.names, plan)
    after = _regrouped(before, generator)
    if not after or _has_several(after):
        return None
    groups = [section.devices for section in before]
    new = [section for section in after if section.devices not in groups]
    plan = replace(plan, strategy=_with_samples_split(plan.strategy, new, variant))
    if len(after) > 1 and problem.repeat == 1:
        return problem.in_parts(plan, max(plan.parts, 2))
    return problem.in_parts(plan, plan.parts)


def _has_several(sections: Sequence[Section]) -> bool:
    """Whether a device has several of them."""
    devices = list(chain.from_iterable(section.devices for section in sections))
    return len(set(devices)) < len(devices)


def _sections(names: Sequence[str], plan: Plan) -> list[Section]:
    """Runs of operators on the same devices."""
    sections: list[Section] = []
    for k, name in enumerate(names):
        devices = sorted(set(plan.strategy[name].devices))
        if sections and sections[-1].devices == devices:
            sections[-1] = sections[-1]._replace(end=k + 1)
        else:
            sections.append(Section(k, k + 1, devices))
    return sections


def _regrouped(sections: list[Section], generator: np.random.Generator) -> list[Section]:
    """Sections of which a random one, or two, have other groups; empty: it cannot be split so."""
    k = int(generator.random() * len(sections))
    if generator.random() < 1 / 2 and k + 1 < len(sections):
        new = _shared_out(sections[k], sections[k + 1], generator)
        return [*sections[:k], *new, *sections[k + 2 :]]
    new = _split(sections[k], generator)
    return [*sections[:k], *new, *sections[k + 1 :]] if new else []


def _shared_out(one: Section, other: Section, generator: np.random.Generator) -> list[Section]:
    """Two with the devices of both shared out otherwise, or as one."""
    devices = one.devices + other.devices
    size = int(generator.random() * len(devices))
    if not size:
        return [Section(one.begin, other.end, devices)]
    return [one._replace(devices=devices[:size]), other._replace(devices=devices[size:])]


def _split(section: Section, generator: np.random.Generator) -> list[Section]:
    """One as two, each with some of its operators and devices; empty: one of them would have none."""
    begin, end, devices = section
    size = int(generator.random() * len(devices))
    cut = begin + int(generator.random() * (end - begin))
    if not size or cut == begin:
        return []
    return [Section(begin, cut, devices[:size]), Section(cut, end, devices[size:])]


def _with_samples_split(
    strategy: Strategy, sections: Sequence[Section], variant: Variant
) -> Strategy:
    """Other configurations for the operators of some sections: samples over all devices of theirs."""
    leaders = variant.grids.families.keys()
    configs = {name: config for name, config in strategy.data.items() if name in leaders}
    for section in sections:
        devices = section.devices
        for name in variant.space.names[section.begin : section.end]:
            configs[name] = variant.grids.config(name, devices, len(devices), 1, RESTS[0])
    return Strategy.of_graph(variant.graph, configs)
