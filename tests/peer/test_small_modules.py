"""Small modules of torch: outputs, what is trained and three steps of it are torch's, or they are refused."""

import re

import pytest

import ops

pytest.importorskip("torch")

from .small_modules import REFUSED, RIGHT, assert_torchs_numbers


@pytest.mark.parametrize("name", RIGHT)
def test_outputs_and_training_are_torchs(name: str) -> None:
    assert_torchs_numbers(*RIGHT[name]())


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"^from_torch: (.*\\n)*.*{re.escape(message)}"):
        ops.from_torch(*make())


def test_enough_modules_are_tried() -> None:
    assert len(RIGHT) >= 30 and len(REFUSED) >= 19


def test_without_the_comparison_the_graph_is_given_as_it_is() -> None:
    module, x = REFUSED["a hook"][0]()
    model = ops.from_torch(module, x, check=False)
    assert [r.name for r in model.graph.parameters] == ["fc.weight", "fc.bias"]
