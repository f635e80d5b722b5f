"""Functions run as Python until they are hot, another process compiles them meanwhile, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from taskflow.core import ahead, tiers
from taskflow.core.compiling import _function_of
from taskflow.simulation import simulate
from taskflow.tasks import fair
from tests.refusals import assert_refused

ROOT = Path(__file__).parents[2]
CALLED = """
from taskflow.core.columns import records
from taskflow.core.compiling import leaf, tiered

PAIR = records([("sum", "i8"), ("share", "f8")])

@leaf
def add(pair, number):
    pair.sum += number
    pair.share += 1.0 / number

@tiered
def add_up(pairs, numbers):
    for k in range(len(numbers)):
        add(pairs[0], numbers[k])
    return pairs[0].sum
"""
MAIN = """
import contextlib, os, pathlib, sys, time
import numpy as np
import called

def once(size=9):
    return int(called.add_up(np.zeros(1, called.PAIR), np.arange(1, size + 1)))
"""


@pytest.fixture
def package(tmp_path):
    (tmp_path / "called.py").write_text(CALLED)
    return tmp_path


def start(package, main, **more):
    """A process outside of pytest, with a folder of its own for compiled code."""
    program = package / "main.py"
    if not program.exists() or program.read_text() != MAIN + main:  # which another may be reading
        program.write_text(MAIN + main)
    paths = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}{os.pathsep}{package}",
        "HOME": str(package),
        "TMPDIR": str(package),
    }
    environment = {**paths, "NUMBA_CACHE_DIR": str(package / "cache"), **more}
    environment["TASKFLOW_COMPILE_NICE"] = "0"  # other tests leave nothing to who is nice
    return subprocess.Popen(
        [sys.executable, program],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def outcome(process):
    """What it says; it ends well."""
    out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return out.split(), said


def files(package):
    return sorted(path.name for path in (package / "cache" / "taskflow").glob("called.*"))


UNTIL_COMPILED = """
begin = time.monotonic()
while "numba" not in sys.modules or not called.add_up.overloads:
    assert once(999) == 499500 and time.monotonic() < begin + 60
    time.sleep(0.02)
print(once())
"""
IS_INTERPRETED = "print(once(), 'numba' in sys.modules)"


# -- policy ------------------------------------------------------------------------------------------------------------


def test_it_is_compiled_where_going_on_as_python_takes_longer():
    found = tiers.Temperature(compile_seconds=2.0)
    assert not found.is_hot(size=1_000_000) and found.is_hot(
        size=3_000_000
    )  # nothing is known: 1 us an element
    found.note(size=100, seconds=0.03)
    assert not found.is_warm() and not found.is_hot(size=6500) and found.is_hot(size=6600)
    found.note(size=100, seconds=0.06)
    assert found.is_warm() and found.spent == pytest.approx(0.09)
    found.note(size=10**9, seconds=1.8)
    assert not found.is_hot(size=10**6) and found.is_hot(size=10**8)


def test_the_size_of_a_call():
    assert tiers.size_of([3, None]) == 1
    assert tiers.size_of([np.zeros((2, 3)), (np.zeros(4), (np.zeros(5), 1))]) == 6 + 4 + 5


def test_compiling_takes_as_long_as_there_is_code_to_compile():
    follow, one_pass = (_function_of(each) for each in (fair._follow, simulate._one_pass))
    parts = tiers.compile_seconds(follow, _function_of)
    own = 4e-4 * len(follow.__code__.co_code)
    assert 0.5 + 3 * own < parts < 0.5 + 100 * own  # and of what it calls
    assert tiers.compile_seconds(one_pass, _function_of) != parts


@pytest.mark.parametrize(
    "said, mode", [("", "hot"), ("hot", "hot"), ("never", "never"), ("always", "always")]
)
def test_what_the_environment_says(said, mode, monkeypatch):
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    monkeypatch.setenv("TASKFLOW_COMPILE", said)
    assert tiers.mode() == mode
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert tiers.mode() == "never"


def test_what_the_environment_may_not_say(monkeypatch):
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    monkeypatch.setenv("TASKFLOW_COMPILE", "yes")
    assert_refused("TASKFLOW_COMPILE: 'hot', 'never' or 'always', not 'yes'", tiers.mode)


# -- processes ---------------------------------------------------------------------------------------------------------


def test_short_work_loads_no_compiler_and_leaves_nothing(package):
    assert outcome(start(package, IS_INTERPRETED)) == (["45", "False"], "")
    assert not (package / "cache").exists()


def test_what_is_hot_is_compiled_and_found_by_the_next_process(package):
    assert outcome(start(package, "print(once(10**7), called.add_up.overloads != {})"))[0] == [
        "50000005000000",
        "True",
    ]
    assert len(files(package)) == 1
    assert outcome(start(package, IS_INTERPRETED))[0] == ["45", "True"]


@pytest.mark.parametrize("mode, is_compiled", [("always", "True"), ("never", "False")])
def test_who_says_so_gets_one_or_the_other(package, mode, is_compiled):
    assert outcome(start(package, IS_INTERPRETED, TASKFLOW_COMPILE=mode))[0] == ["45", is_compiled]


def test_integers_wrap_around_alike_without_a_warning(package):
    main = "print(called.add_up(np.zeros(1, called.PAIR), np.array([2**63 - 1, 2])))"
    for mode in ("always", "never"):
        assert outcome(start(package, main, TASKFLOW_COMPILE=mode)) == ([str(-(2**63) + 1)], "")


@pytest.mark.waits
def test_four_processes_share_one_that_compiles_what_is_warm_and_ends_with_them(package):
    processes = [start(package, UNTIL_COMPILED) for _ in range(4)]
    most = 0
    while any(process.poll() is None for process in processes):
        most = max(most, len(compilers(package)))
        time.sleep(0.05)
    assert [outcome(process) for process in processes] == [(["45"], "")] * 4
    assert len(files(package)) == 1 and nobody_compiles(package)
    assert most >= 1


def test_a_process_that_is_killed_leaves_none_behind(package):
    process = start(package, "while True:\n    once()\n    time.sleep(0.002)")
    assert wait(lambda: compilers(package))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert nobody_compiles(package)
    assert outcome(start(package, UNTIL_COMPILED)) == (
        ["45"],
        "",
    )  # nor anything that keeps the next from it


WITHDRAWS = """
from taskflow.core import ahead
while not (pathlib.Path.home() / "cache/taskflow/compiler.lock").exists():
    once()
    time.sleep(0.002)
ahead.withdraw()
with contextlib.suppress(ChildProcessError):
    while True:
        os.wait()  # for each that was started, the one that came too late among them
print("withdrawn", flush=True)
sys.stdin.readline()
ahead._hold(ahead._folder())
print(ahead._is_compiling(ahead._folder()))
"""


@pytest.mark.parametrize("said", ["20", "-1", "low"])
def test_no_priority(said, monkeypatch, tmp_path):
    monkeypatch.setenv("TASKFLOW_COMPILE_NICE", said)
    message = f"TASKFLOW_COMPILE_NICE: 0 to 19, not '{said}'"
    assert_refused(message, lambda: ahead._start(tmp_path))


def test_who_withdraws_lets_it_end_and_may_ask_again(package):
    process = start(package, WITHDRAWS)
    assert process.stdout.readline() == "withdrawn\n"
    assert nobody_compiles(package) and process.poll() is None
    out, _ = process.communicate("\n", timeout=120)
    assert out == "False\n"
    assert outcome(start(package, UNTIL_COMPILED)) == (["45"], "")


NO_ROOM = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
ALL_KINDS = "for _ in range(300):\n    once()\nprint(once(10**7))\n"


def test_on_a_full_disk_it_goes_on_with_one_line(package):
    out, said = outcome(start(package, NO_ROOM + ALL_KINDS))
    assert out == ["50000005000000"] and nobody_compiles(package)
    assert said.startswith("compiled code is not kept: neither ") and said.count("\n") == 1, said


def test_where_nothing_can_be_written_it_goes_on_with_one_line(package):
    nowhere = "import tempfile\ntempfile.tempdir = '/dev/null'\n"
    out, said = outcome(start(package, nowhere + ALL_KINDS, NUMBA_CACHE_DIR="/dev/null/nowhere"))
    assert out == ["50000005000000"] and not compilers(package)
    assert said.startswith("compiled code is not kept: neither ") and said.count("\n") == 1, said


def compilers(package):
    """The processes that compile for this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"taskflow.core.ahead" in words and str(package).encode() in b" ".join(words):
            found.append(int(path.parent.name))
    return found


def wait(condition, seconds=30):
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def nobody_compiles(package):
    return wait(lambda: not compilers(package))
