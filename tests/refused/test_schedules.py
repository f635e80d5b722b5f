"""Schedules, their files, and stages that do not fit a pipeline."""

import ops
from taskflow import Graph, MachineModel, ParallelConfig, lower, reorder, stages
from taskflow.schedule import Schedule, one_f_one_b, zb_h1, zb_v
from taskflow.schedule.pipeline import pipeline_of
from tests.refusals import each_refused, of_files
from tests.schedule.cells import CellCosts, chain
from tests.schedule.pipelines import pipeline, straight

TWO = MachineModel.uniform(2)


def reorder_as_a_v(*devices):
    """Stages on these devices."""
    graph, cuts = chain(4, 2), [f"cell{k}" for k in range(1, len(devices))]
    placed = stages(graph, TWO, parts=2, cuts=cuts, devices=[(device,) for device in devices])
    reorder(lower(graph, placed, TWO), CellCosts(), zb_v)


def reorder_across_a_barrier():
    """Statistics of all samples."""
    graph = Graph()
    h = ops.conv2d(graph.input("x", (8, 2, 4, 4)), 4, 1, name="conv1")
    h = ops.mean(ops.relu(ops.batch_norm(h, name="bn1"), name="relu"), (2, 3))
    ops.sgd(ops.softmax_cross_entropy(h, graph.input("t", (8,), "int32"), name="loss"), lr=0.1)
    reorder(lower(graph, stages(graph, TWO, 2, 4), TWO), CellCosts(), one_f_one_b)


def reorder_by(change):
    """What the lists of ZB-H1 for two stages and two micro-batches are changed to."""
    rows = pipeline(straight(2), 2).rows
    first, second = zb_h1.schedule(pipeline_of(rows)).steps.values()
    reorder(rows, CellCosts(), Schedule(dict(enumerate(change(first, second))), "wrong"))


def stage(**options):
    stages(chain(2, 4), TWO, **options)


FILES = [
    (
        "no number",
        {"format": "taskflow-schedule", "version": 1, "name": "x", "devices": {"a": []}},
        "device 'a' is no number",
    ),
    (
        "no phase",
        {
            "format": "taskflow-schedule",
            "version": 1,
            "name": "x",
            "devices": {"0": [["X", 0, 0]]},
        },
        "device 0: phase 'X' is none of F, I, W, B",
    ),
]
REFUSED = [
    (
        "two stages as a V",
        lambda: reorder_as_a_v(0, 1),
        "schedule 'zb_v': a device has stages [0] of 2; in a V of 2 devices it has [0, 2] of 3",
    ),
    (
        "stages in turn as a V",
        lambda: reorder_as_a_v(0, 1, 0, 1),
        "schedule 'zb_v': a device has stages [0, 2] of 4; in a V of 2 devices it has [0, 2] of 3",
    ),
    (
        "a barrier",
        reorder_across_a_barrier,
        "schedule 'one_f_one_b': 'bn1.var' needs all 4 micro-batches of 'bn1.mean' before its "
        "first point; use ops.batch_norm(..., parts=4), or an order that knows no stages, such as "
        "taskflow.schedule.program",
    ),
    (
        "a block is in no list",
        lambda: reorder_by(lambda first, second: (first, second[:-1])),
        "schedule 'wrong': device 1 never does W of stage 1 for micro-batch 1; 1 of 12 blocks are "
        "in no list",
    ),
    (
        "a block twice",
        lambda: reorder_by(lambda first, second: (first, (*second, ("B", 1, 0)))),
        "schedule 'wrong': device 1 does I of stage 1 for micro-batch 0 twice",
    ),
    (
        "a block of another device",
        lambda: reorder_by(lambda first, second: ((*first, ("F", 1, 0)), second)),
        "schedule 'wrong': device 0 cannot do F of stage 1 for micro-batch 0; it has stages [0] "
        "and 2 micro-batches",
    ),
    (
        "a deadlock",
        lambda: reorder_by(lambda first, second: (first[::-1], second)),
        "schedule 'wrong': devices wait for each other: device 1 at F of stage 1 for micro-batch "
        "0; device 0 at W of stage 0 for micro-batch 1",
    ),
    *of_files(Schedule.load, "schedule file", "schedule.json", FILES),
    (
        "a cut at nothing",
        lambda: stage(cuts=["no"]),
        "stages: 'no' is no operator that a strategy names",
    ),
    (
        "a cut at the first operator",
        lambda: stage(cuts=["shift"]),
        "stages: a stage begins at 'shift' and has no operators before",
    ),
    (
        "within nothing",
        lambda: stage(count=2, within={"none": ParallelConfig({})}),
        "stages: 'none' is no operator that a strategy names",
    ),
    (
        "no micro-batches",
        lambda: stage(count=2, parts=0),
        "stages: 0 micro-batches; at least one",
    ),
    ("no stages", lambda: stage(count=0), "stages: 0 stages of 4 operators"),
    (
        "count and cuts",
        lambda: stage(count=2, cuts=["cell1"]),
        "stages: give their count, or the cuts between them, not both",
    ),
    (
        "more stages than devices",
        lambda: stage(count=3),
        "stages: 3 stages on 2 devices; give the devices of each",
    ),
    ("more stages than operators", lambda: stage(count=9), "stages: 9 stages of 4 operators"),
    (
        "fewer groups than stages",
        lambda: stage(count=2, devices=[(0,)]),
        "stages: 2 stages on 1 groups of devices",
    ),
    (
        "too few samples",
        lambda: stage(count=2, parts=8),
        "stages: 'shift' has 4 samples; 8 micro-batches in 1 parts need 8",
    ),
    (
        "a device of another stage",
        lambda: stage(count=2, within={"cell1": ParallelConfig({"f": 2}, (0, 1))}),
        "stages: 'cell1' uses device 1 of a stage of 1",
    ),
]
test_refused = each_refused(REFUSED)
