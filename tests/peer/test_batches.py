"""Modules that are imported as one become what each becomes alone; a wrong rule of one is seen beside the others."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from ops.elementwise.broadcast import elementwise, launch
from ops.torch import export_reader


@pytest.fixture
def given(torch: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Weights of one name, a buffer that changes, gates, a frozen weight, and two inputs."""
    torch.manual_seed(0)
    nn, x = torch.nn, torch.rand(4, 3, dtype=torch.float64)
    frozen = nn.Linear(3, 2).requires_grad_(False)
    modules = [nn.Linear(3, 2), nn.BatchNorm1d(3), nn.LSTM(3, 4), nn.Sequential(frozen)]
    return [(m.double(), (x,)) for m in modules] + [(nn.MSELoss(), (x, x + 1))]


def replaced(monkeypatch: pytest.MonkeyPatch, name: str, value: str, x: str) -> None:
    rule = elementwise(value, x=x)
    monkeypatch.setitem(
        export_reader.RULES, name, lambda at, x: launch(name, rule, {"x": x}, at.name)
    )


def calls(torch: Any, *run: Callable[..., Any]) -> list[Any]:
    from tests.peer.sweep.cases import Call

    return [Call(each) for each in run]


def test_each_becomes_what_it_becomes_alone(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.peer.batches import import_together

    door, exports = sys.modules["ops.torch.from_torch"], list[Any]()
    real = door.export  # type: ignore[attr-defined]
    monkeypatch.setattr(door, "export", lambda *args: exports.append(1) or real(*args))
    found = import_together(given)
    assert len(exports) == 1
    for (module, inputs), model in zip(given, found, strict=True):
        alone = ops.from_torch(module, inputs)
        assert [
            (r.name, r.shape, r.role) for r in model.graph.regions.values() if r.is_persistent
        ] == [(r.name, r.shape, r.role) for r in alone.graph.regions.values() if r.is_persistent]
        assert [op.pattern for op in model.graph.operators] == [
            op.pattern for op in alone.graph.operators
        ]
        assert [r.shape for r in model.outputs] == [r.shape for r in alone.outputs]
        assert len(model.inputs) == len(alone.inputs)
        assert model.weights.keys() == alone.weights.keys()
        for name, value in alone.weights.items():
            np.testing.assert_array_equal(model.weights[name], value)


WRONG = {
    "an inclusive kink": ("max(x, 0)", "g * (x >= 0)", "zeros"),
    "where the neighbour takes no numbers": (
        "min(max(x, 0), 50)",
        "g * (x > 0) * (x < 50)",
        "large numbers",
    ),
    "by less than float32 shows": ("max(x, 0) * (1 + 1e-6)", "g * (x > 0)", ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_seen_in_a_batch(
    name: str, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neighbours are a loss that takes chances alone, a product of float32, and one with large gradients."""
    from tests.peer.batches import import_together
    from tests.peer.sweep import verdict, verdicts

    value, slope, where = WRONG[name]
    replaced(monkeypatch, "relu", value, slope)
    x = torch.linspace(-1.1, 1.3, 12, dtype=torch.float64)
    chances = torch.full((12,), 0.3, dtype=torch.float64)
    neighbours = calls(
        torch,
        torch.nn.functional.binary_cross_entropy,
        lambda x: (x.float() * 2).double(),
        lambda x: x * 1e9,
    )
    inputs = [(chances, chances), (x,), (x,)]
    assert len(import_together([*zip(neighbours, inputs, strict=True)])) == 3
    wrong = calls(torch, torch.relu)[0]
    with pytest.raises(ValueError, match=f"differs from torch's{where and f' on {where}'} in "):
        import_together([*zip(neighbours, inputs, strict=True), (wrong, (x,))])
    cases = [
        (str(k), lambda m=m: m, i) for k, (m, i) in enumerate(zip(neighbours, inputs, strict=True))
    ]
    found = dict(verdicts([*cases, ("relu", lambda: wrong, (x,))]))
    assert found["relu"] == verdict(wrong, (x,))
    assert found["relu"].kind == "refused"
    assert [found[str(k)].kind for k in range(3)] == ["right"] * 3


def test_a_wrong_number_that_the_import_does_not_try_is_seen(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.peer.sweep import verdict, verdicts

    replaced(
        monkeypatch,
        "relu",
        "max(x, 0) * (1 - (x > 6.5) * (x < 19.5))",
        "g * (x > 0) * (1 - (x > 6.5) * (x < 19.5))",
    )
    x = torch.linspace(-1.1, 1.3, 12, dtype=torch.float64)
    relu, sine = calls(torch, torch.relu, torch.sin)
    found = dict(verdicts([("sine", lambda: sine, (x,)), ("relu", lambda: relu, (x,))]))
    assert found["relu"] == verdict(relu, (x,))
    assert (found["sine"].kind, found["relu"].kind) == ("right", "wrong")


def test_a_call_that_its_rule_refuses_is_not_taken_apart_beside_others(torch: Any) -> None:
    """Else torch would write the pooling beside it by others, too, and its rule would not be tried."""
    from tests.peer.batches import import_together

    x = torch.rand(2, 3, 8, dtype=torch.float64)
    plain, dilated = torch.nn.MaxPool1d(3), torch.nn.MaxPool1d(3, dilation=2)
    assert len(import_together([(plain, (x,)), (plain, (x,))])) == 2
    assert ops.from_torch(dilated, x).output.shape == (2, 3, 2)
    with pytest.raises(ValueError, match="max pooling with dilation is not supported"):
        import_together([(plain, (x,)), (dilated, (x,))])
