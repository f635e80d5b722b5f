"""Architecture search: sizes and links are those of the graphs, and what is found keeps to all budgets."""

import numpy as np
import pytest

from taskflow import MachineModel

pytest.importorskip("scipy")  # it comes with scikit-learn

from examples.applications import architecture_search as search

LAPTOP = MachineModel.preset("laptop").take(2)


@pytest.mark.parametrize("net", search.drawn(3, seed=5), ids=str)
def test_links_and_weights_are_those_of_the_graph(net):
    graph = search.build(net)
    taken = [op.outputs[0].shape[1] for op in graph.operators if ".some" in op.name]
    weights = [np.prod(r.shape) for r in graph.parameters if len(r.shape) == 4]
    assert sum(taken) == sum(cell.links for cell in net)
    assert sum(weights) == search.sizes(net)[3]


def test_links_grow_without_a_jump():
    depths = np.linspace(*search.DEPTH, 61)
    links = np.array([search.Cell(3, depth, 7).links for depth in depths])
    assert links[0] == 3 and links[-1] == 3 + 6 + 7 + 7
    assert np.diff(links).min() >= 0 and np.diff(links).max() < 0.4


def test_what_is_found_keeps_to_all_budgets(monkeypatch):
    monkeypatch.setattr(search, "accuracy", lambda net, steps: 0.1 + search.degree(net) / 40)
    found = search.find(LAPTOP, seed=0, count=12, steps=0, proposals=5)
    assert found.takes.fits(found.budget) and np.isfinite(found.budget).all()
    assert found.accuracy >= found.best_sample > 0.1
    assert found.correlation == pytest.approx(1) and found.model_error < 0.1


def test_nets_learn():
    pytest.importorskip("scipy")  # it comes with scikit-learn
    net = search.net_of(np.array([6, 6, 2, 2, 2, 0]))
    assert search.accuracy(net, 40) > search.accuracy(net, 0) + 0.1
