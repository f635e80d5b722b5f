"""taskflow: a task runtime for deep learning with automatic parallelization.

A model is a `Graph` of operators over logical regions. A `Strategy` says how every operator is split over a machine;
`lower` turns both into one `TaskGraph`, which `simulate` predicts and `Executor` runs.
"""

from typing import TYPE_CHECKING

from taskflow.comm.ending import await_guard, end_together

end_together()  # first: a rank may end while it imports

if TYPE_CHECKING:
    from taskflow import checkpoint, schedule
    from taskflow.backend import Array, Context, CudaSource
    from taskflow.bridges import ExportedPlan, ImportedJob, export_plan, import_job
    from taskflow.checking.checker import Proof, check_plan
    from taskflow.checking.rules import PlanError
    from taskflow.core.compiling import njit
    from taskflow.core.garbage import collect_rarely
    from taskflow.core.geometry import Rect
    from taskflow.core.public import on_demand
    from taskflow.core.random import Constant, Normal, Uniform
    from taskflow.core.version import OUR_VERSION as __version__  # noqa: F401 (kept by `on_demand`)
    from taskflow.cost.measure import fit_machine, measure_machine
    from taskflow.cost.model import CostModel
    from taskflow.execute import Executor
    from taskflow.graph.beside import beside
    from taskflow.graph.by_parts import add_parts, by_parts
    from taskflow.graph.differentiate import differentiate, is_sum
    from taskflow.graph.dtypes import LossScale
    from taskflow.graph.fuse import fuse
    from taskflow.graph.graph import Graph, LogicalRegion, Operator
    from taskflow.graph.homes import homes
    from taskflow.graph.kernel import Items, Kernel, Pointwise
    from taskflow.graph.offload import offload
    from taskflow.graph.pattern import Pattern
    from taskflow.graph.precision import precision
    from taskflow.graph.quantize import fake_quantize, quantize
    from taskflow.graph.rebuild import replace_regions
    from taskflow.graph.recompute import recompute
    from taskflow.graph.ring import ring
    from taskflow.graph.update import launch_beside, update
    from taskflow.graph.window import Image, Window
    from taskflow.lowering import lower
    from taskflow.machine import MachineModel
    from taskflow.machine.device import Device, Link
    from taskflow.machine.scaling import scale_machine
    from taskflow.report import Explanation, explain
    from taskflow.report.whatif import Case, what_if
    from taskflow.schedule.found import search_schedule
    from taskflow.schedule.orders import reorder
    from taskflow.schedule.plan import Plan
    from taskflow.searching import SearchInterrupted, SearchResult, search, search_at_home
    from taskflow.searching.exhaustive import Optimum, search_exhaustively
    from taskflow.searching.grid_plan import grid
    from taskflow.searching.space import Space, any_degree, count_strategies, power_of_two
    from taskflow.simulation.simulate import simulate
    from taskflow.strategy.rules import (
        axis_kinds,
        data_parallel,
        even_work,
        fully_sharded,
        model_parallel,
        one_weird_trick,
        operator_placement,
        placed_tables,
        proportional,
        random_strategy,
        single_device,
    )
    from taskflow.strategy.sharded import shard_state
    from taskflow.strategy.stages import stages
    from taskflow.strategy.strategy import ParallelConfig, Strategy
    from taskflow.tasks.task_graph import Kind, Privilege, Task, TaskGraph
    from taskflow.tasks.timeline import Timeline
    from taskflow.train import callbacks, rates
    from taskflow.train.batches import Batches
    from taskflow.train.jobs import Job, Jobs
    from taskflow.train.trainer import Trainer
else:
    from taskflow.core.public import on_demand

    __getattr__, __dir__ = on_demand(__name__)

await_guard()

__all__ = [
    "Array",
    "Batches",
    "Case",
    "Constant",
    "Context",
    "CostModel",
    "CudaSource",
    "Device",
    "Executor",
    "Explanation",
    "ExportedPlan",
    "Graph",
    "Image",
    "ImportedJob",
    "Items",
    "Job",
    "Jobs",
    "Kernel",
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
    "PlanError",
    "Pointwise",
    "Privilege",
    "Proof",
    "Rect",
    "SearchInterrupted",
    "SearchResult",
    "Space",
    "Strategy",
    "Task",
    "TaskGraph",
    "Timeline",
    "Trainer",
    "Uniform",
    "Window",
    "add_parts",
    "any_degree",
    "axis_kinds",
    "beside",
    "by_parts",
    "callbacks",
    "check_plan",
    "checkpoint",
    "collect_rarely",
    "count_strategies",
    "data_parallel",
    "differentiate",
    "even_work",
    "explain",
    "export_plan",
    "fake_quantize",
    "fit_machine",
    "fully_sharded",
    "fuse",
    "grid",
    "homes",
    "import_job",
    "is_sum",
    "launch_beside",
    "lower",
    "measure_machine",
    "model_parallel",
    "njit",
    "offload",
    "on_demand",
    "one_weird_trick",
    "operator_placement",
    "placed_tables",
    "power_of_two",
    "precision",
    "proportional",
    "quantize",
    "random_strategy",
    "rates",
    "recompute",
    "reorder",
    "replace_regions",
    "ring",
    "scale_machine",
    "schedule",
    "search",
    "search_at_home",
    "search_exhaustively",
    "search_schedule",
    "shard_state",
    "simulate",
    "single_device",
    "stages",
    "update",
    "what_if",
]
