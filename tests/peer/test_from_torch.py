"""Modules of torch as graphs: the same outputs, weights by name, training as before, and what is refused."""

import re
from typing import Any

import numpy as np
import pytest

import ops
from ops.torch import apart
from taskflow import Executor, MachineModel, data_parallel, lower


def values_of(shapes: list[Any]) -> list[Any]:
    random = np.random.default_rng(0)
    return [
        random.integers(0, s, (2, 5)) if isinstance(s, int) else random.random(s) + 0.1
        for s in shapes
    ]


@pytest.mark.parametrize(
    "name", ["convolutions", "transformer", "attention", "recurrent", "arithmetic"]
)
@pytest.mark.parametrize("training", [True, False])
def test_the_outputs_are_torchs(name: str, training: bool, torch: Any) -> None:
    from .modules import MODULES

    make, shapes = MODULES[name]
    torch.manual_seed(1)
    module, values = make().double().train(training), values_of(shapes)
    tensors = [torch.tensor(v) for v in values]
    model = ops.from_torch(module, tensors)
    model.graph.output("y", model.output)
    expected = module(*tensors).detach().numpy()
    machine = MachineModel.uniform(2)
    with Executor(lower(model.graph, data_parallel(model.graph, machine), machine)) as step:
        model.load(step)
        found = step(dict(zip(model.inputs, values, strict=True)))["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_an_imported_module_trains_as_torch_does(torch: Any) -> None:
    from .modules import ConvNet, F

    torch.manual_seed(1)
    module, random = ConvNet().double(), np.random.default_rng(0)
    x, t = random.random((4, 1, 6, 6)), random.integers(0, 5, 4).astype(np.int32)
    model = ops.from_torch(module, torch.tensor(x))
    graph = model.graph
    ops.sgd(
        ops.softmax_cross_entropy(model.output, graph.input("t", (4,), "int32"), name="loss"),
        lr=0.1,
    )
    machine, expected = MachineModel.uniform(1), []
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with Executor(lower(graph, data_parallel(graph, machine), machine)) as step:
        model.load(step)
        found = [float(step({"x": x, "t": t})["loss"]) for _ in range(5)]
        assert {"body.0.weight", "body.1.running_mean", "scale", "head.bias"} <= set(
            step.persistent
        )
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(module(torch.tensor(x)), torch.tensor(t, dtype=torch.int64))
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_all_unknown_nodes_are_named_with_their_lines(torch: Any) -> None:
    from .modules import Network, nn, unknown

    with pytest.raises(ValueError) as caught:
        ops.from_torch(Network(unknown, part=nn.Bilinear(2, 2, 2)), torch.zeros(3, 2))
    file, first = unknown.__code__.co_filename, unknown.__code__.co_firstlineno + 2
    second = f"""("{file}", line {first + 1}: return self.part(x, x).erfinv()  # next)"""
    assert str(caught.value).splitlines() == [
        "from_torch: there is no operator for "
        f"""call_function 'cummax.default' ("{file}", line {first}: x = torch.cummax(x, 0)[0]  # first); """
        f"""call_function 'bilinear.default' in 'part' {second}; """
        f"""call_function 'erfinv.default' {second}"""
    ]


def test_refused(torch: Any, subtests: pytest.Subtests) -> None:
    from .modules import REFUSED

    for make, message in REFUSED:
        with (
            subtests.test(message),
            pytest.raises(ValueError, match=f"^from_torch: .*{re.escape(message)}"),
        ):
            ops.from_torch(make(), torch.zeros(2, 3))


def test_what_comes_of_a_call_is_taken_apart_in_the_same_run(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of torch costs a third of a second, whatever the module."""
    runs, real = list[Any](), apart._decomposed
    monkeypatch.setattr(apart, "_decomposed", lambda *args: runs.append(args) or real(*args))
    module = torch.nn.RNNCell(3, 4).double()  # torch makes its state by a call that it takes apart
    ops.from_torch(module, torch.rand(2, 3, dtype=torch.float64))
    assert len(runs) == 1
