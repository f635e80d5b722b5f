"""Schedules, their files, and stages that do not fit a pipeline."""

import pytest

import ops
from taskflow import Graph, MachineModel, ParallelConfig, lower, reorder, stages
from taskflow.schedule import Schedule, one_f_one_b, zb_h1, zb_v
from taskflow.schedule.pipeline import pipeline_of
from tests.refusals import assert_refused
from tests.schedule.cells import CellCosts, chain
from tests.schedule.pipelines import pipeline, straight


@pytest.mark.parametrize(("way", "found"), [((0, 1), "[0] of 2"), ((0, 1, 0, 1), "[0, 2] of 4")])
def test_a_v_in_another_placement(way, found):
    graph, machine, count = chain(4, 2), MachineModel.uniform(2), len(way)
    cuts = [f"cell{k}" for k in range(1, count)]
    rows = lower(
        graph, stages(graph, machine, parts=2, cuts=cuts, devices=[(d,) for d in way]), machine
    )
    assert_refused(
        f"schedule 'zb_v': a device has stages {found}; in a V of 2 devices it has [0, 2] of 3",
        lambda: reorder(rows, CellCosts(), zb_v),
    )


def test_what_needs_all_micro_batches_is_refused():
    graph, machine = Graph(), MachineModel.uniform(2)
    h = ops.conv2d(graph.input("x", (8, 2, 4, 4)), 4, 1, name="conv1")
    h = ops.relu(ops.batch_norm(h, name="bn1"), name="relu")
    ops.sgd(
        ops.softmax_cross_entropy(
            ops.mean(h, (2, 3)), graph.input("t", (8,), "int32"), name="loss"
        ),
        lr=0.1,
    )
    rows = lower(graph, stages(graph, machine, 2, 4), machine)
    assert_refused(
        "schedule 'one_f_one_b': 'bn1.var' needs all 4 micro-batches of 'bn1.mean' before its first point; "
        "use ops.batch_norm(..., parts=4), or an order that knows no stages, such as taskflow.schedule.program",
        lambda: reorder(rows, CellCosts(), one_f_one_b),
    )


# What lists of ZB-H1 become, and why that does not fit two stages and two micro-batches.
MISFITS = {
    "device 1 never does W of stage 1 for micro-batch 1; 1 of 12 blocks are in no list": (
        lambda first, second: (first, second[:-1])
    ),
    "device 1 does I of stage 1 for micro-batch 0 twice": (
        lambda first, second: (first, (*second, ("B", 1, 0)))
    ),
    "device 0 cannot do F of stage 1 for micro-batch 0; it has stages [0] and 2 micro-batches": (
        lambda first, second: ((*first, ("F", 1, 0)), second)
    ),
    "devices wait for each other: device 1 at F of stage 1 for micro-batch 0; "
    "device 0 at W of stage 0 for micro-batch 1": lambda first, second: (first[::-1], second),
}


@pytest.mark.parametrize("message", MISFITS)
def test_lists_that_do_not_fit(message):
    rows = pipeline(straight(2), 2).rows
    steps = zb_h1.schedule(pipeline_of(rows)).steps
    wrong = Schedule(dict(enumerate(MISFITS[message](*steps.values()))), "wrong")
    assert_refused(f"schedule 'wrong': {message}", lambda: reorder(rows, CellCosts(), wrong))


FILES = {
    '{"format": "taskflow-schedule", "version": 1, "name": "x", "devices": {"a": []}}': "device 'a' is no number",
    '{"format": "taskflow-schedule", "version": 1, "name": "x", "devices": {"0": [["X", 0, 0]]}}': (
        "device 0: phase 'X' is none of F, I, W, B"
    ),
}


@pytest.mark.parametrize("text", FILES)
def test_files_that_are_no_schedule_are_refused(text, tmp_path):
    path = tmp_path / "schedule.json"
    path.write_text(text)
    assert_refused(f"schedule file '{path}': {FILES[text]}", lambda: Schedule.load(path))


def test_stages_that_cannot_be():
    graph, machine = chain(2, 4), MachineModel.uniform(2)
    for message, options in {
        "stages: 'no' is no operator that a strategy names": {"cuts": ["no"]},
        "stages: a stage begins at 'shift' and has no operators before": {"cuts": ["shift"]},
        "stages: 'none' is no operator that a strategy names": {
            "count": 2,
            "within": {"none": ParallelConfig({})},
        },
        "stages: 0 micro-batches; at least one": {"count": 2, "parts": 0},
        "stages: 0 stages of 4 operators": {"count": 0},
        "stages: give their count, or the cuts between them, not both": {
            "count": 2,
            "cuts": ["cell1"],
        },
        "stages: 3 stages on 2 devices; give the devices of each": {"count": 3},
        "stages: 9 stages of 4 operators": {"count": 9},
        "stages: 2 stages on 1 groups of devices": {"count": 2, "devices": [(0,)]},
        "stages: 'shift' has 4 samples; 8 micro-batches in 1 parts need 8": {
            "count": 2,
            "parts": 8,
        },
        "stages: 'cell1' uses device 1 of a stage of 1": {
            "count": 2,
            "within": {"cell1": ParallelConfig({"f": 2}, (0, 1))},
        },
    }.items():
        assert_refused(message, lambda options=options: stages(graph, machine, **options))
