"""Real CuPy and NVRTC on a stub of CUDA: files of tests, each run in a process of its own where CuPy finds the stub.

Kernels are compiled and not executed: what is looked at are arguments, streams, captures and memory (`state.h`). The
numbers are those of tests/ops/test_gpu.py.
"""

import subprocess
import sys

import pytest

from tests.stub import build

PARTS = 3  # of the operators, side by side

pytestmark = pytest.mark.skipif(bool(build.why_not()), reason=build.why_not())


def pytest_on_the_stub(file, **environment):
    """Run the tests of a file beside this one; what they print where one fails."""
    command = [sys.executable, "-m", "pytest", f"tests/stub/{file}", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    variables = build.environment() | {"STUB_DEVICES": "2"} | environment
    done = subprocess.run(command, cwd=build.HERE.parents[1], env=variables, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout[-20_000:] + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_operators(part):
    assert not pytest_on_the_stub("operators.py", STUB_PART=f"{part}/{PARTS}")
