"""The wheel: built, installed on this Python and another one, and used far from the checkout.

The other one is the oldest that will do, else the newest that is here. No kernel is compiled there: what is compiled is
the same.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import taskflow

ROOT = Path(__file__).parents[1]
SOURCES = "taskflow", "ops", "pyproject.toml", "setup.cfg", "README.md", "LICENSE"
PYTHONS = [f"3.{minor}" for minor in (11, 12, 13, 14)]
FIRST_MODEL = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHERS = [version for version in (PYTHONS[0], *reversed(PYTHONS[1:])) if version != HERE]

pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=500, **options
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
    has_setuptools = subprocess.run(
        [sys.executable, "-c", "import setuptools; assert setuptools.__version__ >= '77'"]
    )
    isolation = [] if has_setuptools.returncode else ["--no-build-isolation"]
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        *isolation,
        "-w",
        folder / "dist",
        folder,
    )
    (found,) = (folder / "dist").glob("*.whl")
    return found


def runs(python):
    """Whether there is such a program, and it can make environments."""
    return subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0


def find_other():
    """The first other one that runs: on PATH, or one of pyenv's, whose shims on PATH may lead nowhere."""
    for version in OTHERS:
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
        for python in filter(None, [shutil.which(f"python{version}"), *map(str, kept)]):
            if runs(python):
                return python
    pytest.skip("there is no other Python")


def installed(wheel, is_here, folder):
    """A Python with the wheel in it, and what its environment must have."""
    install = ("-m", "pip", "install", "-q", "--no-compile")
    if is_here:  # what it depends on is here already
        run(sys.executable, *install, "--no-deps", "--target", folder / "site", wheel)
        paths = [str(folder / "site"), sysconfig.get_paths()["purelib"]]
        return sys.executable, {"PYTHONPATH": os.pathsep.join(paths)}
    run(find_other(), "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    run(python, "-I", *install, wheel)  # -I: not the packages of this checkout, by PYTHONPATH
    return python, {}


NAMES = "print(taskflow.__version__, taskflow.__file__, ops.models.gpt.build.__name__)"
SIZES = "ops.models.lenet:build", "--arg", "batch=8", "--devices", "2"
SEARCH = "search", *SIZES, "--proposals", "20"
REPORT = "report", *SIZES, "--no-what-if", "--no-baselines", "--out", "p.html"


def and_commands(program, *commands):
    """A program that calls commands at last, so that one process imports for all of them."""
    calls = [f"if main({command!r}): sys.exit({command!r})" for command in commands]
    return "\n".join([program, "import sys", "from taskflow.cli import main", *calls])


@pytest.mark.parametrize("is_here", [True, False], ids=["here", "another"])
def test_an_installed_wheel_works(wheel, is_here, tmp_path):
    python, more = installed(wheel, is_here, tmp_path)
    away = tmp_path / "away"
    away.mkdir()
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"} | more
    place = {"cwd": away, "env": environment}
    program = and_commands(f"import ops, taskflow\n{NAMES}", ("machine", "h100"))
    line, machine = run(python, "-c", program, **place).split("\n", 1)
    found, file, build = line.split()
    assert (found, build) == (taskflow.__version__, "build") and file.startswith(str(tmp_path))
    assert machine.startswith("h100: 8 devices on 1 hosts")
    command = (python, "-m", "taskflow")
    assert run(*command, "--version", **place) == f"taskflow {found}\n"
    if is_here:
        searched = r"ms predicted.*a step after \d+ proposals"
        program = and_commands(FIRST_MODEL, SEARCH)
        said = run(python, "-O", "-c", program, **place)  # without asserts all is the same
        assert re.search(searched, said, re.DOTALL), said
        said = run(python, "-c", and_commands(program, REPORT), **place)
        assert re.search(rf"{searched}.*written: p\.html", said, re.DOTALL), said
        assert "function renderAll" in (away / "p.html").read_text()
    done = subprocess.run(
        [*map(str, command), "doctor", "--json"], capture_output=True, text=True, **place
    )
    verdicts = {each["name"]: each["verdict"] for each in json.loads(done.stdout)["findings"]}
    assert {verdicts[name] for name in ("packages", "taskflow", "ops", "MPI", "compiler")} == {
        "well"
    }


def test_what_is_in_it(wheel):
    import zipfile

    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "taskflow/report/page/assets/page.html",
        "taskflow/report/page/assets/vendor/uPlot.iife.min.js",
        "taskflow/report/page/assets/vendor/LICENSE.uPlot",
        "taskflow/comm/mpi.env",
        "taskflow/machine/presets/h100.toml",
        "ops/models/gpt.py",
        "taskflow/py.typed",
    ):
        assert name in names
    assert not any(name.startswith(("tests/", "examples/", "benchmarks/")) for name in names)


def test_the_version():
    assert f'version = "{taskflow.__version__}"' in (ROOT / "pyproject.toml").read_text()
