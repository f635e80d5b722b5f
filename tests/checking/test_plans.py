"""Law 10: every plan is proven under every order, and every seeded fault is found, with task and region named."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taskflow import Graph, MachineModel, PlanError, check_plan, data_parallel, lower
from taskflow.tasks.memory import plan_memory
from tests import laws, tiny
from tests.checking.mutations import (
    CLASSES,
    dependence_missing,
    must_wait,
    row_of,
    without_dependence,
)
from tests.checking.plans import plans
from tests.checking.reuse import as_lists, reuse_edges, with_memory, without_reuse
from tests.strategies import examples

ENOUGH = 4  # plans in which a class of faults is found
ROWS = 1500  # of a plan that is looked at in Python


@pytest.mark.slow
@examples(90)
@given(plan=plans())
def test_every_plan_is_proven(plan):
    graph, task_graph = plan
    proof = check_plan(graph, task_graph)
    assert (proof.rows, proof.arguments) == (len(task_graph), len(task_graph.arg_instance))
    assert check_plan(graph, task_graph, without_reuse(task_graph)).reuse == 0


def assert_found(graph, bad):
    """The error names a rule, a task and a region in one line."""
    with pytest.raises(PlanError) as caught:
        check_plan(graph, bad)
    text = str(caught.value)
    assert text.startswith("plan, rule ") and "region '" in text and "\n" not in text
    assert any(task in text for task in ("row ", "operator '", ", made by '", "output '")), text


@pytest.mark.slow
def test_every_fault_is_found():
    found = Counter()

    @examples(240)
    @given(plan=plans(), seed=st.integers(0, 2**32 - 1))
    def find(plan, seed):
        graph, task_graph = plan
        assume(len(task_graph) < ROWS)
        for name, mutate in CLASSES.items():
            if found[name] >= ENOUGH:
                continue
            bad = mutate(task_graph, np.random.default_rng(seed))
            if bad is not None:
                assert_found(graph, bad)
                found[name] += 1

    find()
    assert not [name for name in CLASSES if found[name] < 3], found


@pytest.mark.slow
@examples(40)
@given(plan=plans(), data=st.data())
def test_no_dependence_may_be_left_out(plan, data):
    graph, task_graph = plan
    assume(len(task_graph.dep_row) > 0 and len(task_graph) < ROWS)
    for _ in range(4):
        edge = data.draw(st.integers(0, len(task_graph.dep_row) - 1))
        row, other = row_of(task_graph, edge), int(task_graph.dep_row[edge])
        bad = without_dependence(task_graph, edge)
        if must_wait(task_graph, row, other):
            assert_found(graph, bad)
        else:
            check_plan(graph, bad)


@pytest.mark.slow
@examples(40)
@given(plan=plans(), data=st.data())
def test_no_edge_of_reuse_may_be_left_out(plan, data):
    graph, task_graph = plan
    assume(len(task_graph) < ROWS // 3)
    task_graph = with_memory(task_graph, 1) if data.draw(st.booleans()) else task_graph
    memory = plan_memory(task_graph)
    assert check_plan(graph, task_graph, memory).reuse == len(
        memory.reuse_rows
    )  # those of the plan are enough
    ptr, rows = reuse_edges(task_graph, memory)
    assert check_plan(graph, task_graph, memory, (ptr, rows)).reuse == len(rows)
    if not len(rows):
        return
    for _ in range(4):
        edge = data.draw(st.integers(0, len(rows) - 1))
        row, other = int(np.searchsorted(ptr, edge, side="right")) - 1, int(rows[edge])
        fewer = ptr - (np.arange(len(ptr)) > row), np.delete(rows, edge)
        if other not in task_graph.deps(row) and must_wait(
            task_graph, row, other, memory, as_lists(*fewer)
        ):
            with pytest.raises(
                PlanError, match=r"rule reuse: row .*region '.*nothing makes it wait for row"
            ):
                check_plan(graph, task_graph, memory, fewer)
        else:
            check_plan(graph, task_graph, memory, fewer)


def test_a_law_proves_its_plans_first():
    """Whatever the numbers of a wrong plan are by chance."""
    graph = Graph()
    y = tiny.linear(graph.input("x", (4, 4)), 4)
    graph.output("y", tiny.mean_square(y))
    machine = MachineModel.uniform(2)
    right = lower(graph, data_parallel(graph, machine), machine)
    feeds = {"x": np.ones((4, 4), np.float32)}
    laws.run(right, feeds)
    with pytest.raises(PlanError, match="nothing makes it wait"):
        laws.run(dependence_missing(right, np.random.default_rng(0)), feeds)
