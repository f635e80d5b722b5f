"""taskflow: a task runtime for deep learning with automatic parallelization.

A model is a `Graph` of operators over logical regions. A `Strategy` says how every operator is split over a machine;
`lower` turns both into one `TaskGraph`, which `simulate` predicts and `Executor` runs.
"""

from taskflow.execute import Executor
from taskflow.geometry import Rect
from taskflow.graph import Graph
from taskflow.lower import lower
from taskflow.machine import Device, Link, MachineModel
from taskflow.operator import Operator
from taskflow.pattern import Pattern, Window
from taskflow.random import Constant, Normal, Uniform
from taskflow.region import LogicalRegion
from taskflow.rules import axis_kinds, data_parallel, model_parallel, one_weird_trick, random_strategy, single_device
from taskflow.strategy import ParallelConfig, Strategy
from taskflow.task import Kind, Privilege, Task, TaskGraph
from taskflow.timeline import Timeline

__all__ = [
    "Constant",
    "Device",
    "Executor",
    "Graph",
    "Kind",
    "Link",
    "LogicalRegion",
    "MachineModel",
    "Normal",
    "Operator",
    "ParallelConfig",
    "Pattern",
    "Privilege",
    "Rect",
    "Strategy",
    "Task",
    "TaskGraph",
    "Timeline",
    "Uniform",
    "Window",
    "axis_kinds",
    "data_parallel",
    "lower",
    "model_parallel",
    "one_weird_trick",
    "random_strategy",
    "single_device",
]
