"""What every test may rely on: the same examples each time, `gpu` tests only where there is one, and `mpirun`."""

import functools
import gc
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from taskflow.comm import launch
from taskflow.core.system import outside_job
from tests import skipped
from tests.skipped import pytest_addoption, pytest_configure, pytest_ignore_collect  # noqa: F401 (of this suite)

ROOT = Path(__file__).parents[1]
pytest.register_assert_rewrite("tests.laws", "tests.refusals")

# Derandomized: examples depend on the test alone, so a run can be repeated, and all ranks of one draw the same.
# No check by the clock: these machines are shared.
settings.register_profile(
    "dev",
    max_examples=10,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("dev"), print_blob=True)
settings.register_profile(
    "thorough", settings.get_profile("dev"), max_examples=2000
)  # HYPOTHESIS_PROFILE=thorough
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


TESTS_OF = pytest.StashKey[Counter[str]]()  # of every file that was collected, how many tests


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Also a file that has no test here, as it asks for what is not installed."""
    if isinstance(collector, pytest.Module):
        collector.config.stash.setdefault(TESTS_OF, Counter())[collector.nodeid] += 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash.setdefault(TESTS_OF, Counter()).update(
        item.nodeid.partition("::")[0] for item in items
    )
    skipped.pytest_collection_modifyitems(config, items)
    if named := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"another name in each process: {named[0]}")
    slow_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def slow_first(items: list[pytest.Item], workers: int) -> None:
    """The first worker begins with what waits, the others with what is slow: a test that comes last keeps all waiting.

    xdist gives each worker as many tests in a row as another.
    """
    waiting, slow, other = list[pytest.Item](), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        waits, is_slow = (item.get_closest_marker(name) for name in ("waits", "slow"))
        (waiting if waits else slow if is_slow else other).append(item)
    ends = [len(slow) * k // max(1, workers - 1) for k in range(workers)]
    begins = [waiting, *(slow[begin:end] for begin, end in pairwise(ends))]
    if workers == 1:
        begins = [waiting + slow]
    rest = iter(other)
    left, items[:] = len(items), []
    for number, begin in enumerate(begins):
        share = left // (workers - number)
        left -= share
        items += [*begin, *islice(rest, max(0, share - len(begin)))]
    items += rest


def pytest_collection_finish() -> None:
    """The garbage collector leaves out what has been imported, and runs seldom: it took 5 % of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@functools.cache
def why_no_gpu() -> str | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no GPU: {error}"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := why_no_gpu()):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def mpirun() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`mpirun(ranks, *arguments, timeout=240)` runs this Python under the mpirun beside it, or that of PATH.

    What is not over in time fails with what it has said until then.
    """
    outside = outside_job(os.environ)

    def run(
        ranks: int, *arguments: str | Path, timeout: float = 240, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        command = [launch.find_mpirun(), "-n", str(ranks), sys.executable, *arguments]
        with launch.session_folder() as session:
            environment = (
                launch.launch_environment(outside, ranks) | launch.settings() | session | variables
            )
            try:
                return subprocess.run(
                    command,
                    env=environment,
                    cwd=ROOT,
                    timeout=timeout,
                    capture_output=True,
                    text=True,
                )
            except subprocess.TimeoutExpired as late:
                said = b"".join(filter(None, (late.stdout, late.stderr))).decode(errors="replace")
                pytest.fail(f"not over after {timeout:g} s; until then it said:\n{said}")

    return run
