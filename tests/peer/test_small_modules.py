"""Forty small modules of torch: outputs, what is trained and three steps of it are torch's, or they are refused."""

import re
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import Executor, MachineModel, data_parallel, lower

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402

from .small_modules import REFUSED, RIGHT  # noqa: E402

LR = 0.05


def tolerance_of(x: Any) -> float:
    return 1e-4 if x.dtype == torch.float32 else 1e-9


def losses_of_torch(module: Any, x: Any, target: np.ndarray) -> list[float]:
    optimizer, losses = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=LR), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.mse_loss(module(x), torch.tensor(target))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", RIGHT)
def test_outputs_and_training_are_torchs(name: str) -> None:
    module, x = RIGHT[name]()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    model = ops.from_torch(module, x)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items()), "the module was changed"
    assert not [key for key in vars(module) if key.startswith("_tensor_constant")]
    graph, machine = model.graph, MachineModel.uniform(2)
    if name == "dropout in training":
        return  # compared in evaluation; what is drawn differs
    target = np.random.default_rng(1).random(model.output.shape).astype(model.output.dtype)
    if graph.parameters:
        loss = ops.mean_squared_error(model.output, graph.input("target", target.shape, target.dtype.name))
        ops.sgd(loss, lr=LR)
    graph.output("y", model.output)
    feeds = {next(iter(model.inputs)): x.numpy(), **({"target": target} if graph.parameters else {})}
    with Executor(lower(graph, data_parallel(graph, machine), machine)) as step:
        model.load(step)
        steps = [step(feeds) for _ in range(3 if graph.parameters else 1)]
    expected, tolerance = module(x).detach().numpy(), tolerance_of(x)
    module.load_state_dict(before)
    np.testing.assert_allclose(steps[0]["y"], expected, rtol=tolerance, atol=tolerance)
    if graph.parameters:
        found = [float(each["loss"]) for each in steps]
        np.testing.assert_allclose(found, losses_of_torch(module, x, target), rtol=tolerance)
        with_gradient = {key for key, p in module.named_parameters() if p.grad is not None and p.requires_grad}
        flags = {key: np.full(p.shape, key in with_gradient) for key, p in module.named_parameters()}
        trained = {key for key, flag in ops.from_torch_state(flags).items() if flag.all()}
        assert {r.name for r in graph.parameters} == trained


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"^from_torch: (.*\\n)*.*{re.escape(message)}"):
        ops.from_torch(*make())


def test_enough_modules_are_tried() -> None:
    assert len(RIGHT) >= 25 and len(RIGHT) + len(REFUSED) >= 36


def test_without_the_comparison_the_graph_is_given_as_it_is() -> None:
    module, x = REFUSED["a hook"][0]()
    model = ops.from_torch(module, x, check=False)
    assert [r.name for r in model.graph.parameters] == ["fc.weight", "fc.bias"]
