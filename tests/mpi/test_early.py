"""Losses that are divided by a count of all samples, in pipelines over ranks."""

import numpy as np
import pytest

from taskflow import CostModel, MachineModel, lower, reorder, single_device, stages
from taskflow.schedule import gpipe, one_f_one_b, zb_h1
from tests.schedule.test_early import LOSSES, feeds, model, numbers


@pytest.mark.parametrize("order", [gpipe, one_f_one_b, zb_h1], ids=lambda order: order.name)
@pytest.mark.parametrize("name", ["cross_entropy", "cross_entropy of weights", "masked mean"])
def test_a_pipeline_over_ranks_gives_the_numbers_of_one_device(comm, name, order):
    graph, machine = model(LOSSES[name]), MachineModel.uniform(comm.size if comm.size > 1 else 2)
    fed = feeds(graph)
    expected = numbers(lower(graph, single_device(graph, machine), machine), fed)
    rows = lower(graph, stages(graph, machine, 2, 4), machine)
    for key, value in numbers(reorder(rows, CostModel.analytic(machine), order), fed).items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-10, atol=1e-12, err_msg=key)
