"""Eager policies: what is computed again is there before the gradient, and steps go on while others wait."""

from collections import defaultdict

import numpy as np
import pytest

import taskflow
from ops.models import gpt
from taskflow import CostModel, MachineModel, reorder, schedule
from taskflow.schedule.orders import named
from taskflow.schedule.pipeline import pipeline_of
from taskflow.schedule.plan import Plan
from taskflow.schedule.schedule import Schedule
from taskflow.searching.fold import block_interiors
from taskflow.searching.moves.order import next_order
from taskflow.searching.problem import SearchProblem
from taskflow.simulation.simulate import simulate

MACHINE = MachineModel.preset("h100")
COSTS = CostModel.analytic(MACHINE)


@pytest.fixture(scope="module")
def job():
    """A GPT in two stages for each of two groups of four devices, tensor parallel within, computed again."""
    sizes = {"batch": 4, "sequence": 512, "layers": 4, "hidden": 1024, "heads": 16}
    graph = gpt.build(**sizes, vocabulary=1024, dropout=0.0, fused=True, dtype="bfloat16")
    again = block_interiors(graph)
    words = {"rest": "sequence", "recomputed": again}
    return graph, taskflow.grid(graph, MACHINE, tensor=4, stages=(2, 2), parts=4, **words)


def steps_of(rows):
    """Of device 0 its points that belong to stages, in issue order: step, and name."""
    pipeline = pipeline_of(rows)
    points = np.flatnonzero((rows.device == 0) & (pipeline.stage >= 0))
    columns = pipeline.phase, pipeline.stage, pipeline.part
    return [(tuple(int(c[row]) for c in columns), rows.name(row)) for row in points.tolist()]


def most_under_way(steps):
    """Steps that have begun and are not done, at most."""
    at = defaultdict(list)
    for place, (step, _) in enumerate(steps):
        at[step].append(place)
    changes = [(each[0], 1) for each in at.values()] + [(each[-1] + 1, -1) for each in at.values()]
    return max(np.cumsum([change for _, change in sorted(changes)]))


def test_steps_that_are_under_way(job):
    graph, plan = job
    _, rows = plan.lower(graph, MACHINE)
    seconds = list[float]()
    for eager in range(3):
        policy = f"interleaved:{eager}" if eager else "interleaved"
        ordered = reorder(rows, COSTS, policy)
        steps = steps_of(ordered)
        if not eager:  # gradients of weights come with the others
            steps = [((min(phase, 1), *rest), name) for (phase, *rest), name in steps]
        assert most_under_way(steps) == max(1, eager)
        firsts = {step: name for step, name in reversed(steps) if step[0] == 1}
        assert all(name.endswith(".again") for name in firsts.values()) == (eager > 0)
        seconds.append(simulate(ordered, COSTS).seconds)
    assert seconds[1] < 0.97 * seconds[0] and seconds[2] < 0.9 * seconds[1]


def test_names_and_files(tmp_path):
    policy = named("interleaved:2")
    assert policy.eager == 2 and policy.name == "interleaved:2" != schedule.interleaved.name
    plan = Plan(taskflow.Strategy(), schedule=policy)
    assert plan.schedule == "interleaved:2"
    for name in ("interleaved:0", "program:2", "none:1"):
        assert named(name) is None
        with pytest.raises(ValueError, match=f"schedule '{name}': is none of"):
            Plan(taskflow.Strategy(), schedule=name)
    each = Schedule({0: (("F", 0, 0),)}, "mine", 2)
    each.save(tmp_path / "schedule.json")
    assert Schedule.load(tmp_path / "schedule.json") == each


def test_a_search_tries_them(job):
    graph, plan = job
    problem, tried = SearchProblem(graph, MACHINE, COSTS), list[str]()
    while (plan := next_order(plan, problem, np.random.default_rng(0))) is not None:
        tried.append(plan.schedule)
        problem.judge.judge(plan)
    assert sorted(tried) == ["interleaved", "interleaved:1", "interleaved:2"]
