"""Searched plans as DTensor: architectures on four and two processes of torch's gloo give the module's own numbers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import MachineModel, ParallelConfig, Strategy, data_parallel
from tests.refusals import assert_refused
from tests.sampling import IS_THOROUGH

RANKS = Path(__file__).with_name("dtensor_ranks.py")
ON_FOUR = ("nanoGPT", "Llama", "MLP-Mixer", "NeRF", "GAT", "VAE")[:: 1 if IS_THOROUGH else 2]
ON_TWO = ("NeRF", "nanoGPT") if IS_THOROUGH else ("NeRF",)
SINCE_2_12 = {"MLP-Mixer", "VAE"}  # their convolutions


def run_on(
    devices: int, names: tuple[str, ...], folder: Path
) -> dict[str, tuple[float, int, int, int]]:
    """Name -> the largest difference, submodules that are split, submodules in the plan, operators that are not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(RANKS)]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(devices), str(folder / "gloo"), *names],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(devices)
    ]
    try:
        found = [each.communicate(timeout=400) for each in started]
    finally:
        for each in started:
            each.kill()
    assert not any(each.returncode for each in started), found[0][1][-3000:]
    rows = [line.split("|") for line in found[0][0].splitlines() if "|" in line]
    return {
        name: (float(worst), int(split), int(placed), int(unsaid))
        for name, worst, split, placed, unsaid in rows
    }


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "names"), [(4, ON_FOUR), (2, ON_TWO)])
def test_searched_plans_give_the_modules_numbers(
    devices: int,
    names: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    torch: Any,
) -> None:
    if torch.__version__ < "2.12":
        names = tuple(name for name in names if name not in SINCE_2_12)
    found = run_on(devices, names, tmp_path)
    with capsys.disabled():
        print(
            f"\n{'on ' + str(devices):20}{'difference':>12}{'split':>8}{'placed':>8}{'unsaid':>8}"
        )
        for name, (worst, split, placed, unsaid) in found.items():
            print(f"{name:20}{worst:12.1e}{split:8}{placed:8}{unsaid:8}")
    assert found.keys() == set(names)
    assert all(worst <= 1e-12 and split > 0 for worst, split, _, _ in found.values())


def two_layers(torch: Any) -> tuple[Any, Any]:
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4)
    ).double()
    return module, ops.from_torch(module, torch.rand(4, 4, dtype=torch.float64))


def test_what_can_be_said_and_what_cannot(torch: Any) -> None:
    """Megatron's perceptron: the hidden values stay split between columns and rows of weights."""
    module, model = two_layers(torch)
    strategy = data_parallel(model.graph, MachineModel.uniform(4))
    strategy["0"], strategy["1"] = (
        ParallelConfig({"b": 2, "o": 2}),
        ParallelConfig({"b": 2, "o": 2}),
    )
    strategy["2"] = ParallelConfig({"b": 2, "i": 2})
    plan = ops.to_dtensor(strategy, module, model)
    assert plan.mesh == (2, 2)
    assert plan.placed["0"].weights == {"weight": (None, 0), "bias": (None, 0)}
    assert (plan.placed["0"].read, plan.placed["0"].made) == ((0, None), (0, 1))
    assert plan.placed["2"].weights == {"weight": (None, 1), "bias": (None, None)}
    assert (plan.placed["2"].read, plan.placed["2"].made) == ((0, 1), (0, None))
    assert plan.unsaid == {"1": "it is no submodule with weights: torch places it by what it reads"}
    assert set(plan.styles) == {"0", "2", ""}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            ParallelConfig({"b": 2}, (1, 0)),
            "its points lie on the devices 1, 0, not on all in order",
        ),
        (
            ParallelConfig({"b": 2}, (0, 2)),
            "its points lie on the devices 0, 2, not on all in order",
        ),
        (ParallelConfig({"b": (0.25, 0.75)}), "its parts are not equal"),
    ],
)
def test_refused_by_name(config: ParallelConfig, why: str, torch: Any) -> None:
    module, model = two_layers(torch)
    strategy = Strategy({"0": config, "2": ParallelConfig({"b": 2})})
    assert ops.to_dtensor(strategy, module, model).unsaid["0"] == why
    with pytest.raises(
        ValueError, match=r"^to_dtensor: the strategy has no operator of the graph$"
    ):
        ops.to_dtensor(Strategy({"other": config}), module, model)


def test_a_convolution_under_an_older_torch(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.Sequential(torch.nn.Conv1d(2, 4, 2), torch.nn.ReLU()).double()
    model = ops.from_torch(module, torch.rand(4, 2, 6, dtype=torch.float64))
    strategy = data_parallel(model.graph, MachineModel.uniform(2))
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.12.0"))
    assert ops.to_dtensor(strategy, module, model).mesh == (2,)
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.11.0"))
    message = (
        "to_dtensor: '0' is a convolution, which DTensor computes rightly from torch 2.12 on, "
        "and this is torch 2.11.0"
    )
    assert_refused(message, lambda: ops.to_dtensor(strategy, module, model))


def test_a_plan_may_be_read_without_torch_distributed(torch: Any) -> None:
    module, model = two_layers(torch)
    plan = ops.to_dtensor(data_parallel(model.graph, MachineModel.uniform(2)), module, model)
    assert plan.mesh == (2,)
    assert np.all(
        [p.read == (0,) and set(p.weights.values()) == {(None,)} for p in plan.placed.values()]
    )
