"""Expert parallelism over ranks: four experts, on four devices of one process or one device of each rank."""

import pytest

from ops.models.moe import expert_parallel
from taskflow import Executor, MachineModel, lower, single_device
from tests.models.tiny import assert_close, train
from tests.ops.test_experts import SPARSE, batches, layer


def machine_of(comm):
    return MachineModel.uniform(comm.size if comm.size > 1 else 4)


@pytest.mark.parametrize(
    "options",
    [{"groups": 1}, {"groups": 4}, {"groups": 2, "factor": None, "gate": SPARSE}],
    ids=["one group", "four groups", "sparse gate"],
)
def test_expert_parallel_trains_as_one_device_does(comm, options):
    graph, machine = layer(**options), machine_of(comm)
    alone = train(graph, single_device(graph, machine), machine, batches(5))
    assert_close(train(graph, expert_parallel(graph, machine), machine, batches(5)), alone)


def test_what_is_dropped_is_counted_over_all_ranks(comm):
    graph, machine = layer(), machine_of(comm)
    counts = []
    for rule in (single_device, expert_parallel):
        with Executor(lower(graph, rule(graph, machine), machine), seed=3) as step:
            counts.append([int(step(feeds)["experts.dropped"]) for feeds in batches(3)])
    assert counts[0] == counts[1] and min(counts[0]) > 0
