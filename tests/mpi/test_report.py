"""The page of a run: the steps of all ranks become one, and rank 0 writes it."""

import json
import re

import numpy as np
import pytest

from taskflow import CostModel, MachineModel, Trainer, data_parallel
from taskflow.comm.transport import connect
from taskflow.report.page.steps import SORTS
from taskflow.tasks.task_graph import Kind
from tests.lowered import network

pytestmark = pytest.mark.two_ranks  # with more it takes no other way


def test_a_run_on_all_ranks(folder):
    transport = connect()
    machine = MachineModel.local(devices=max(transport.size, 2), kind="cpu")
    graph = network(batch=32)
    costs = CostModel.analytic(machine)
    trainer = Trainer(graph, machine=machine, strategy=data_parallel, costs=costs, quiet=True)
    for _ in range(2):
        trainer.step({region.name: np.ones(region.shape, region.dtype) for region in graph.inputs})
    path = folder / "run.html"
    trainer.report(path)
    transport.barrier()
    (text,) = re.findall(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    predicted, measured = json.loads(text)["steps"]
    assert (predicted["role"], measured["role"]) == ("plan", "measured")
    assert measured["rows"] == len(trainer.task_graph)
    sorts = [measured["names"]["sort"][name] for name in measured["tasks"]["name"]]
    points = int(np.sum(trainer.task_graph.kind == Kind.POINT))
    assert sum(sort < SORTS.index("communication") for sort in sorts) == points  # of all ranks
    assert transport.size == 1 or "communication" in {SORTS[sort] for sort in sorts}
    assert measured["shown_devices"] == list(range(len(machine.devices)))
    assert measured["seconds"] > 0 and min(measured["usage"]["compute_seconds"]) > 0
    trainer.step.close()
