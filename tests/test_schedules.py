"""Learning rates over time, against their formulas."""

import math

import pytest

from taskflow import (
    constant_schedule,
    cosine_schedule,
    exponential_schedule,
    inverse_sqrt_schedule,
    linear_schedule,
    step_schedule,
)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (constant_schedule(0.5), [0.5, 0.5, 0.5]),
        (step_schedule(1.0, every=2), [1.0, 1.0, 0.1, 0.1, 0.01]),
        (exponential_schedule(1.0, 0.5), [1.0, 0.5, 0.25]),
        (linear_schedule(1.0, steps=6, warmup=2, minimum=0.2), [0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2]),
        (cosine_schedule(1.0, steps=4), [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0.0, 0.0]),
        (cosine_schedule(1.0, steps=4, warmup=2, minimum=0.2), [0.5, 1.0, 1.0, 0.6, 0.2]),
        (inverse_sqrt_schedule(1.0, warmup=4), [0.25, 0.5, 0.75, 1.0, math.sqrt(0.8)]),
    ],
)
def test_rates(schedule, rates):
    assert [schedule(step) for step in range(len(rates))] == pytest.approx(rates)
