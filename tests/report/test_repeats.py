"""Labels: operators that do the same share a name, and no others do."""

import pytest

from taskflow import Graph, MachineModel, ParallelConfig, Strategy, data_parallel
from taskflow.report.describe import label_repeats
from tests import tiny

TWO = MachineModel.uniform(2)


def chain(*names, width=4):
    graph = Graph()
    x = graph.input("x", (8, width))
    for name in names:
        x = tiny.linear(x, width, name=name)
    return graph


def labels(graph, **configs):
    strategy = Strategy({**data_parallel(graph, TWO), **configs})
    return label_repeats((op, strategy[op.name]) for op in graph.operators)


def test_layers_that_differ_in_numbers_share_a_label():
    found = labels(chain("layer0.fc", "layer1.fc", "layer2.fc", "last"))
    assert found == {f"layer{k}.fc": "layer0-2.fc" for k in range(3)} | {"last": "last"}


def test_every_place_has_its_numbers():
    found = labels(chain("fc0_0", "fc0_1", "fc1_0", "fc1_1", "fc5_0", "fc5_1"))
    assert set(found.values()) == {"fc0,1,5_0,1"}


def test_another_configuration_or_extent_is_another_label():
    split = ParallelConfig({"o": 2})
    assert labels(chain("fc0", "fc1", "fc2"), fc1=split) == {
        "fc0": "fc0,2",
        "fc1": "fc1",
        "fc2": "fc0,2",
    }
    graph = chain("fc0", "fc1")
    tiny.linear(graph.regions["fc1"], 6, name="fc2")
    assert set(labels(graph).values()) == {"fc0,1", "fc2"}


@pytest.mark.parametrize("names", [("a1", "b2"), ("fc", "fc1"), ("a0_0", "a1_1")])
def test_no_label_says_more_than_there_is(names):
    assert labels(chain(*names)) == {name: name for name in names}


def test_a_label_is_not_given_twice():
    """Long lists are cut, so two of them may read alike."""
    split = {f"fc{k}": ParallelConfig({"o": 2}) for k in (6, 10)}
    found = labels(chain(*(f"fc{k}" for k in (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20))), **split)
    assert (
        found["fc0"] == found["fc20"] == "fc0,2,4,...,20"
        and found["fc6"] == found["fc10"] == "fc6,10"
    )
