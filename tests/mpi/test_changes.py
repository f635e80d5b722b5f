"""Another plan between two steps, on all ranks: tests/train/test_changes.py, under mpirun too."""

from tests.train.test_changes import (
    expected,
    test_any_plans_between_steps_are_one_device,
    test_parts_follow_measured_rates,
    test_rungs_go_down_and_up,
)

__all__ = [
    "expected",
    "test_any_plans_between_steps_are_one_device",
    "test_parts_follow_measured_rates",
    "test_rungs_go_down_and_up",
]
