"""Costs: how many seconds each row of a task graph takes.

`model` has CostModel, analytic or measured, by the `rates` of devices; `measure` and `measure_gpu` find those of the
machine at hand.
"""
