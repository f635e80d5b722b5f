"""Who carries what between the GPUs of ranks: the choice from facts, collectives as calls of a library."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskflow import Device, Kind, MachineModel, lower
from taskflow.backend import RankGpu
from taskflow.core.geometry import Rect
from taskflow.execute.gpu.carriers import choose_carriers
from taskflow.execute.gpu.library import are_slices, plan_library
from taskflow.execute.gpu.together import group_transfers
from taskflow.tasks.exchange import SUMS
from tests.collectives import one_collective
from tests.execute.gpu.test_streamed import network
from tests.refusals import assert_refused
from tests.strategies import graphs, random_strategy

ONE_HOST = tuple(
    RankGpu("a", f"gpu {k}", tuple(f"gpu {j}" for j in range(8)), 23000) for k in range(8)
)


def lowered(devices, seed=2):
    graph, machine = network(), MachineModel.uniform(devices).with_rates(kind="cuda")
    return lower(graph, random_strategy(graph, machine, seed), machine)


def carriers_of(gpus, carrier="auto", **options):
    return set(choose_carriers(lowered(len(gpus)), gpus, carrier, **options).pairs.values())


# -- the choice --------------------------------------------------------------------------------------------------------


def test_gpus_of_a_host_read_each_others_memory():
    assert carriers_of(ONE_HOST[:4]) == {"shared"}


def test_gpus_of_different_hosts_use_the_library():
    assert carriers_of([replace(p, host=f"host {k}") for k, p in enumerate(ONE_HOST[:4])]) == {
        "nccl"
    }


@pytest.mark.parametrize(
    "gpus",
    [
        [replace(p, host=f"host {k}", library=0) for k, p in enumerate(ONE_HOST[:4])],
        [
            replace(p, gpu="gpu 0", reaches=()) for p in ONE_HOST[:4]
        ],  # NCCL refuses ranks that share a GPU
    ],
)
def test_where_nothing_else_works_messages_do(gpus):
    assert carriers_of(gpus) == {"messages"}


def test_ranks_on_one_gpu_read_each_others_memory():
    assert carriers_of([replace(p, gpu="gpu 0") for p in ONE_HOST[:4]]) == {"shared"}


def test_where_memory_cannot_be_mapped_the_library_is_used():
    assert carriers_of(ONE_HOST[:4], why_not="no IPC") == {"nccl"}


@pytest.mark.parametrize("carrier", ["shared", "messages", "nccl"])
def test_a_carrier_can_be_asked_for(carrier):
    assert carriers_of(ONE_HOST[:4], carrier) == {carrier}


def test_pairs_are_chosen_one_by_one():
    gpus = [replace(p, host="a" if k < 2 else "b") for k, p in enumerate(ONE_HOST[:4])]
    found = choose_carriers(lowered(4), gpus, "auto").pairs
    assert {
        pair: name
        for pair, name in found.items()
        if (pair[0] < 2) == (pair[1] < 2) and name != "shared"
    } == {}
    assert {found[pair] for pair in found if (pair[0] < 2) != (pair[1] < 2)} == {"nccl"}


def test_what_is_not_possible_is_refused():
    graph, apart = lowered(2), [replace(p, host=f"host {k}") for k, p in enumerate(ONE_HOST[:2])]
    where = "executor: transport='{}' is not possible: {}".format
    for gpus, carrier, options, why in (
        (apart, "shared", {}, "ranks 0 and 1 are on different hosts"),
        (
            [replace(p, reaches=()) for p in ONE_HOST[:2]],
            "shared",
            {},
            "the GPU of rank 1 does not reach that of rank 0",
        ),
        (ONE_HOST[:2], "shared", {"why_not": "no IPC"}, "no IPC"),
        ([ONE_HOST[0], replace(ONE_HOST[1], library=0)], "nccl", {}, "ranks [1] have no NCCL"),
    ):
        assert_refused(
            where(carrier, why),
            lambda a=(graph, gpus, carrier), o=options: choose_carriers(*a, **o),
        )


# -- collectives as calls ----------------------------------------------------------------------------------------------


def test_plain_collectives_are_one_call_each():
    graph, machine = network(), MachineModel.uniform(6).with_rates(kind="cuda")
    kinds = set()
    for seed in range(30):
        task_graph = lower(graph, random_strategy(graph, machine, seed), machine)
        for plan in choose_carriers(task_graph, ONE_HOST[:6], "nccl").plans.values():
            kinds |= {call.kind for calls in plan.rounds for call in calls}
    assert kinds >= {"all_reduce", "reduce", "broadcast", "send"}


@given(data=st.data(), seed=st.integers(0, 999), devices=st.integers(5, 8))
def test_calls_do_what_the_collective_says(data, seed, devices):
    model, machine = data.draw(graphs()), MachineModel.uniform(devices).with_rates(kind="cuda")
    task_graph = lower(model.graph, random_strategy(model.graph, machine, seed), machine)
    for row in np.flatnonzero(task_graph.kind == Kind.COLLECTIVE).tolist():
        x = task_graph.exchange(row)
        plan = plan_library(x, task_graph.order(int(task_graph.region[row])))
        if plan is not None:
            check_plan(task_graph, x, plan)


@pytest.mark.parametrize(("algorithm", "is_call"), [("pairwise", True), ("two-level", False)])
def test_what_others_pass_on_goes_as_its_messages_say(algorithm, is_call):
    hosts = tuple(Device("cuda", host=k // 2) for k in range(4))
    machine = MachineModel(hosts, MachineModel.uniform(4).links)
    task_graph, found = one_collective("all-to-all", algorithm, machine, (8, 8))
    assert found["all-to-all"] == algorithm
    rows = np.flatnonzero(task_graph.kind == Kind.COLLECTIVE).tolist()
    (x,) = [x for x in map(task_graph.exchange, rows) if x.name == "all-to-all"]
    assert (plan_library(x, (0, 1)) is not None) == is_call


def check_plan(task_graph, x, plan):
    """Carry out a plan on random numbers; all targets get what they should."""
    generator = np.random.default_rng(0)
    rects = {i: task_graph.instance_rect(i) for i in x.instances}
    held = {i: generator.normal(size=rect.shape) for i, rect in rects.items()}
    values = generator.normal(size=[max(1, n) for n in Rect.of_shape(bounds(rects.values())).shape])
    partial_sums = x.name in SUMS
    if not partial_sums:
        for k in range(x.sources):
            at(held, rects, x.instances[k], x.boxes[k])[...] = values[x.boxes[k].slices()]
    expected = {}
    for k in range(x.sources, x.sources + x.targets):
        box = x.boxes[k]
        terms = (
            [at(held, rects, x.instances[s], box) for s in range(x.sources)] if partial_sums else []
        )
        expected[k] = sum(terms) if partial_sums else values[box.slices()]
    for calls in plan.rounds:
        carry_out(x, calls, held, rects)
    for k, value in expected.items():
        np.testing.assert_allclose(at(held, rects, x.instances[k], x.boxes[k]), value)


def bounds(rects):
    return np.max([rect.hi for rect in rects], axis=0).astype(int).tolist()


def at(held, rects, instance, box):
    return held[instance][box.slices(rects[instance].lo)]


def carry_out(x, calls, held, rects):
    """The calls of a round, which all read before one of them writes."""
    writes = []
    for call in calls:
        given = {
            d: at(held, rects, x.instances[k], call.source_box[d]).copy()
            for d, k in call.sources.items()
        }
        for device, k in call.targets.items():
            target = at(held, rects, x.instances[k], call.target_box[device])
            writes.append((target, result(call, device, given)))
    for target, value in writes:
        target[...] = value


def result(call, device, given):
    ordered = [given[d] for d in call.group if d in given]
    if call.kind in ("all_reduce", "reduce"):
        return sum(ordered)
    if call.kind == "reduce_scatter":
        total = np.ascontiguousarray(sum(ordered))
        return total.reshape(len(call.group), -1)[call.group.index(device)].reshape(
            call.target_box[device].shape
        )
    if call.kind == "all_gather":
        return np.concatenate([v.reshape(-1) for v in ordered]).reshape(
            call.target_box[device].shape
        )
    return given[call.root]


@pytest.mark.parametrize(
    "cuts, order, is_so",
    [
        ([(0, 2), (2, 4)], (0, 1), True),
        ([(2, 4), (0, 2)], (0, 1), False),
        ([(0, 1), (1, 4)], (0, 1), False),
        ([(0, 2), (2, 4)], (1, 0), False),
        ([(0, 2)], (0, 1), False),
    ],
)
def test_slices_are_even_and_along_the_slowest_dimension(cuts, order, is_so):
    boxes = [Rect((lo, 0), (hi, 3)) for lo, hi in cuts]
    assert are_slices(boxes, Rect((0, 0), (4, 3)), order) == is_so


def test_transfers_that_follow_each_other_are_one_call():
    task_graph = lowered(4)
    rows = np.flatnonzero(task_graph.is_transfer).tolist()
    groups = group_transfers(task_graph, rows)
    assert [row for group in groups.values() for row in group] == rows
    assert max(map(len, groups.values())) > 1
    assert not any(
        set(task_graph.deps(row)) & set(group) for group in groups.values() for row in group
    )


@pytest.mark.slow
@pytest.mark.mpi
def test_collectives_of_five_ranks_run_in_the_library(mpirun):
    """By `tests/gpu/ranks.py`, so that it does not break where no GPU is."""
    graph, machine = network(), MachineModel.uniform(5).with_rates(kind="cuda")
    task_graph = lower(graph, random_strategy(graph, machine, 0), machine)  # its first model
    plans = choose_carriers(task_graph, ONE_HOST[:5], "nccl").plans.values()
    assert {call.kind for plan in plans for calls in plan.rounds for call in calls} == {
        "reduce",
        "broadcast",
        "send",
    }
    done = mpirun(5, "tests/gpu/ranks.py", "nccl", "--fake", timeout=120)
    assert done.returncode == 0 and "1 models are right" in done.stdout, done.stdout + done.stderr
