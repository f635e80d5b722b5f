"""Interpreted is compiled: `python benchmarks/interpreted.py` (four minutes, half of them compiling where it is cold).

Random models under random plans, orders and collectives, once as Python and once compiled: rows, predicted times and
results, each to the bit. Prints how many are equal, and the seconds of the processor; the exit status is 1 if one is
not. `--examples 30` is for fewer.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "programs" / "interpreted.py"


def told(mode: str, examples: int) -> tuple[list[str], float]:
    """A line for each example, and seconds."""
    before = _seconds()
    environment = {
        **os.environ,
        "TASKFLOW_COMPILE": mode,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, PROGRAM, str(examples)]
    text = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    return text.splitlines(), _seconds() - before


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def differences(examples: int) -> tuple[int, int]:
    """How many of them differ, and how many ran (the executor refuses the others for their order, alike)."""
    (python, python_seconds), (compiled, compiled_seconds) = (
        told(mode, examples) for mode in ("never", "always")
    )
    differing = [(a, b) for a, b in zip(python, compiled, strict=True) if a != b]
    for a, b in differing:
        print(f"as Python: {a}\n compiled: {b}")
    ran = sum(not line.startswith("refused") for line in python)
    print(f"{len(python)} examples, {ran} of them ran: {len(differing)} differ")
    print(
        f"as Python {python_seconds:.1f} s, compiled {compiled_seconds:.1f} s with what is compiled first"
    )
    return len(differing), ran


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=450)
    sys.exit(1 if differences(parser.parse_args().examples)[0] else 0)
