"""References of tests/gpu, and its laws of random models on fake streams: what a GPU will be asked is sound."""

import numpy as np
import pytest

from tests import laws
from tests.fake_gpu.streams import FakeStreams
from tests.gpu import references, test_laws
from tests.strategies import Model


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(references, "FOLDER", tmp_path / "references")
    return tmp_path / "references"


@pytest.fixture
def model():
    return test_laws.perceptron()


def test_a_reference_is_made_once(model, folder, monkeypatch):
    made = references.one_device(model, 2)
    laws.assert_equal(made, laws.one_device(model, references.MachineModel.uniform(1), 2))
    monkeypatch.setattr(
        laws, "one_device", None
    )  # a test of a GPU calls nothing that compiles for CPUs
    laws.assert_equal(references.one_device(model, 2), made)
    assert len(list(folder.iterdir())) == 1


def test_another_question_has_another_answer(model, folder, monkeypatch):
    """Of other steps, feeds, models or sources."""
    other = Model(model.graph, {name: np.roll(value, 1) for name, value in model.feeds.items()})
    for which, steps in ((model, 1), (model, 2), (other, 2), (references.drawn()[0][0], 2)):
        references.one_device(which, steps)
    monkeypatch.setattr(references, "_digest", lambda: "changed")
    references.one_device(model, 1)
    assert len(list(folder.iterdir())) == 5


def test_random_models_are_the_same_in_every_process():
    shown = [list(map(repr, example)) for example in references.drawn()]
    references.drawn.cache_clear()
    assert [list(map(repr, example)) for example in references.drawn()] == shown
    assert len({example[0] for example in shown}) > 0.8 * references.DRAWN


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 4, 8])
def test_laws_of_random_models_hold_on_fake_streams(number, monkeypatch):
    monkeypatch.setattr(test_laws, "backend", lambda: FakeStreams(number))
    test_laws.test_any_strategy_gives_the_numbers_of_one_device(number, False)
    test_laws.test_any_strategy_keeps_to_its_privileges(number)
    test_laws.test_any_order_gives_the_same_numbers(number)
    test_laws.test_runs_are_the_same_to_the_bit(number)
