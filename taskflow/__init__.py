"""taskflow: a task runtime for deep learning with automatic parallelization.

A model is a `Graph` of operators over logical regions. A `Strategy` says how every operator is split over a machine;
`lower` turns both into one `TaskGraph`, which `simulate` predicts and `Executor` runs.
"""

from taskflow import checkpoint
from taskflow.backend import Context, CudaSource, captured, compiled, cuda_kernel, on_cuda, takes_half, together
from taskflow.batches import Batches
from taskflow.cost import CostModel
from taskflow.execute import Executor
from taskflow.experts import operator_placement, placed_tables
from taskflow.explain import Explanation, explain
from taskflow.frontend import from_torch
from taskflow.fuse import fuse, fusible
from taskflow.geometry import Rect
from taskflow.graph import Graph
from taskflow.lower import lower
from taskflow.machine import MachineModel
from taskflow.machine.device import Device, Link
from taskflow.measure import fit_machine, measure_machine
from taskflow.operator import Operator
from taskflow.order import reorder
from taskflow.pattern import Pattern
from taskflow.precision import LossScale, precision
from taskflow.random import Constant, Normal, Uniform
from taskflow.region import LogicalRegion
from taskflow.rules import axis_kinds, data_parallel, model_parallel, one_weird_trick, random_strategy, single_device
from taskflow.schedules import (
    constant_schedule,
    cosine_schedule,
    exponential_schedule,
    inverse_sqrt_schedule,
    linear_schedule,
    step_schedule,
)
from taskflow.search import SearchResult, search
from taskflow.search.chain import Plan, dynamic_programming
from taskflow.search.exhaustive import Optimum, search_exhaustively
from taskflow.search.space import Space, any_degree, count_strategies, power_of_two
from taskflow.simulate import simulate
from taskflow.strategy import ParallelConfig, Strategy
from taskflow.task import Kind, Privilege, Task, TaskGraph
from taskflow.timeline import Timeline
from taskflow.train import Trainer
from taskflow.window import Window

__all__ = [
    "Batches",
    "Constant",
    "Context",
    "CostModel",
    "CudaSource",
    "Device",
    "Executor",
    "Explanation",
    "Graph",
    "Kind",
    "Link",
    "LogicalRegion",
    "LossScale",
    "MachineModel",
    "Normal",
    "Operator",
    "Optimum",
    "ParallelConfig",
    "Pattern",
    "Plan",
    "Privilege",
    "Rect",
    "SearchResult",
    "Space",
    "Strategy",
    "Task",
    "TaskGraph",
    "Timeline",
    "Trainer",
    "Uniform",
    "Window",
    "any_degree",
    "axis_kinds",
    "captured",
    "checkpoint",
    "compiled",
    "constant_schedule",
    "cosine_schedule",
    "count_strategies",
    "cuda_kernel",
    "data_parallel",
    "dynamic_programming",
    "explain",
    "exponential_schedule",
    "fit_machine",
    "from_torch",
    "fuse",
    "fusible",
    "inverse_sqrt_schedule",
    "linear_schedule",
    "lower",
    "measure_machine",
    "model_parallel",
    "on_cuda",
    "one_weird_trick",
    "operator_placement",
    "placed_tables",
    "power_of_two",
    "precision",
    "random_strategy",
    "reorder",
    "search",
    "search_exhaustively",
    "simulate",
    "single_device",
    "step_schedule",
    "takes_half",
    "together",
]
