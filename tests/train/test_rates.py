"""Learning rates over time, against their formulas."""

import math

import pytest

from taskflow import rates


@pytest.mark.parametrize(
    ("rate", "values"),
    [
        (rates.constant(0.5), [0.5, 0.5, 0.5]),
        (rates.step(1.0, every=2), [1.0, 1.0, 0.1, 0.1, 0.01]),
        (rates.exponential(1.0, 0.5), [1.0, 0.5, 0.25]),
        (
            rates.linear(1.0, steps=6, warmup=2, minimum=0.2),
            [0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2],
        ),
        (
            rates.cosine(1.0, steps=4),
            [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0.0, 0.0],
        ),
        (rates.cosine(1.0, steps=4, warmup=2, minimum=0.2), [0.5, 1.0, 1.0, 0.6, 0.2]),
        (rates.inverse_sqrt(1.0, warmup=4), [0.25, 0.5, 0.75, 1.0, math.sqrt(0.8)]),
    ],
)
def test_rates(rate, values):
    assert [rate(step) for step in range(len(values))] == pytest.approx(values)
