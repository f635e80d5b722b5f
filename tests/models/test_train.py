"""Every model learns from its data: the command that trains them, at reduced size, alone and on two devices."""

import re

import numpy as np
import pytest

from examples import data, train
from tests.sampling import IS_THOROUGH

STEPS = 25
MORE_STEPS = {"resnet101": 60}  # whose loss goes up and down before
LEARNING = [m for m in train.RECIPES if IS_THOROUGH or m not in MORE_STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("model", LEARNING)
def test_the_loss_comes_down(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    train.main([model, "--steps", str(MORE_STEPS.get(model, STEPS)), "--devices", "2"])
    said = capsys.readouterr().out
    losses = [float(loss) for loss in re.findall(r"step +\d+: loss (\d+\.\d+)", said)]
    assert f"{model}: " in said and "data: " in said
    assert len(losses) > 10 and np.median(losses[-4:]) < np.median(losses[:4])


@pytest.mark.parametrize("model", train.RECIPES)
def test_a_source_gives_what_the_graph_wants(model: str) -> None:
    recipe = train.RECIPES[model]
    graph, source = recipe.build(model), recipe.source()
    first, again, second = (source.batch(graph, step) for step in (0, 0, 1))
    for region in graph.inputs:
        assert first[region.name].shape == region.shape and first[region.name].dtype == region.dtype
        np.testing.assert_array_equal(first[region.name], again[region.name])
    assert any((first[name] != second[name]).any() for name in first)


def test_words_are_numbered_by_frequency() -> None:
    for text in data.words(50):
        assert text.min() == 0 and text.max() == 49
    both = np.concatenate(data.words(50))
    counts = np.bincount(both)[1:]
    assert (np.diff(counts) <= 0).all()


def test_masked_words_can_be_put_back() -> None:
    recipe = train.RECIPES["bert"]
    graph, source = recipe.build("bert"), recipe.source()
    batch = source.batch(graph, 0)
    assert (np.take_along_axis(batch["x"], batch["positions"], 1) == 0).all()
    assert (batch["t"] != 0).any() and set(batch["t_next"]) == {0, 1}
