"""What an ordinary example does not show is seen on others; what torch.export says of shapes is not believed."""

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from ops.elementwise.broadcast import elementwise, launch
from ops.torch import export_reader
from ops.torch.adversaries import adversaries
from ops.torch.aten import sequences
from taskflow import Executor, MachineModel, data_parallel, lower


def call(torch: Any, run: Callable[..., Any]) -> Any:
    class Call(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *given: Any) -> Any:
            return run(*given)

    return Call()


def replaced(monkeypatch: pytest.MonkeyPatch, name: str, **formulas: str) -> None:
    """A rule of one operand that is right on ordinary numbers."""
    rule = elementwise(formulas.pop("value"), **formulas)
    monkeypatch.setitem(
        export_reader.RULES, name, lambda at, x, *_: launch(name, rule, {"x": x}, at.name)
    )


WRONG = {
    "relu": ({"value": "max(x, 0)", "x": "g * (x >= 0)"}, "torch.relu(x)", "zeros"),
    "sigmoid": (
        {"value": "exp(x) / (1 + exp(x))", "x": "g * z * (1 - z)"},
        "torch.sigmoid(x)",
        "large numbers",
    ),
    "hardtanh": (
        {"value": "min(max(x, -1), 1)", "x": "g * (x >= -1) * (x <= 1)"},
        "F.hardtanh(x)",
        "ties",
    ),
    "abs": ({"value": "abs(x)", "x": "g * (2 * (x > 0) - 1)"}, "torch.abs(x)", "zeros"),
    "round": ({"value": "floor(x + 0.5)", "x": "0 * g"}, "torch.round(x)", "other kinks"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_is_wrong_elsewhere(
    name: str, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    formulas, text, where = WRONG[name]
    replaced(monkeypatch, name, **formulas)
    x = torch.linspace(-2.2, 2.3, 26, dtype=torch.float64)
    module = call(torch, eval(f"lambda x: {text}", {"torch": torch, "F": torch.nn.functional}))
    with pytest.raises(ValueError, match=f"^from_torch: .* differs from torch's on {where} in "):
        ops.from_torch(module, x)


def test_masks_that_hide_all(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    q, mask = (
        torch.rand(2, 1, 3, 4, dtype=torch.float64),
        torch.ones(2, 1, 3, 3, dtype=torch.bool).tril(),
    )
    module = call(
        torch, lambda q, m: torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=m)
    )
    ops.from_torch(module, (q, mask))
    added = torch.zeros(2, 1, 3, 3, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    ops.from_torch(module, (q, added))
    monkeypatch.setattr(sequences, "_may_hide_all", lambda mask: False)
    with pytest.raises(
        ValueError, match=r"^from_torch: output 0 differs from torch's on empty masks in 24 of 24"
    ):
        ops.from_torch(module, (q, mask))


def test_what_is_tried(torch: Any) -> None:
    floats, mask = torch.rand(4, 5), torch.tensor([[1, 1, 0], [1, 0, 0]])
    found = dict(adversaries([floats, mask, torch.tensor([2, 5, 3]), 7]))
    assert [*found] == [
        *("zeros", "ties", "kinks", "other kinks", "large numbers", "ends"),
        *("full masks", "empty masks", "empty rows of masks"),
        *("the least index", "the greatest index", "exchanged indices"),
    ]
    assert found["zeros"][0].eq(0).all()
    assert found["zeros"][1] is mask
    assert found["empty rows of masks"][1].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert found["empty rows of masks"][0] is floats
    assert [found[name][2].tolist() for name in found if "ind" in name] == [
        [2] * 3,
        [5] * 3,
        [3, 5, 2],
    ]
    assert all(values[3] == 7 and values[0].dtype == torch.float32 for values in found.values())
    kinks = {*found["kinks"][0].unique().tolist(), *found["other kinks"][0].unique().tolist()}
    assert {-20.0, -3.0, -1.0, 0.0, 0.5, 1.0, 3.0, 6.0, 20.0} <= kinks


SHAPES = {
    "LSTM": ("nn.LSTM(3, 4)", (5, 2, 3)),
    "GRU": ("nn.GRU(3, 4, 2, bidirectional=True)", (5, 2, 3)),
    "Linear": ("nn.Sequential(nn.Linear(3, 6), nn.Unflatten(1, (2, 3)))", (4, 3)),
    "MaxPool2d": ("nn.MaxPool2d(2, ceil_mode=True)", (2, 3, 5, 5)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_the_export_are_not_believed(
    name: str, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, shape = SHAPES[name]
    door = sys.modules["ops.torch.from_torch"]
    real = door.export

    def export(*args: Any) -> Any:
        program = real(*args)
        for node in program.graph.nodes:
            if node.op == "call_function":
                node.meta["val"] = torch.empty(1, 2, 3, 4, device="meta", dtype=torch.int8)
        return program

    monkeypatch.setattr(door, "export", export)
    module = eval(text, {"nn": torch.nn}).double()
    model = ops.from_torch(module, torch.rand(shape, dtype=torch.float64))
    expected = torch.utils._pytree.tree_leaves(module(torch.rand(shape, dtype=torch.float64)))
    assert [r.shape for r in model.outputs] == [tuple(y.shape) for y in expected]


STATES = {
    "BatchNorm": "nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))",
    "two of them": "nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.3))",
    "of images": "nn.Sequential(nn.Unflatten(1, (3, 1)), nn.BatchNorm1d(3), nn.Flatten())",
}


@pytest.mark.parametrize("name", STATES)
def test_every_buffer_comes_back(name: str, torch: Any) -> None:
    module = eval(STATES[name], {"nn": torch.nn}).double()
    x = torch.rand(5, 3, dtype=torch.float64)
    module(x)
    model = ops.from_torch(module, x)
    machine = MachineModel.uniform(2)
    model.graph.output("y", model.output)
    with Executor(lower(model.graph, data_parallel(model.graph, machine), machine)) as step:
        model.load(step)
        for _ in range(3):
            step({r: x.numpy() for r in model.inputs})
        state = ops.to_torch(step, module)
    for _ in range(3):
        module(x)
    for key, value in module.state_dict().items():
        np.testing.assert_allclose(
            state[key].numpy(), value.numpy(), rtol=1e-12, err_msg=re.escape(key)
        )
        assert not key.endswith("num_batches_tracked") or int(state[key]) == 4
