"""Small modules of torch through `ops.from_torch`: right or refused, never a wrong number.

    python benchmarks/torch_modules.py

Each module of `tests/peer/small_modules.py` is imported, and trained for three steps beside torch: outputs, losses and
which weights are trained have to be torch's. What is refused is printed with its reason; torch's CPU build is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

import ops  # noqa: E402
from tests.peer.small_modules import REFUSED, RIGHT, assert_torchs_numbers  # noqa: E402


def main() -> int:
    made = {**RIGHT, **{name: make for name, (make, _) in REFUSED.items()}}
    right, refused, wrong = 0, 0, 0
    for name, make in made.items():
        module, x = make()
        try:
            ops.from_torch(module, x)
        except ValueError as error:
            refused += 1
            print(f"refused: {name}: {' '.join(str(error).split())}")
            continue
        try:
            assert_torchs_numbers(*make())
            right += 1
        except AssertionError as error:
            wrong += 1
            print(f"WRONG: {name}: {' '.join(str(error).split())}")
    print(f"{len(made)} modules: {right} right, {refused} refused, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
