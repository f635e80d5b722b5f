"""The plan checker against its acceptance: `python -m benchmarks.checking` in the repository (some minutes).

Four tables. Faults: every class of `tests/checking/mutations.py` at so many random places of random plans, and how many
were found. Plans: so many right ones, what they have in them, and how many were refused. Dependences and edges of
reuse: so many random ones taken out that nothing else implies, between rows that use the same memory (not every scratch
memory of a collective is one of its algorithm), and how many of these faults were found. Times: seconds of the
processor for a GPT, first and warm, data parallel and tensor parallel.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import taskflow
from taskflow import Graph, MachineModel, PlanError, TaskGraph, check_plan
from taskflow.tasks.memory import plan_memory
from tests.checking.features import features
from tests.checking.mutations import CLASSES, must_wait, row_of, without_dependence
from tests.checking.plans import Plan, plans
from tests.checking.reuse import as_lists, reuse_edges, with_memory

ROWS = 1500  # of a plan that is looked at in Python
ROUND = 100  # plans that are drawn together
# (hosts of 8 H100, layers, rule): 80,000 rows and a million
TIMED = (
    (4, 44, "data_parallel"),
    (4, 8, "model_parallel"),
    (4, 480, "data_parallel"),
    (8, 240, "data_parallel"),
    (4, 100, "model_parallel"),
)

Look = Callable[[Plan, np.random.Generator], bool]  # False: that is enough


def look_at_plans(look: Look, most: int = 10**9) -> None:
    """Give random plans to `look` until it has enough, or `most` of them."""
    left = itertools.count()

    for number in itertools.count():
        is_enough = False

        @seed(number)
        @settings(
            max_examples=ROUND,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(plan=plans(), random=st.integers(0, 2**32 - 1))
        def draw(plan: Plan, random: int) -> None:
            nonlocal is_enough
            is_enough = (
                is_enough or next(left) >= most or not look(plan, np.random.default_rng(random))
            )

        draw()
        if is_enough:
            return


def is_refused(graph: Graph, task_graph: TaskGraph, *memory: object) -> bool:
    """Whether the checker finds a fault; the error names a task and a region."""
    try:
        check_plan(graph, task_graph, *memory)  # type: ignore[arg-type]
    except PlanError as error:
        text = str(error)
        named = any(task in text for task in ("row ", "operator '", ", made by '", "output '"))
        return named and "region '" in text
    return False


def faults(places: int) -> None:
    """The first table."""
    tried, found = Counter[str](), Counter[str]()

    def look(plan: Plan, generator: np.random.Generator) -> bool:
        graph, task_graph = plan
        for name, mutate in CLASSES.items():
            if tried[name] < places and len(task_graph) < ROWS:
                bad = mutate(task_graph, generator)
                if bad is not None:
                    tried[name] += 1
                    found[name] += is_refused(graph, bad)
        return any(tried[name] < places for name in CLASSES)

    look_at_plans(look)
    for name in CLASSES:
        print(f"{name:32s}{found[name]:4d} of {tried[name]} found", flush=True)


def right_plans(count: int) -> None:
    """The second table."""
    seen, has = Counter[str](), Counter[str]()

    def look(plan: Plan, generator: np.random.Generator) -> bool:
        graph, task_graph = plan
        try:
            check_plan(graph, task_graph, plan_memory(task_graph))
        except PlanError as error:
            seen["refused"] += 1
            print(f"refused: {error}", flush=True)
        has.update(features(graph, task_graph, plan.order))
        seen["plans"] += 1
        seen["rows"] += len(task_graph)
        seen["collectives"] += int((task_graph.kind == taskflow.Kind.COLLECTIVE).sum())
        return True

    look_at_plans(look, count)
    what = f"{seen['rows']} rows, {seen['collectives']} collectives"
    print(f"{seen['plans']} right plans ({what}): {seen['refused']} refused", flush=True)
    for name in sorted(has):
        print(f"    with {name:40s}{has[name]:6d}", flush=True)


def left_out(count: int) -> None:
    """The third table."""
    tried, found = Counter[str](), Counter[str]()

    def look(plan: Plan, generator: np.random.Generator) -> bool:
        graph, task_graph = plan
        if len(task_graph) > ROWS or not len(task_graph.dep_row):
            return True
        for edge in generator.integers(len(task_graph.dep_row), size=5).tolist():
            if tried["dependences"] < count:
                row, other = row_of(task_graph, edge), int(task_graph.dep_row[edge])
                if must_wait(task_graph, row, other):
                    tried["dependences"] += 1
                    found["dependences"] += is_refused(graph, without_dependence(task_graph, edge))
        if len(task_graph) < ROWS // 3 and tried["edges of reuse"] < count:
            memory = plan_memory(with_memory(task_graph, 1))
            ptr, rows = reuse_edges(task_graph, memory)
            check_plan(graph, task_graph, memory, (ptr, rows))
            for edge in generator.integers(len(rows), size=10 if len(rows) else 0).tolist():
                row, other = int(np.searchsorted(ptr, edge, side="right")) - 1, int(rows[edge])
                fewer = ptr - (np.arange(len(ptr)) > row), np.delete(rows, edge)
                more = as_lists(*fewer)
                if other not in task_graph.deps(row) and must_wait(
                    task_graph, row, other, memory, more
                ):
                    tried["edges of reuse"] += 1
                    found["edges of reuse"] += is_refused(graph, task_graph, memory, fewer)
        return tried["dependences"] < count or tried["edges of reuse"] < count

    look_at_plans(look)
    for name in tried:
        print(
            f"{name:32s}{found[name]:5d} of {tried[name]} that are left out are found", flush=True
        )


def times() -> None:
    """The fourth table."""
    print(f"{'GPT':40s}{'rows':>9s}{'arguments':>11s}{'first s':>9s}{'warm s':>8s}{'GB':>6s}")
    for hosts, layers, rule in TIMED:
        machine = MachineModel.preset("h100", nodes=hosts)
        graph = import_module("ops.models.gpt").build(batch=8 * hosts, layers=layers)
        task_graph = taskflow.lower(graph, getattr(taskflow, rule)(graph, machine), machine)
        seconds = []
        for _ in range(2):
            begin = time.process_time()
            check_plan(graph, task_graph)
            seconds.append(time.process_time() - begin)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{f'{layers} layers, {8 * hosts} H100, {rule}':40s}{len(task_graph):9d}{len(task_graph.arg_instance):11d}"
            f"{seconds[0]:9.2f}{seconds[1]:8.2f}{most:6.1f}",
            flush=True,
        )


def main() -> None:
    """Print all tables, or those that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="*", default=["times", "faults", "plans", "removals"])
    parser.add_argument("--places", type=int, default=20, help="of every class of faults")
    parser.add_argument("--plans", type=int, default=2000, help="right ones")
    parser.add_argument(
        "--removals", type=int, default=1000, help="of dependences, and of edges of reuse"
    )
    options = parser.parse_args()
    tables: dict[str, Callable[[], None]] = {
        "times": times,
        "faults": lambda: faults(options.places),
        "plans": lambda: right_plans(options.plans),
        "removals": lambda: left_out(options.removals),
    }
    for name in options.tables:
        tables[name]()


if __name__ == "__main__":
    main()
