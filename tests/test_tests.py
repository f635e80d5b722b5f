"""Every test checks something: it, or a function of the tests that it calls, asserts, raises or expects an error."""

import ast
import os
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.sources import ROOT, parse

CHECKS = {"raises", "warns", "fail", "assert_allclose", "assert_array_equal", "assert_array_less"}
BY_A_LIBRARY = {"test_the_real_frontend_validates_every_graph"}  # cuDNN raises what it finds


@cache
def functions() -> defaultdict[str, list[tuple[Path, ast.FunctionDef]]]:
    """Name -> (file, definition). Not of the module, which every process of pytest imports: it takes seconds."""
    found = defaultdict(list)
    for path in [*sorted((ROOT / "tests").rglob("*.py")), ROOT / "taskflow" / "testing.py"]:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef):
                found[node.name].append((path, node))
    return found


@cache
def called(function: ast.FunctionDef) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {
        call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls
    }


@cache
def asserts(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(function))


def checks(path: Path, function: ast.FunctionDef, seen: set[str]) -> bool:
    """Whether a function of that file checks something; one that it calls is looked for in its own file first."""
    seen.add(function.name)
    if called(function) & CHECKS or asserts(function):
        return True
    for name in called(function) - seen:
        found = [each for each in functions()[name] if each[0] == path] or functions()[name]
        if any(checks(*each, seen) for each in found):
            return True
    return False


def test_every_test_checks_something():
    tests = [
        each for name, found in [*functions().items()] if name.startswith("test") for each in found
    ]
    assert len(tests) > 900
    missing = [
        f"{path}:{test.lineno} {test.name}" for path, test in tests if not checks(path, test, set())
    ]
    assert not [each for each in missing if each.split()[-1] not in BY_A_LIBRARY]


def test_a_test_without_a_check_is_found():
    (empty,) = ast.parse("def test_it():\n    make_nothing()\n").body
    assert not checks(Path(__file__), empty, set())


WARNS = """
import warnings
def warn(module):
    warnings.warn_explicit("was right", DeprecationWarning, "a.py", 1, module=module, registry={})
def test_numpy():
    warn("numpy.lib.future")
def test_other():
    warn("taskflow.core")
"""


def test_what_a_new_numpy_warns_of_is_no_error(tmp_path):
    """Such a warning of any other module is one."""
    (tmp_path / "test_warns.py").write_text(WARNS)
    options = ["-c", ROOT / "setup.cfg", "--rootdir", tmp_path, "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (
        "1 failed, 1 passed" in done.stdout and "FAILED test_warns.py::test_other" in done.stdout
    ), done.stdout


MISSES = """
import os, pytest
@pytest.mark.parametrize("name", ["torch", "browser"])
def test_one(name):
    if name not in os.environ["THERE"]:
        pytest.skip(f"no {name}")
    assert name in os.environ["RIGHT"]
def test_two():
    assert True
"""


IMPORTED = """
import os
assert os.environ["THERE"] == "", "imported again"

def test_three():
    assert True
"""


def test_what_skipped_runs_again_and_nothing_else(tmp_path):
    """Whether it passes then, fails, or skips once more; tests that other runs leave out stay as they are.

    Of a file where nothing skipped, nothing is imported again.
    """
    (tmp_path / "conftest.py").write_text(
        "from tests.skipped import pytest_addoption, pytest_collection_modifyitems, pytest_configure\n"
        "from tests.skipped import pytest_ignore_collect\n"
    )
    (tmp_path / "test_misses.py").write_text(MISSES)
    (tmp_path / "test_misses_nothing.py").write_text(IMPORTED)

    def run(*options, there, right="torch browser"):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            ROOT / "setup.cfg",
            "--rootdir",
            tmp_path,
            *options,
            tmp_path,
        ]
        variables = {"THERE": there, "RIGHT": right, "PYTHONPATH": str(ROOT)}
        cache = ["-o", f"cache_dir={tmp_path / 'cache'}"]
        done = subprocess.run(
            [*command, *cache],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | variables,
        )
        return done.stdout.splitlines()[-1].split(" in ")[0].strip("= ")

    assert run("-n2", there="") == "2 passed, 2 skipped"
    assert run("-k", "three", there="") == "1 passed, 3 deselected"
    assert run("-n2", "--skipped", there="torch") == "1 passed, 1 skipped"
    assert run("--skipped", there="torch browser", right="") == "1 failed, 2 deselected"
    assert run("--skipped", there="torch browser") == "no tests ran"


ENDED = """
import os, time, pytest
@pytest.mark.parametrize("number", range(3))
def test_one(number):
    print(f"model {number}")
    if number == 1:
        assert number == 7, "it differs"
    if number == 2:
        time.sleep(1)
        os.kill(os.getppid(), 9) if "PYTEST_XDIST_WORKER" in os.environ else os._exit(9)
"""


@pytest.mark.parametrize("options", [(), ("-n2",), ("-q", "-s")], ids=" ".join)
def test_a_failure_on_a_gpu_is_told_before_a_run_is_ended(options, tmp_path):
    folder = tmp_path / "some" / "gpu"
    folder.mkdir(parents=True)
    (folder / "conftest.py").write_text("from tests.gpu.at_once import pytest_configure\n")
    (folder / "test_ended.py").write_text(ENDED)
    options = [*options, "-c", ROOT / "setup.cfg", "--rootdir", tmp_path, "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, folder]
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }  # we may be a worker
    variables = outside | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=variables)
    assert done.returncode < 0 or done.returncode == 9
    assert (
        "some/gpu/test_ended.py::test_one[1] (call)" in done.stdout and "it differs" in done.stdout
    )
    assert "model 1\n" in done.stdout
