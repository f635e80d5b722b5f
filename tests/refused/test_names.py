"""Names are keys: where two things have one, the second is refused, and no first one is replaced in silence."""

import pytest

import ops
from taskflow import CostModel, Graph, MachineModel, data_parallel, lower, search, stages
from taskflow.core.system import world_rank, world_size
from tests.lowered import network
from tests.refusals import assert_refused

TWO = MachineModel.uniform(2)


def repeated(name, output):
    """A graph of two steps, of which the second has a name of the first."""
    graph = Graph()
    y = ops.relu(graph.input("x", (4, 3)), name="y")
    z = ops.tanh(y, name=name)
    graph.output("out", y)
    graph.output(output, z)
    return lower(graph, data_parallel(graph, TWO), TWO, repeat=2)


CASES = {
    "repeat: 'out@1' is the name of an output, and of one in step 1": lambda: repeated("z", "out@1"),
    "repeat: 'y@1' is the name of a region, and of one in step 1": lambda: repeated("y@1", "other"),
    "search: the start 'data parallel': it has the name of a start by a rule": lambda: search(
        network(), TWO, CostModel.analytic(TWO), proposals=1, starts={"data parallel": data_parallel(network(), TWO)}
    ),
    "output 'loss': is 'y' already": lambda: with_an_output("loss"),
    "region 'learning_rate.slow': the graph has a region of this name already": lambda: with_a_region("learning_rate"),
}


def with_an_output(name):
    graph = Graph()
    y = graph.output(name, ops.linear(graph.input("x", (4, 3)), 3, name="y"))
    ops.sgd(ops.mean(y), 0.1)


def with_a_region(name):
    graph = Graph()
    graph.parameter(f"{name}.slow", (), trainable=False)
    loss = ops.mean(ops.linear(graph.input("x", (4, 3)), 3, name="fc"))
    ops.sgd(loss, 0.1, groups=[ops.ParameterGroup("fc.*", lr=0.2, name="slow")])


@pytest.mark.parametrize("message", CASES)
def test_names(message):
    assert_refused(message, CASES[message])


@pytest.mark.parametrize(
    ("name", "ask"), [("OMPI_COMM_WORLD_RANK", world_rank), ("PMI_SIZE", world_size), ("PMIX_RANK", world_rank)]
)
@pytest.mark.parametrize("text", ["abc", "-1", "1.5"])
def test_variables_of_the_launcher(monkeypatch, name, ask, text):
    for each in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, text)
    assert_refused(f"{name}: is a whole number from 0, not '{text}'", ask)


def test_stages_are_as_many_as_their_devices():
    graph, groups = network(), [(0,), (1,), (0,)]
    assert stages(graph, TWO, devices=groups) == stages(graph, TWO, count=3, devices=groups)
