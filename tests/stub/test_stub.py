"""Real CuPy and NVRTC on a stub of CUDA: files of tests, each run in a process of its own where CuPy finds the stub.

Kernels are compiled and not executed: what is looked at are arguments, streams, captures and memory (`state.h`). The
numbers are those of tests/ops/test_gpu.py.
"""

import re
import subprocess
import sys

import pytest

from taskflow.comm import launch
from tests.stub import build
from tests.test_docs import load

PARTS = 2  # of the operators, side by side

pytestmark = pytest.mark.skipif(bool(build.why_not()), reason=build.why_not())


def pytest_on_the_stub(*options, **environment):
    """Run tests of files in tests; what they print where one fails."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.stub.stub",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    variables = build.environment() | {"STUB_DEVICES": "2"} | environment
    done = subprocess.run(command, cwd=build.ROOT, env=variables, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout[-20_000:] + done.stderr


def test_the_stub_finds_what_is_wrong():
    assert not pytest_on_the_stub("tests/stub/faults.py")


@pytest.mark.slow
def test_programs():
    assert not pytest_on_the_stub("tests/stub/ownership.py", "tests/stub/plans.py")


@pytest.mark.slow
def test_what_a_gpu_is_asked_first():
    """Tests of tests/gpu that look at no number: guards, steps that are one graph, timelines."""
    files = "tests/gpu/test_guards.py", "tests/gpu/test_laws.py"
    chosen = "short or gives_its_memory or allocate or profiler or one_graph or timeline"
    assert not pytest_on_the_stub(*files, "-k", f"({chosen}) and not wait_for", STUB_DEVICES="1")


@pytest.mark.mpi
def test_memory_of_ranks_ends_when_nobody_maps_it(tmp_path):
    mpirun = [launch.find_mpirun(), "-n", "2", sys.executable, "tests/stub/ranks.py", str(tmp_path)]
    variables = build.environment() | launch.settings()
    done = subprocess.run(
        mpirun, cwd=build.ROOT, env=variables, capture_output=True, text=True, timeout=240
    )
    found = re.fullmatch(r"\[(.*)\] blocks, no faults\n", done.stdout)
    assert found, done.stdout + done.stderr
    counts = [int(count) for count in found[1].split(",")]
    assert counts[-1] <= counts[1], "what was lent is freed at last"


@pytest.mark.slow
def test_the_launches_of_a_step_are_those_of_the_table():
    """docs/cuda_operators.md: more kernels, products, casts or bytes than there is a regression."""
    docs = load("cuda_operators")
    assert docs.TARGET.read_text(encoding="utf-8").endswith(docs.LAUNCHES + docs.launches()), (
        "run `make docs`"
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_operators(part):
    assert not pytest_on_the_stub("tests/stub/operators.py", STUB_PART=f"{part}/{PARTS}")
