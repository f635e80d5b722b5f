"""The trainer's report: predicted beside measured, with a warning where they are far apart."""

import numpy as np
import pytest

import ops
from taskflow import CostModel, Graph, MachineModel, Trainer, single_device


@pytest.fixture
def trainer():
    graph = Graph()
    x, t = graph.input("x", (4, 6)), graph.input("t", (4,), "int32")
    loss = ops.softmax_cross_entropy(ops.linear(x, 3, name="fc"), t, name="loss")
    graph.output("loss", loss)
    ops.sgd(loss, lr=0.1)
    machine = MachineModel.uniform(1)
    trainer = Trainer(graph, machine=machine, costs=CostModel.analytic(machine), strategy=single_device)
    trainer.step({"x": np.ones((4, 6), np.float32), "t": np.zeros(4, np.int32)})
    return trainer


@pytest.mark.parametrize(("measured", "warns"), [(0.7, True), (0.8, False), (1.25, False), (1.35, True)])
def test_a_prediction_off_by_more_than_30_percent_is_reported(trainer, capsys, measured, warns):
    trainer.step._seconds = 2.0 * measured
    trainer.predicted_seconds = 2.0
    trainer.report()
    text = capsys.readouterr().out
    assert "predicted step time: 2000.000 ms" in text
    assert f"measured step time:  {2000 * measured:.3f} ms ({measured:.2f} of predicted)" in text
    assert ("off by more than 30 %" in text) == warns
