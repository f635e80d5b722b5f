"""Exported plans on four processes of torch's gloo give the module's own numbers: DTensor, FSDP2 and pipelining."""

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

RANKS = Path(__file__).with_name("gloo_ranks.py")
ARCHITECTURES = ("nanoGPT", "Llama", "MLP-Mixer", "NeRF", "GAT", "VAE")
MODELS = ("GPT", "Llama", "encoder", "mixer", "parallel", "perceptrons")  # in torchtitan's shape
JOBS = [f"dtensor:{name}" for name in ARCHITECTURES]
JOBS += [f"{way}:{name}" for way in ("fsdp", "pipelining") for name in MODELS]
SINCE_2_12 = {"dtensor:MLP-Mixer", "dtensor:VAE"}  # their convolutions


def run_on(devices: int, jobs: list[str], folder: Path) -> dict[str, tuple[float, int, int, int]]:
    """Job -> the largest difference, parts that are split, all parts, and parts of plans that are not said."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", RANKS, str(devices), folder / "gloo", *jobs]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    rows = [line.split("|") for line in ended.stdout.splitlines() if "|" in line]
    return {
        job: (float(worst), int(split), int(parts), int(unsaid))
        for job, worst, split, parts, unsaid in rows
    }


@pytest.mark.slow
def test_exported_plans_give_the_modules_numbers(tmp_path: Path, torch: Any) -> None:
    """All of `JOBS` where the suite is thorough, and in `benchmarks/bridges_torch.py`."""
    jobs = JOBS if IS_THOROUGH else ["dtensor:nanoGPT", "fsdp:GPT", "pipelining:Llama"]
    if torch.__version__ < "2.12":
        jobs = [job for job in jobs if job not in SINCE_2_12]
    found = run_on(4, jobs, tmp_path)
    assert found.keys() == set(jobs)
    assert all(worst <= 1e-12 and split > 0 for worst, split, _, _ in found.values())
    assert not any(unsaid for job, (*_, unsaid) in found.items() if job[0] != "d")


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


def test_what_a_norm_sums_is_whole(torch: Any) -> None:
    norm = torch.nn.RMSNorm(8)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), norm).double()
    model = ops.from_torch(module, torch.rand(4, 4, dtype=torch.float64))
    strategy = data_parallel(model.graph, MachineModel.uniform(4))
    strategy["1"] = ParallelConfig({model.graph.operator("1").split_axes[-1]: 4})
    plan = ops.to_dtensor(strategy, module, model)
    assert plan.placed["1"].read == (None, None)
    assert "is summed within it" in plan.unsaid["1"]


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
