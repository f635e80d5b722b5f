"""A search by all ranks together: one result, the same everywhere, at least as good as that of one rank alone."""

import pytest

from taskflow import CostModel, Device, Graph, MachineModel, search
from taskflow.comm.transport import LocalTransport, connect
from taskflow.searching.budget import Budget
from taskflow.searching.problem import SearchProblem
from taskflow.searching.searching import search_on
from tests import tiny

pytestmark = pytest.mark.two_ranks  # with more it takes no other way

MACHINE = MachineModel.uniform(
    3, Device(kind="emulated", flops_per_second=1e8, memory_bandwidth=1e9), 1e9
)


def test_all_ranks_get_the_best_result_of_any():
    graph = Graph()
    x = tiny.tanh(tiny.linear(graph.input("x", (8, 6), "float64"), 8))
    tiny.sgd(tiny.mean_square(tiny.linear(x, 4)), momentum=0)
    costs, transport = CostModel.analytic(MACHINE), connect()
    result = search(graph, MACHINE, costs, proposals=25)
    alone = search_on(
        LocalTransport(), SearchProblem(graph, MACHINE, costs), Budget(25, None), 0, None
    )
    everywhere = transport.gather((result, dict(result.strategy), alone.seconds))
    assert all(each[:2] == (result, dict(result.strategy)) for each in everywhere)
    assert result.seconds <= alone.seconds and result.proposals >= alone.proposals
