"""Thirty architectures of torch come through the door: outputs, gradients, training and weights are torch's.

`from_torch` itself compares outputs and all gradients with torch's, to 1e-9 of the largest value in float64 (to 1e-4
where the module casts to float32), under weights near its own. Here the executor does so on two devices, with the
module's own weights and its dropout, and the differences are shown: `pytest -s tests/peer/test_architectures.py`. Every
fourth one, all by HYPOTHESIS_PROFILE=thorough.
"""

import importlib.util
import time
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import Executor, MachineModel, data_parallel, differentiate, lower
from tests.sampling import IS_THOROUGH

OF_TRANSFORMERS = ("BERT", "ViT", "ResNet", "EfficientNet", "T5", "Swin", "Mamba")
IN_FLOAT32 = ("T5", "Mamba")  # their norms are computed in float32, whatever the module's dtype
TRAINED = ("nanoGPT", "UNet", "bidirectional")
STEPS = 20
SHARES = 8 if IS_THOROUGH else 4  # of the architectures: workers share them
EVERY = 1 if IS_THOROUGH else 4


def names_of() -> list[str]:
    from .architectures import ARCHITECTURES

    has = importlib.util.find_spec("transformers") is not None
    return [name for name in ARCHITECTURES if has or name not in OF_TRANSFORMERS]


def results_of(module: Any, inputs: Any) -> list[Any]:
    import torch

    return [
        y for y in torch.utils._pytree.tree_leaves(module(*inputs)) if isinstance(y, torch.Tensor)
    ]


def largest(found: Any, expected: Any) -> float:
    """The largest difference, in units of the largest value that is expected."""
    expected = expected.detach().numpy()
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-300))


def compared(name: str) -> tuple[int, int, float, float]:
    """Operators, parameters, and the largest differences of outputs and gradients from torch's."""
    import torch

    from .architectures import made

    module, inputs = made(name)
    state = {k: v.clone() for k, v in module.state_dict().items()}
    model = ops.from_torch(module, inputs)
    graph, count = model.graph, len(model.graph.operators)
    total = None
    for k, y in enumerate(model.outputs):
        graph.output(f"y{k}", y)
        part = ops.sum(ops.multiply(y, y))
        total = part if total is None else ops.add(total, part)
    assert total is not None
    for p, g in differentiate(total, graph.parameters).items():
        graph.output(f"gradient of {p.name}", g)
    machine = MachineModel.uniform(2)
    with Executor(lower(graph, data_parallel(graph, machine), machine)) as step:
        model.load(step)
        back = ops.to_torch(step, module)
        found = step({r: x.numpy() for r, x in zip(model.inputs, inputs, strict=True)})
    for p in module.parameters():
        p.data.zero_()
    module.load_state_dict(back, strict=True)
    assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
    results = results_of(module, inputs)
    sum((y * y).sum() for y in results).backward()
    outputs = max(largest(found[f"y{k}"], y) for k, y in enumerate(results))
    expected = ops.from_torch_state(
        {k: p.grad for k, p in module.named_parameters() if p.grad is not None}
    )
    assert expected.keys() == {p.name for p in graph.parameters}
    scale = max(np.abs(g).max() for g in expected.values())
    gradients = max(
        float(np.abs(found[f"gradient of {k}"] - g).max() / scale) for k, g in expected.items()
    )
    return count, len(expected), outputs, gradients


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_architectures(
    share: int, subtests: pytest.Subtests, torch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for name in names_of()[::EVERY][share::SHARES]:
        start = time.process_time()
        with subtests.test(name):
            count, parameters, outputs, gradients = compared(name)
            seconds = time.process_time() - start
            rows.append(
                f"{name:20}{count:10}{parameters:12}{outputs:12.1e}{gradients:12.1e}{seconds:8.1f}"
            )
            assert max(outputs, gradients) <= (1e-5 if name in IN_FLOAT32 else 1e-9)
    with capsys.disabled():
        print(
            f"\n{'architecture':20}{'operators':>10}{'gradients':>12}{'outputs':>12}{'gradients':>12}{'s':>8}"
        )
        print("\n".join(rows))


def test_there_are_thirty_one(torch: Any) -> None:
    from .architectures import ARCHITECTURES

    assert len(ARCHITECTURES) >= 31
    assert set(OF_TRANSFORMERS) < ARCHITECTURES.keys()


@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_beside_torch_and_back(name: str, torch: Any) -> None:
    from .architectures import made

    module, inputs = made(name)
    other, _ = made(name)
    model = ops.from_torch(module, inputs)
    target = np.random.default_rng(2).random(model.outputs[0].shape)
    graph = model.graph
    ops.adam(
        ops.mean_squared_error(model.outputs[0], graph.input("target", target.shape, "float64")),
        lr=1e-3,
    )
    machine = MachineModel.uniform(2)
    feeds = {r: x.numpy() for r, x in zip(model.inputs, inputs, strict=True)} | {"target": target}
    with Executor(lower(graph, data_parallel(graph, machine), machine)) as step:
        model.load(step)
        found = [float(step(feeds)["loss"]) for _ in range(STEPS)]
        state = ops.to_torch(step, module)
    optimizer, expected = torch.optim.Adam(module.parameters(), lr=1e-3), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(results_of(module, inputs)[0], torch.tensor(target))
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert found[-1] < found[0]
    other.load_state_dict(state, strict=True)
    for key, value in module.state_dict().items():
        np.testing.assert_allclose(
            other.state_dict()[key].numpy(), value.numpy(), rtol=0, atol=1e-9
        )


def test_what_no_graph_has_is_refused_in_one_line_with_its_place(
    subtests: pytest.Subtests, torch: Any
) -> None:
    from .architectures import REFUSED, others

    assert len(REFUSED) == 3
    for name, (make, inputs, reason, line) in REFUSED.items():
        with subtests.test(name), pytest.raises(ValueError) as caught:
            ops.from_torch(make().double(), inputs())
        text = str(caught.value)
        assert "\n" not in text
        assert text.startswith(f"from_torch: {reason}")
        assert f'("{others.__file__}", line ' in text
        assert f": {line})" in text


def test_values_of_another_module_are_refused(torch: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^to_torch: 'weight' is \(3, 2\), the module's is \(2, 3\)$"
    ):
        ops.to_torch({"weight": np.zeros((3, 2))}, torch.nn.Linear(3, 2))
    with pytest.raises(
        ValueError,
        match=r"^to_torch: none of the module's parameters is there: weight, bias, \.\.\.$",
    ):
        ops.to_torch({"other": np.zeros(2)}, torch.nn.Linear(3, 2))
