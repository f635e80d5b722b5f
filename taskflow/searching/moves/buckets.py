"""Collectives of a library in larger calls or smaller ones: fewer latencies, but the first begins later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskflow.core.numbers import MIB
from taskflow.schedule.plan import Plan
from taskflow.searching.problem import SearchProblem

BUCKET_BYTES = 25 * MIB  # of DDP, by default


def change_buckets(
    plan: Plan, problem: SearchProblem, generator: np.random.Generator
) -> Plan | None:
    """Buckets of twice the bytes, of half, or none; where there are none, those of DDP."""
    machine = problem.machine
    if problem.space is not None or not (machine.has_library or machine.library):
        return None
    size = plan.bucket_bytes
    sizes = [2 * size, size // 2, None] if size else [BUCKET_BYTES]
    if size and generator.random() < 1 / 2:
        sizes.reverse()
    return problem.first_new(plan, (replace(plan, bucket_bytes=other) for other in sizes))
