"""What is given to `from_torch`: tensors that are given twice, masks of every shape, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from ops.torch.adversaries import adversaries
from ops.torch.compare import evaluate


class Lines:
    """Modules whose forward is a function."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __call__(self, run: Callable[..., Any], **parts: Any) -> Any:
        class Line(self.torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, *given: Any) -> Any:
                return run(self, *given)

        made = Line()
        for name, part in parts.items():
            setattr(made, name, part)
        return made


@pytest.fixture
def line(torch: Any) -> Lines:
    torch.manual_seed(0)
    return Lines(torch)


def assert_runs(module: Any, model: Any, *given: Any) -> None:
    """On other values than the example's."""
    found = evaluate(
        model.graph,
        dict(zip(model.inputs, (x.numpy() for x in given), strict=True)) | model.weights,
    )
    np.testing.assert_allclose(
        found[model.outputs[0].name], module(*given).detach().numpy(), rtol=1e-5, atol=1e-6
    )


TWICE = {
    "queries, keys and values": (lambda m, q, k, v: m.a(q, k, v, need_weights=False)[0], 3),
    "two of them": (lambda m, x, y: m.a.out_proj(x) * y, 2),
    "one in a list": (lambda m, x, more: m.a.out_proj(x) + more, 2),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_tensor_that_is_given_twice_is_two_inputs(name: str, torch: Any, line: Lines) -> None:
    run, count = TWICE[name]
    module, x = (
        line(run, a=torch.nn.MultiheadAttention(8, 2, batch_first=True)),
        torch.rand(2, 4, 8),
    )
    model = ops.from_torch(module, (x,) * count)
    assert len(model.inputs) == count
    assert_runs(module, model, *(torch.rand(2, 4, 8) for _ in range(count)))


MASKS = {
    "none": (),
    "one element": (1,),
    "a vector": (4,),
    "rows": (4, 3),
    "a batch of rows": (2, 4, 3),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_masks_of_any_shape_are_full_and_empty(
    name: str, dtype: str, torch: Any, line: Lines
) -> None:
    mask = torch.ones(MASKS[name], dtype=getattr(torch, dtype))
    found = dict(adversaries([mask]))
    assert {"full masks", "empty masks", "empty rows of masks"} <= found.keys()
    assert all(
        values[0].shape == mask.shape and values[0].dtype == mask.dtype for values in found.values()
    )
    assert not found["empty masks"][0].any()
    assert found["full masks"][0].all()
    module = line(lambda m, x, seen: m.fc(x) * seen.sum(), fc=torch.nn.Linear(3, 2))
    assert_runs(
        module,
        ops.from_torch(module, (torch.rand(4, 3), mask)),
        torch.rand(4, 3),
        torch.zeros_like(mask),
    )


def refusals(torch: Any, line: Lines) -> dict[str, tuple[Any, Any, str]]:
    nn, x = torch.nn, torch.rand(4, 3)
    traced = torch.jit.trace(nn.Linear(3, 2), x)
    return {
        "sparse": (
            nn.Identity(),
            x.to_sparse(),
            "an input is torch.sparse_coo of torch.float32, dense real numbers are",
        ),
        "complex": (
            nn.Identity(),
            x.to(torch.complex64),
            "an input is torch.strided of torch.complex64, dense real",
        ),
        "no elements": (
            nn.Identity(),
            x[:0],
            "the input 'input' is float32 (0, 3): region 'input': extents are positive",
        ),
        "nothing comes out": (
            line(lambda m, x: (x, x[3:3])),
            x,
            "forward returns a tensor without elements, (0, 3)",
        ),
        "a lazy layer": (
            nn.LazyLinear(3),
            x,
            "'weight' has no shape before the module's first call",
        ),
        "a lazy norm": (
            nn.Sequential(nn.Linear(3, 2), nn.LazyBatchNorm1d()),
            x,
            "'1.weight' has no shape before the module's first call",
        ),
        "a traced module": (traced, x, "torch.export cannot follow the module"),
        "a check of values": (
            line(lambda m, x: torch.linalg.inv(x @ x.T)),
            x,
            # until torch 2.12 it is an operator of its own
            ("forward looks at values beside computing", "there is no operator for call_function"),
        ),
        "statistics of another dtype": (
            nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)).half(),
            torch.rand(2, 3, 8).half(),
            "reading new statistics of batch norm, or another dtype of them, is not supported",
        ),
    }


def _changed(m: Any, x: Any) -> Any:
    y = m.fc(x) * m.p
    m.p.mul_(2.0)
    return y


NAMES = [
    *(
        "sparse",
        "complex",
        "no elements",
        "nothing comes out",
        "a lazy layer",
        "a lazy norm",
        "a traced module",
    ),
    *("a check of values", "statistics of another dtype"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_refused_in_one_line(name: str, torch: Any, line: Lines) -> None:
    module, given, message = refusals(torch, line)[name]
    with pytest.raises(ValueError, match=r"^from_torch: ") as caught:
        ops.from_torch(module, given)
    told = (message,) if isinstance(message, str) else message
    assert any(each in str(caught.value) for each in told)
    assert "\n" not in str(caught.value)


def test_what_torch_cannot_differentiate(torch: Any, line: Lines) -> None:
    module = line(_changed, fc=torch.nn.Linear(3, 3))
    module.register_buffer("p", torch.ones(3))
    with pytest.raises(
        ValueError, match=r"^from_torch: torch has no gradient of the module: one of the variables"
    ):
        ops.from_torch(module, torch.rand(4, 3))


@pytest.mark.parametrize(
    ("given", "kind"), [(abs, "builtin_function_or_method"), (3, "int"), ([], "list")]
)
def test_what_is_no_module(given: Any, kind: str, torch: Any) -> None:
    with pytest.raises(
        TypeError, match=f"^from_torch: the module is a {kind}, a torch.nn.Module is needed$"
    ):
        ops.from_torch(given, torch.rand(3))
