"""Exported plans in torch itself: DTensor, FSDP2 and pipelining, six models each, on four processes of gloo.

`python benchmarks/bridges_torch.py`: of every job the largest difference of outputs (losses) and gradients from the
module's own numbers in float64, how many submodules are split, or configurations' stages there are, of how many
submodules or units, and how many parts of plans the text does not say.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]
from tests.peer.test_dtensor import JOBS, run_on  # noqa: E402


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = run_on(4, JOBS, Path(folder))
    print(f"{'':24}{'difference':>12}{'split':>8}{'of':>8}{'unsaid':>8}")
    for job, (worst, split, parts, unsaid) in found.items():
        print(f"{job:24}{worst:12.1e}{split:8}{parts:8}{unsaid:8}")


if __name__ == "__main__":
    main()
