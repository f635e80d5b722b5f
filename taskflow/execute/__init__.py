"""Execution: a task graph becomes a flat list of bound calls on every rank, which each step replays.

`executor` is the whole; `expand` writes collectives out as the rows of one rank, `program` binds rows to arrays,
`persistent` holds what lives across steps. Data moves inside a process, through `shared` memory or by messages;
the folder `gpu` is for GPUs.
`emulate` waits instead of computing; `fold` adds and copies in one pass; `progress` knows who waits, `standing` lets
others see where a step stands. `rehearsal` times rows as they run, before there is a step.
"""

from taskflow.execute.executor import Executor

__all__ = ["Executor"]
