"""The task graph: what `simulate` and `Executor` read, and what can be said of it without costs.

Decided here: which queues a row occupies (`streams`), where every instance lies in its device's memory and which rows
wait for that (`memory`), and whether all of it fits (`memory.shortage`, the only rule of that). Which rows there are is
decided in `lowering`, when they run by their order alone.

Read `task_graph` first: the columns. `timeline` has when rows ran; `threads` divides points over the cores of a CPU
device; `steps`, `moves` and `exchange` are the steps of collectives, which `collective` prices and `execute` runs.
"""
