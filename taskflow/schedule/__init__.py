"""Schedules: which row of a task graph is issued before which.

`taskflow.reorder(task_graph, costs, schedule)` applies one of the functions here, or one of the user's own.
"""

from taskflow.schedule.orders import critical_path, depth_first, first_ready, forward_first, program

__all__ = ["critical_path", "depth_first", "first_ready", "forward_first", "program"]
