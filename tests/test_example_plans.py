"""The plans of examples/plans: short, right, and each is what its name says."""

import ast
import re
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from taskflow import CostModel, Kind, MachineModel, lower, simulate, single_device
from taskflow.checking.checker import check_own_plan
from taskflow.tasks.memory import plan_memory

FOLDER = Path(__file__).parents[1] / "examples" / "plans"
MOST_LINES, MOST_DIFFERENCE = 15, 1e-10
OTHERS, DATA, THREE = {"model", "run"}, "data_parallel", "three_f_one_b"
LOSSES = {
    "co_shard": 4.061539,
    "interlaced": 5.727871,
    "three_f_one_b": 3.738843,
}  # of the third step; of all other plans:
LOSS = 3.781947


@pytest.fixture
def load(monkeypatch):
    """`load(name)` imports a file of the folder."""
    monkeypatch.syspath_prepend(FOLDER)
    for path in FOLDER.glob("*.py"):  # what other tests import by these names
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    before = set(sys.modules)
    yield import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == FOLDER:
            del sys.modules[name]


def names():
    return sorted({path.stem for path in FOLDER.glob("*.py")} - OTHERS)


def lines_of_code(text):
    """Lines with code, but those of imports and docstrings."""
    tree = ast.parse(text)
    left = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and line.strip()[0] != "#"
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            left -= set(range(node.lineno, node.end_lineno + 1))
    return len(left)


def test_all_are_run(load):
    assert set(load("run").PLANS) == set(names())


@pytest.mark.parametrize("name", names())
def test_a_policy_is_short(name):
    count = lines_of_code((FOLDER / f"{name}.py").read_text())
    assert 2 < count <= MOST_LINES


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_a_plan_is_one_device(name, load):
    """Without mpirun; the plan is proven, too."""
    policy = load(name)
    machine = MachineModel.uniform(getattr(policy, "DEVICES", 4))
    costs = CostModel.analytic(machine)
    graph = load("model").build(**policy.MODEL)
    (_, rows), run = policy.plan(graph, machine).apply(graph, machine, costs), load("run").run
    assert {rows.device[k] for k in range(len(rows)) if rows.kind[k] == Kind.POINT} == set(
        range(len(machine.devices))
    )
    check_own_plan(rows)
    found = run(rows, graph, costs).numbers
    alone = run(lower(graph, single_device(graph, machine), machine), graph, costs).numbers
    assert found.keys() == alone.keys() and len(found["loss"]) == 3
    for each, value in alone.items():
        np.testing.assert_allclose(found[each], value, rtol=0, atol=MOST_DIFFERENCE, err_msg=each)
    assert found["loss"][-1] == pytest.approx(LOSSES.get(name, LOSS), abs=1e-6)


def rows_of(load, name, sizes=None, **changes):
    """The rows of a plan, of its own model or one of these sizes, with other fields."""
    machine, policy = MachineModel.uniform(4), load(name)
    graph = load("model").build(**(policy.MODEL if sizes is None else sizes))
    return replace(policy.plan(graph, machine), **changes).apply(
        graph, machine, CostModel.analytic(machine)
    )[1]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("zero", 0.8),
        ("co_shard", 0.35),
        ("tensor_parallel", 0.9),
        ("pipeline", 0.5),
        ("three_d", 0.6),
    ],
)
def test_a_device_holds_less_than_under_data_parallel(name, most, load):
    """By ZeRO-1 of the states, by co-shard and tensors of heads and hidden units, by stages of all."""
    found, whole = (
        plan_memory(rows_of(load, each, load(name).MODEL)).peak_bytes.max() for each in (name, DATA)
    )
    assert 0.2 * whole < found < most * whole, found / whole


@pytest.mark.parametrize(
    ("name", "most"), [("pipeline", 0.4), ("three_d", 0.65), ("interlaced", 0.8), (THREE, 0.55)]
)
def test_a_schedule_shortens_a_step(name, most, load):
    """Against the order as lowered, where every row takes as long."""
    rows = rows_of(load, name)
    costs = CostModel.analytic(rows.machine.with_rates(overhead_seconds=1e-3))
    seconds, lowered = (
        simulate(each, costs).seconds for each in (rows, rows_of(load, name, schedule=None))
    )
    assert lowered / 4 < seconds < most * lowered, seconds / lowered


@pytest.mark.slow
@pytest.mark.mpi
def test_plans_on_two_ranks(mpirun):
    """Of states and of all three dimensions; what ranks do under any plan is proven by tests/mpi."""
    chosen = ["three_d", "zero"]
    done = mpirun(2, FOLDER / "run.py", "--plans", *chosen, timeout=400)
    assert done.returncode == 0, done.stderr
    found = re.findall(
        r"^(\w+) .* predicted, .* measured, .* loss (\S+), difference (\S+?)(?:, .* cores)?$",
        done.stdout,
        re.MULTILINE,
    )
    assert sorted(name for name, _, _ in found) == chosen
    for name, loss, difference in found:
        assert float(loss) == LOSSES.get(name, LOSS), name
        assert float(difference) <= MOST_DIFFERENCE, name
