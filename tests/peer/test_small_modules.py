"""Small modules of torch: outputs, what is trained and three steps of it are torch's, or they are refused."""

import re

import pytest

import ops
from tests.sampling import IS_THOROUGH


def test_outputs_and_training_are_torchs(subtests: pytest.Subtests) -> None:
    from .small_modules import REFUSED, RIGHT, assert_torchs_numbers, imported_together

    assert len(RIGHT) + len(REFUSED) >= 80
    chosen = dict([*RIGHT.items()][:: 1 if IS_THOROUGH else 3])
    together = imported_together(chosen)
    for name, make in chosen.items():
        with subtests.test(name):
            assert_torchs_numbers(*(together.get(name) or make()))


def test_refused(subtests: pytest.Subtests) -> None:
    from .small_modules import REFUSED

    assert len(REFUSED) >= 13
    for name, (make, message) in REFUSED.items():
        with (
            subtests.test(name),
            pytest.raises(ValueError, match=f"^from_torch: .*{re.escape(message)}") as caught,
        ):
            ops.from_torch(*make())
        assert "\n" not in str(caught.value)


def test_without_the_comparison_the_graph_is_given_as_it_is() -> None:
    from .small_modules import REFUSED

    model = ops.from_torch(*REFUSED["a hook on a gradient"][0](), compare=False)
    assert [r.name for r in model.graph.parameters] == ["fc.weight", "fc.bias"]
