"""Every operator × 4 precisions × {captured, issued} × {1, 4 devices} on 1 and 2 fake GPUs, by real CuPy and NVRTC.

`python benchmarks/stub.py [--workers 2]`: tests/stub/operators.py in all settings. Asked for: no failure, no item that
refuses capture, no work on a wrong stream, no allocation and no wait in a warm step.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.stub import build  # noqa: E402


def main() -> None:
    """Print a line for each number of GPUs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", default="2", help="processes of pytest-xdist")
    options = parser.parse_args()
    if reason := build.why_not():
        sys.exit(f"the stub cannot be built: {reason}")
    has_failed = False
    for gpus in ("1", "2"):
        begin, variables = (
            time.perf_counter(),
            build.environment() | {"STUB_DEVICES": gpus, "STUB_SETTINGS": "all"},
        )
        command = [
            sys.executable,
            "-m",
            "pytest",
            "tests/stub/operators.py",
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        command += ["-n", options.workers, "--maxfail", "50"]
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
        has_failed |= done.returncode != 0
        result = re.sub(r" in [\d.]+s.*", "", done.stdout.strip().splitlines()[-1])
        print(f"{gpus} fake GPUs: {result}, {time.perf_counter() - begin:.0f} s", flush=True)
        print(
            "\n".join(line for line in done.stdout.splitlines() if line.startswith("FAILED")),
            end="",
        )
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
