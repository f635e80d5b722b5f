"""The task graph: what `simulate` and `Executor` read, and what can be said of it without costs.

`task_graph` has the columns, `streams` the queues that rows occupy, `memory` the arenas, `timeline` when
rows ran; `threads` divides points over the cores of a CPU device.
"""
