"""Edges of reuse, by the definition: who touches an instance waits for all who touched another in its bytes before."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from taskflow.tasks.memory import plan_memory


def tight(task_graph):
    """The task graph on devices that have no more memory than it needs."""
    return with_memory(
        task_graph, int(plan_memory(with_memory(task_graph, 1)).peak_bytes.max(initial=1))
    )


def with_memory(task_graph, size):
    """The task graph on devices of `size` bytes."""
    return replace(task_graph, machine=task_graph.machine.with_rates(memory_bytes=size))


def reuse_edges(task_graph, plan):
    """`ptr` and `rows` as `check_plan` takes them."""
    users = [[] for _ in plan.offset]
    for row in range(len(task_graph)):
        for k in range(int(task_graph.arg_ptr[row]), int(task_graph.arg_ptr[row + 1])):
            i = int(task_graph.arg_instance[k])
            if i >= 0 and row not in users[i][-1:]:
                users[i].append(row)
    waits = [set() for _ in range(len(task_graph))]
    used = np.array([i for i, rows in enumerate(users) if rows and plan.size[i]], np.int64)
    for i in used.tolist():
        others = used[plan.share_bytes(task_graph, i, used)].tolist()
        for j in others:
            if j != i and users[j][-1] < users[i][0]:
                for row in users[i]:
                    waits[row].update(users[j])
    return np.cumsum([0, *map(len, waits)]), np.array(
        [r for rows in waits for r in sorted(rows)], np.int64
    )


def as_lists(ptr, rows):
    return [rows[a:b].tolist() for a, b in pairwise(ptr.tolist())]


def without_reuse(task_graph):
    """A memory plan in which no instance takes over memory."""
    plan, none = plan_memory(task_graph), np.zeros(0, np.int64)
    offset = np.cumsum(plan.size) - plan.size
    return replace(
        plan, offset=offset, reuse_ptr=np.zeros(len(task_graph) + 1, np.int64), reuse_rows=none
    )
