"""What a prediction lacked in the first hours on a GPU, by part: `python benchmarks/predicted_then.py`. Needs no GPU.

Predicted and measured seconds are those that were recorded on an H200 on 2026-11-27 (`results/gpu_2026-11-27.txt`):
predicted from kernels that were timed one after the other, measured with the launch of each step by the host. Beside
them stand the prediction with the launch of a graph, a constant of the device (`Device.step_seconds`), and that with
memory that was not in the cache either, an estimate: kernels that are bound by memory and whose arrays fit in the L2
read 5.8 TB/s when they are repeated, and 4.2 in a step. Their launches are counted by the stub (`gpu_launches`), of the
graphs of today. The host's own figure of that day is beside it: it issued branches that a step has no longer, so what
is left of the largest ones is not known before the next GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from taskflow import MachineModel  # noqa: E402
from tests.stub import build as stub  # noqa: E402

# Model, precision -> predicted and measured seconds, and those of the host, in the run that predicted them.
RECORDED = {
    ("mlp", "float32"): (0.785e-3, 0.975e-3, 48e-6),
    ("cnn", "float32"): (6.682e-3, 6.938e-3, 116e-6),
    ("gpt", "bfloat16"): (18.354e-3, 19.681e-3, 607e-6),
    ("dlrm", "float32"): (0.773e-3, 0.810e-3, 28e-6),
    ("tiny gpt", "float32"): (1.137e-3, 1.403e-3, 67e-6),
}
L2_BYTES, L2_BANDWIDTH = 60e6, 5.8e12  # of an H200, as a copy within it was measured
ASKED = 0.10


def cold_seconds(model: str, precision: str) -> float:
    """What the kernels of a step take longer where nothing of their arrays is in the cache."""
    from gpu_launches import BANDWIDTH, launches_of
    from gpu_models import CASES

    found = launches_of(CASES[model].graph(precision))
    bound = [each.bytes for each in found if each.bytes / BANDWIDTH >= each.seconds]
    return sum(size * (1 / BANDWIDTH - 1 / L2_BANDWIDTH) for size in bound if size <= L2_BYTES)


def main() -> None:
    """A line a model."""
    launch = MachineModel.preset("h200").step_seconds
    print("| model | measured ms | predicted | and the launch | and cold memory | host then, us |")
    print("|---|---|---|---|---|---|")
    for (model, precision), (predicted, measured, host) in RECORDED.items():
        more = 0.0, launch, launch + cold_seconds(model, precision)
        errors = [f"{(predicted + each) / measured - 1:+.1%}" for each in more]
        line = f"| {model}, {precision} | {measured * 1e3:.3f} | {' | '.join(errors)} |"
        print(f"{line} {host * 1e6:.0f} |", flush=True)
    print(f"asked: {ASKED:.0%} of each")


if __name__ == "__main__":
    if reason := stub.why_not():
        sys.exit(f"the stub cannot be built: {reason}")
    if "STUB_LIBRARY" in os.environ:
        main()
    else:
        command = [sys.executable, *sys.argv]
        sys.exit(subprocess.run(command, env=stub.environment(), check=False).returncode)
