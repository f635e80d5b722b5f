"""Small modules of torch: outputs, what is trained and three steps of it are torch's, or they are refused."""

import re

import pytest

import ops


def test_outputs_and_training_are_torchs(subtests: pytest.Subtests) -> None:
    from .small_modules import RIGHT, assert_torchs_numbers

    assert len(RIGHT) >= 42
    for name, make in RIGHT.items():
        with subtests.test(name):
            assert_torchs_numbers(*make())


def test_refused(subtests: pytest.Subtests) -> None:
    from .small_modules import REFUSED

    assert len(REFUSED) >= 13
    for name, (make, message) in REFUSED.items():
        match = f"^from_torch: (.*\\n)*.*{re.escape(message)}"
        with subtests.test(name), pytest.raises(ValueError, match=match):
            ops.from_torch(*make())


def test_without_the_comparison_the_graph_is_given_as_it_is() -> None:
    from .small_modules import REFUSED

    model = ops.from_torch(*REFUSED["a hook on a gradient"][0](), check=False)
    assert [r.name for r in model.graph.parameters] == ["fc.weight", "fc.bias"]


def test_torch_fx_reads_what_torch_export_cannot_follow(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the one gives up the other one gives the same numbers; what it cannot do either is the first's message."""
    from .small_modules import RIGHT, assert_torchs_numbers

    def refuse(*args: object) -> None:
        raise ValueError("from_torch: torch.export cannot follow the module")

    monkeypatch.setattr("ops.torch.from_torch.export", refuse)
    read = 0
    for name, make in RIGHT.items():
        with subtests.test(name):
            try:
                assert_torchs_numbers(*make())
                read += 1
            except ValueError as error:
                is_refused = str(error) == "from_torch: torch.export cannot follow the module"
                assert is_refused or "differs from torch's" in str(error)
    assert read >= 33
