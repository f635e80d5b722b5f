"""What else could be done with one operator, and what it would cost: the reasons of a strategy.

Takes a strategy and a judge that stands on it; changes one operator's configuration at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from taskflow.graph.graph import Operator
from taskflow.report.breakdown import Breakdown
from taskflow.searching.judge import Judge
from taskflow.strategy.strategy import ParallelConfig, Strategy, effective_config


@dataclass(frozen=True)
class Alternative:
    """The best of some other configurations of one operator.

    Attributes:
        config: the best; None where none is possible, see `refusal`.
        tried: how many there were.
        seconds: of a step with it (inf: none is possible).
        compute_seconds, communication_seconds: what computation and communication on the critical path grow by.
        refusal: why the last one that is not possible is not.
    """

    config: ParallelConfig | None
    tried: int
    seconds: float = math.inf
    compute_seconds: float = 0.0
    communication_seconds: float = 0.0
    refusal: str = ""


def candidates(op: Operator, devices: int) -> list[ParallelConfig]:
    """Every axis of `op` over all devices, over half of them, and `op` whole on device 0."""
    degrees = [degree for degree in dict.fromkeys((devices, devices // 2)) if degree > 1]
    splits = [(axis, min(degree, op.extents[axis])) for axis in op.split_axes for degree in degrees]
    configs = [ParallelConfig({axis: degree}) for axis, degree in splits if degree > 1]
    return list(dict.fromkeys([*configs, ParallelConfig({}, (0,))]))


def best_alternative(
    judge: Judge,
    name: str,
    configs: Sequence[ParallelConfig],
    step: Breakdown,
    divide: Callable[[Strategy], Breakdown],
) -> Alternative | None:
    """The fastest of `configs` for the operator `name` in the judge's strategy; None if there are none to try.

    Args:
        judge: it stands on the strategy that is explained.
        name: an entry of that strategy.
        configs: what to try instead of its configuration.
        step: the breakdown of that strategy's step.
        divide: that of another strategy's.
    """
    best, best_seconds, refusal = None, math.inf, ""
    for config in configs:
        seconds = judge.propose(name, config, best_seconds)
        if seconds < best_seconds:
            best, best_seconds = config, seconds
        elif math.isinf(seconds):
            refusal = judge.last_refusal
    if best is None:
        return Alternative(None, len(configs), refusal=refusal) if configs else None
    changed = judge.strategy.copy()
    changed[name] = best
    return _compare(best, len(configs), step, divide(changed))


def without_entry(judge: Judge, op: Operator, step: Breakdown, divide: Callable[[Strategy], Breakdown]) -> Alternative:
    """What it would mean for an operator that has an entry of its own to follow its forward operator instead."""
    strategy = judge.strategy
    changed = strategy.copy()
    del changed[op.name]
    is_possible, refusal = math.isfinite(judge.start(changed)), judge.last_refusal
    judge.start(strategy)
    if not is_possible:
        return Alternative(None, 1, refusal=refusal)
    return _compare(effective_config(op, changed)[0], 1, step, divide(changed))


def _compare(config: ParallelConfig, tried: int, step: Breakdown, changed: Breakdown) -> Alternative:
    compute = changed.path_seconds("compute") - step.path_seconds("compute")
    exposed = changed.exposed_seconds - step.exposed_seconds
    return Alternative(config, tried, changed.seconds, compute, exposed)
