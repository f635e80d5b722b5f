"""What is optional may be missing: without each of it alone all tests are found, and the examples of docstrings run.

What is not installed is missing anyway: those cases skip, and run once it is there (`--skipped`).
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests import hidden
from tests.sources import ROOT

WITHOUT_EXAMPLES = "-k", "test_doctests"  # all are collected, and those of docstrings run


def found_tests(variables, *options):
    """How many tests there are, and what pytest says, in a process with these variables."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {
        kind: int(count)
        for count, kind in re.findall(r"(\d+) (passed|skipped|deselected)", done.stdout)
    }
    return sum(counts.values()), done.stdout


@pytest.fixture(scope="session")
def all_tests():
    return found_tests({"PYTHONPATH": str(ROOT)}, *WITHOUT_EXAMPLES)[0]


@pytest.mark.slow
@pytest.mark.parametrize("module", hidden.MODULES)
def test_a_module_may_be_missing(module, all_tests, tmp_path):
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed, so nothing here needs it")
    count, _ = found_tests(hidden.variables_without(tmp_path, module), *WITHOUT_EXAMPLES)
    assert count == all_tests


@pytest.mark.slow
def test_programs_may_be_missing(all_tests, tmp_path):
    path = hidden.path_without(tmp_path, *hidden.PROGRAMS)
    count, _ = found_tests({"PYTHONPATH": str(ROOT), "PATH": path}, *WITHOUT_EXAMPLES)
    assert count == all_tests


ASKS = """
import importlib.util, subprocess, sys
assert importlib.util.find_spec("numpy")
print(importlib.util.find_spec(sys.argv[1]))
try:
    __import__(sys.argv[1] + ".inside")
except ModuleNotFoundError as error:
    print(error.name)
"""


@pytest.mark.parametrize("module", ["numba", "mpi4py", "wave"])
def test_a_hidden_module_looks_as_if_never_installed(module, tmp_path):
    """To who asks first, to an import, and in processes that processes start."""
    program = tmp_path / "asks.py"
    program.write_text(ASKS)
    inner = [sys.executable, str(program), module]
    for command in (
        inner,
        [sys.executable, "-c", f"import subprocess; subprocess.run({inner!r}, check=True)"],
    ):
        variables = os.environ | hidden.variables_without(tmp_path, module)
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        assert (done.stdout.split(), done.stderr) == (["None", module], "")
