"""More or fewer of the layers are computed again for the backward pass: memory for time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from taskflow.graph.recompute import recompute, recomputed
from taskflow.schedule.plan import Plan
from taskflow.searching.fold import block_interiors
from taskflow.searching.problem import SearchProblem, Variant


def change_again(plan: Plan, problem: SearchProblem, generator: np.random.Generator) -> Plan | None:
    """A random run of what can be computed again: all of it that is not, else none of it any more."""
    names = problem.plain.made(recomputable)
    if not names or problem.space is not None:
        return None
    chosen = toggled(names, set(plan.recomputed), generator)
    again = tuple(name for name in names if name in chosen)
    return problem.fitted(replace(plan, recomputed=again))


def toggled(names: Sequence[str], now: set[str], generator: np.random.Generator) -> set[str]:
    """What is chosen now, with a random run of names: all of it, or if it was chosen none of it."""
    first, last = sorted(int(k) for k in generator.integers(len(names), size=2))
    run = set(names[first : last + 1])
    return now - run if run <= now else now | run


def recomputable(variant: Variant) -> tuple[str, ...]:
    """Forward operators inside of layers; where none repeat, those of about equal segments."""
    if not variant.graph.differentiations:
        return ()
    try:
        names = block_interiors(variant.graph) or recomputed(recompute(variant.graph))
        recompute(variant.graph, names)
    except ValueError:  # one updates a region in place, or reads what is updated
        return ()
    return names
