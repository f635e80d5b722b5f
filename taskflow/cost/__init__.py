"""Costs: how many seconds each row of a task graph takes.

`model` has CostModel, analytic or measured; `measure` and `measure_gpu` find the rates of the machine at hand.
"""
