"""Plans that are wrong, one for each rule: what `check_plan` says."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from taskflow import (
    Executor,
    Graph,
    MachineModel,
    PlanError,
    Rect,
    check_plan,
    data_parallel,
    lower,
    model_parallel,
)
from taskflow.tasks.memory import plan_memory
from taskflow.tasks.task_graph import Kind
from tests import tiny
from tests.checking.mutations import changed, without_args, without_dependence
from tests.checking.reuse import with_memory, without_reuse
from tests.lowered import lowered, network
from tests.refusals import each_refused

SPLIT = {"b": 2}, (0, 1)


@pytest.fixture(scope="module")
def graph():
    """x (4, 2) -> fc0 -> loss, and the update of its weight; fc0 is fetched, too."""
    graph = network(batch=4, width=2, layers=1, momentum=0.0)
    graph.output("y", graph.regions["fc0"])
    return graph


@pytest.fixture(scope="module")
def plan(graph):
    """Both operators in two points."""
    return lowered(graph, {"fc0": SPLIT, "loss": SPLIT}, 2)


def launched(plan, **changes):
    """Another first launch."""
    return replace(plan, launches=(replace(plan.launches[0], **changes), *plan.launches[1:]))


def edge(plan, row, other):
    return next(
        k for k in range(plan.dep_ptr[row], plan.dep_ptr[row + 1]) if plan.dep_row[k] == other
    )


def narrowed(plan, row, box):
    """Other boxes for all arguments of a row."""
    return changed(plan, "arg_box", slice(plan.arg_ptr[row], plan.arg_ptr[row + 1]), box)


def check_changed(change, graph, plan):
    check_plan(graph, change(plan))


# A change of the plan, and what is said of the rule that it breaks.
WRONG = [
    (
        "kind",
        lambda p: changed(p, "kind", 0, 9),
        "arguments: row 0: its kind is 9, which stands for nothing",
    ),
    (
        "instance number",
        lambda p: changed(p, "arg_instance", 0, 99),
        "arguments: an argument's instance is 0 or 99, not below 17",
    ),
    (
        "order",
        lambda p: changed(p, "dep_row", 0, 7),
        "order: row 2, point fc0[0] @0: region 'x' [0:2, 0:2]: it stands before row 7, point "
        "loss[1] @1, for which it waits",
    ),
    (
        "stream",
        lambda p: changed(p, "streams", (6, 0), 1),
        "stream: row 6, point loss[0] @0: region 'fc0' [0:2, 0:2]: it is on other streams than those of its devices",
    ),
    (
        "operator",
        lambda p: launched(p, name="other"),
        "operator: operator 0 is 'other' in the plan, 'fc0' in the graph",
    ),
    (
        "kernel",
        lambda p: launched(p, kernel=p.launches[1].kernel),
        "operator: operator 'fc0': region 'fc0' has another kernel than in the graph",
    ),
    (
        "identity",
        lambda p: launched(p, identity="other"),
        "operator: operator 'fc0': region 'fc0' has another identity than in the graph",
    ),
    (
        "how parts combine",
        lambda p: replace(p, combine={**p.combine, 4: "max"}),
        "operator: operator 'loss.one': region 'loss.one' combines its parts as 'max', not 'sum'",
    ),
    (
        "tensor float",
        lambda p: replace(p, uses_tf32=True),
        "operator: uses_tf32 is True, the graph's precision differs",
    ),
    (
        "region",
        lambda p: replace(p, regions=(replace(p.regions[0], dtype="float32"), *p.regions[1:])),
        "region: region 'x' is float32[4, 2] (input), the graph has float64[4, 2] (input)",
    ),
    (
        "arguments of a move",
        lambda p: without_args(p, [9]),
        "arguments: row 4, all-gather fc0[0] 1->0: region 'fc0' [2:4, 0:2]: it has other arguments than a copy has",
    ),
    (
        "arguments of a point",
        lambda p: without_args(p, [4]),
        "arguments: row 2, point fc0[0] @0: region 'x' [0:2, 0:2]: it has other arguments than a point has",
    ),
    (
        "privilege of a point",
        lambda p: changed(p, "arg_privilege", 2, 1),
        "privilege: row 2, point fc0[0] @0: region 'x' [0:2, 0:2]: argument 0 has a privilege that"
        " does not fit what a point does with it",
    ),
    (
        "privilege of a move",
        lambda p: changed(p, "arg_privilege", 9, 0),
        "privilege: row 4, all-gather fc0[0] 1->0: region 'fc0' [2:4, 0:2]: argument 1 has a "
        "privilege that does not fit what a copy does with it",
    ),
    (
        "device of a move",
        lambda p: changed(p, "source", 4, 0),
        "device: row 4, all-gather fc0[0] @0: region 'fc0' [2:4, 0:2]: argument 0 lies on device "
        "1, where the row does not look for it",
    ),
    (
        "other region",
        lambda p: changed(p, "arg_instance", 3, 4),
        "region: row 2, point fc0[0] @0: region 'fc0.weight' [0:2, 0:2]: argument 1 is an instance"
        " of another region, 'fc0'",
    ),
    (
        "span",
        lambda p: launched(p, spans=p.launches[0].spans + 2),
        "span: row 2, point fc0[0] @0: region 'x' [0:2, 0:2]: its intervals lie outside of the axes of the operator",
    ),
    (
        "box of a point",
        lambda p: changed(p, "arg_box", 2, [[0, 0], [1, 2]]),
        "box: row 2, point fc0[0] @0: region 'x' [0:1, 0:2]: argument 0 is not the box that the pattern gives",
    ),
    (
        "box of a move",
        lambda p: changed(p, "arg_box", 9, [[2, 0], [3, 2]]),
        "box: row 4, all-gather fc0[0] 1->0: region 'fc0' [2:3, 0:2]: argument 1 is not the box "
        "that its other arguments are",
    ),
    (
        "instance",
        lambda p: changed(p, "instance_box", 4, [[0, 0], [2, 2]]),
        "instance: output 'y', made by 'fc0': region 'fc0' [0:4, 0:2] is not within instance 4",
    ),
    (
        "not written",
        lambda p: narrowed(p, 17, [[0, 0], [1, 1]]),
        "unwritten: row 19, fold fc0.dweight[2] @0: region 'fc0.dweight' [0:1, 0:2]: no row before"
        " it wrote all of that on device 0",
    ),
    (
        "not written for a fetch",
        lambda p: narrowed(p, 4, [[2, 0], [3, 2]]),
        "unwritten: at the end, output 'y', made by 'fc0': region 'fc0' [0:4, 0:2]: no row before "
        "it wrote all of that on device 0",
    ),
    (
        "partial",
        lambda p: without_args(p, [43]),
        "partial: row 23, point fc0.weight.update[0] @0: region 'fc0.dweight' [0:1, 0:2]: device 0"
        " holds a partial result there, 2 of 4 parts",
    ),
    (
        "partial fetch",
        lambda p: without_args(p, [20]),
        "partial: at the end, output 'loss', made by 'loss': region 'loss' []: device 0 holds a "
        "partial result there, 4 of 8 parts",
    ),
    (
        "twice",
        lambda p: changed(p, "arg_instance", 43, 13),
        "twice: row 19, fold fc0.dweight[2] @0: region 'fc0.dweight' [0:1, 0:2]: a part is added "
        "twice: 4 of 4 parts, and some are missing",
    ),
    (
        "race",
        lambda p: without_dependence(p, edge(p, 18, 15)),
        "race: row 18, all-reduce fc0.dweight[1] 0->1: region 'fc0.dweight' [1:2, 0:2]: nothing "
        "makes it wait for row 15, point fc0.dweight[0] @0, which uses the same memory of device 0",
    ),
    (
        "home",
        lambda p: replace(p, homes={}),
        "home: region 'fc0.weight' has no home between steps",
    ),
    (
        "part of a home",
        lambda p: replace(p, homes={"fc0.weight": ((2, Rect((0, 0), (1, 2))),)}),
        "unwritten: home of 'fc0.weight', made by 'fc0.weight.update': region 'fc0.weight' [1:2, 0:2] is nowhere",
    ),
    (
        "home elsewhere",
        lambda p: replace(p, homes={"fc0.weight": ((4, Rect((0, 0), (2, 2))),)}),
        "instance: home of 'fc0.weight', made by 'fc0.weight.update': region 'fc0.weight' [0:2, "
        "0:2] is not within instance 4",
    ),
    (
        "fetch",
        lambda p: replace(p, fetches={}),
        "fetch: output 'loss' of region 'loss' is not fetched",
    ),
    (
        "device of a fetch",
        lambda p: replace(p, fetches={**p.fetches, "loss": ((1, 6, Rect((), ())),)}),
        "fetch: output 'loss', made by 'loss': region 'loss': an instance is on another device",
    ),
]


def check_an_old_version():
    graph = Graph()
    value = tiny.copy(graph.input("x", (4, 2)), "value")
    tiny.double(value)
    graph.output("after", tiny.copy(value, "after"))
    machine = MachineModel.uniform(1)
    plan = lower(graph, data_parallel(graph, machine), machine)
    early = replace(plan, dep_ptr=np.zeros(len(plan) + 1, np.int64), dep_row=np.zeros(0, np.int64))
    check_plan(graph, early.reordered([0, 1, 3, 2]))


def check_what_is_added_twice(graph, plan):
    """The copy of a sum becomes a fold that adds the sum again."""
    bad = changed(changed(plan, "kind", 22, Kind.FOLD), "device", 22, 0)
    bad = changed(changed(bad, "arg_instance", 50, 13), "arg_privilege", [49, 50], [1, 0])
    check_plan(graph, bad)


def check_two_instances_at_once(graph, plan):
    memory = without_reuse(plan)
    offset = memory.offset.copy()
    offset[9] = offset[4]
    check_plan(graph, plan, replace(memory, offset=offset))


def check_an_early_reuse():
    graph, machine = network(batch=4, width=2, layers=2, momentum=0.0), MachineModel.uniform(2)
    plan = with_memory(lower(graph, model_parallel(graph, machine), machine), 1)
    memory, none = plan_memory(plan), np.zeros(0, np.int64)
    check_plan(graph, plan, memory)
    check_plan(graph, plan, memory, (np.zeros(len(plan) + 1, np.int64), none))


MORE = [
    (
        "executor",
        lambda plan: Executor(changed(plan, "arg_instance", 43, 13), watch=True),
        "twice: row 19, fold fc0.dweight[2] @0: region 'fc0.dweight' [0:1, 0:2]: a part is added "
        "twice: 4 of 4 parts, and some are missing",
    ),
    (
        "version",
        check_an_old_version,
        "version: row 2, point after[0] @0: region 'value' [0:4, 0:2]: device 0 holds version 1 there, not version 2",
    ),
    (
        "complete",
        check_what_is_added_twice,
        "complete: row 22, all-reduce fc0.dweight[5] @0: region 'fc0.dweight' [0:1, 0:2]: it adds "
        "a value on device 0 that is complete already",
    ),
    (
        "alive",
        check_two_instances_at_once,
        "alive: row 13, point loss.dx[0] @0: region 'fc0' [0:2, 0:2]: instance 4 of device 0 is "
        "used while its bytes are those of another",
    ),
    (
        "reuse",
        check_an_early_reuse,
        "reuse: row 23, point fc1.dweight[0] @0: region 'fc1.dweight' [0:1, 0:2]: nothing makes it"
        " wait for row 20, reduce-scatter fc1.dx[1] 0->1, whose bytes on device 0 it takes over",
    ),
]
REFUSED = [
    *(
        (what, partial(check_changed, change), f"plan, rule {said}", PlanError)
        for what, change, said in WRONG
    ),
    *((what, call, f"plan, rule {said}", PlanError) for what, call, said in MORE),
]
test_refused = each_refused(REFUSED)
