"""What is optional may be missing: without each of it alone all tests are found that may want it, and without any of
it the examples of docstrings run.

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

EXAMPLES = "tests/test_doctests.py"
ASKED = r"\b(importorskip|find_spec|import_module)"  # not `Device("cuda")`


def files_that_want(*optional, by=ASKED):
    """Files of tests that import one of these modules, or name one of these programs, or import a test that does."""
    modules = sources("tests")
    names = "|".join(map(re.escape, optional))
    word = re.compile(rf"\b(import|from) +({names})\b|{by}\(\s*[\"']({names})[\"'.]")
    wanting = {name for name, path in modules.items() if word.search(path.read_text("utf-8"))}
    imports = [(each.importer, owner(each.name, modules)) for each in imports_in("tests")]
    while more := {a for a, b in imports if b in wanting} - wanting:
        wanting |= more
    files = [str(modules[name].relative_to(ROOT)) for name in sorted(wanting)]
    return [EXAMPLES, *(f for f in files if Path(f).name.startswith("test_") and f != EXAMPLES)]


def run_pytest(variables, *arguments):
    """Exit status and what is said, in a process with these variables."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | variables
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def found_tests(variables, files):
    """How many tests there are in files, for a process with these variables; none runs."""
    status, said = run_pytest(variables, *files, "-k", "no_test_has_this_name")
    assert status == ExitCode.NO_TESTS_COLLECTED, said
    return int(re.findall(r"(\d+) deselected", said)[-1])


def count_there(config, files):
    """How many there are with all that is installed: this process has found them, where it runs all tests."""
    found = config.stash[TESTS_OF]
    if found.keys() >= set(files):
        return sum(found[file] for file in files)
    return found_tests({"PYTHONPATH": str(ROOT)}, files)


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
    files = files_that_want(*hidden.PROGRAMS, by="")
    path = hidden.path_without(tmp_path, *hidden.PROGRAMS)
    there = count_there(pytestconfig, files)
    assert found_tests({"PYTHONPATH": str(ROOT), "PATH": path}, files) == there > 0


@pytest.mark.slow
def test_examples_run_without_any_of_it(tmp_path):
    """As in an environment of nothing but what `import taskflow, ops` needs."""
    (programs := tmp_path / "programs").mkdir()
    variables = hidden.variables_without(tmp_path, *hidden.MODULES)
    path = hidden.path_without(programs, *hidden.PROGRAMS)
    status, said = run_pytest(variables | {"PATH": path}, EXAMPLES)
    assert status == ExitCode.OK, said
    assert re.search(r"[1-9]\d* passed", said), said


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
