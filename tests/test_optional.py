"""What is optional may be missing: without each of it alone all tests are found that may want it, and the examples of
docstrings run.

What is not installed is missing anyway: those cases skip, and run once it is there (`--skipped`).
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from pytest import ExitCode

from tests import hidden
from tests.conftest import TESTS_OF
from tests.sources import ROOT, imports_in, owner, sources

EXAMPLES = "tests/test_doctests.py"  # they run; of other files the tests are collected


def files_that_want(*optional):
    """Files of tests that import one of these modules, or name one of these programs, or import a test that does."""
    modules = sources("tests")
    names = "|".join(map(re.escape, optional))
    word = re.compile(rf"\b(import|from) +({names})\b|\(\s*[\"']({names})[\"'.]")
    wanting = {name for name, path in modules.items() if word.search(path.read_text("utf-8"))}
    imports = [(each.importer, owner(each.name, modules)) for each in imports_in("tests")]
    while more := {a for a, b in imports if b in wanting} - wanting:
        wanting |= more
    files = [str(modules[name].relative_to(ROOT)) for name in sorted(wanting)]
    return [EXAMPLES, *(f for f in files if Path(f).name.startswith("test_") and f != EXAMPLES)]


def found_tests(variables, files, runs=True):
    """How many tests there are in files, for a process with these variables; the examples run, or nothing."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        [*command, "-k", Path(EXAMPLES).stem if runs else "no_test_has_this_name"],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    expected = ExitCode.OK if runs else ExitCode.NO_TESTS_COLLECTED
    assert done.returncode == expected, done.stdout + done.stderr
    found = re.findall(r"(\d+) (passed|skipped|deselected)", done.stdout)
    return sum(int(count) for count, _ in found)


def count_there(config, files):
    """How many there are with all that is installed: this process has found them, where it runs all tests."""
    found = config.stash[TESTS_OF]
    if found.keys() >= set(files):
        return sum(found[file] for file in files)
    return found_tests({"PYTHONPATH": str(ROOT)}, files, runs=False)


@pytest.mark.slow
@pytest.mark.parametrize("module", hidden.MODULES)
def test_a_module_may_be_missing(module, tmp_path, pytestconfig):
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed, so nothing here needs it")
    files = files_that_want(module)
    there = count_there(pytestconfig, files)
    assert found_tests(hidden.variables_without(tmp_path, module), files) == there > 0


@pytest.mark.slow
def test_programs_may_be_missing(tmp_path, pytestconfig):
    files = files_that_want(*hidden.PROGRAMS)
    path = hidden.path_without(tmp_path, *hidden.PROGRAMS)
    there = count_there(pytestconfig, files)
    assert found_tests({"PYTHONPATH": str(ROOT), "PATH": path}, files) == there > 0


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
