"""Makes pytest fit for mpirun: the first failure on any rank is printed and stops every rank, and rank 0 alone reports.

The files in this folder are ordinary tests, valid at any size. A rank that fails leaves the others waiting in their
next exchange, so going on to the next test, as pytest does, would hang; nothing here changes for a process alone.
"""

import functools
import io
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

if TYPE_CHECKING:
    from mpi4py import MPI

# Set by mpirun; asked first, so that collecting these files joins no MPI.
UNDER_MPIRUN = any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))


def world() -> "MPI.Intracomm":
    from mpi4py import MPI

    return MPI.COMM_WORLD


@pytest.fixture(scope="session")
def comm() -> "MPI.Intracomm":
    """All ranks: one when run alone."""
    return world()


@pytest.fixture
def folder(comm: "MPI.Intracomm") -> Iterator[Path]:
    """One folder for all ranks. (`tmp_path` of several ranks at once stumbles over its own tidying up.)"""
    with TemporaryDirectory() if comm.rank == 0 else nullcontext() as made:
        yield Path(comm.bcast(made))
        comm.barrier()


def stop_every_rank(config: pytest.Config, report: str) -> NoReturn:
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        text = f"\nrank {world().rank} of {world().size}: {report}\n"
        os.write(2, text.encode())  # one call, so that ranks do not mix their lines
        world().Abort(1)
    raise AssertionError("Abort returned")


def stopping(test: Callable[..., None], config: pytest.Config) -> Callable[..., None]:
    """Hypothesis repeats and shrinks what failed; the other ranks would not follow, so stop within the test."""

    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        try:
            test(*args, **kwargs)
        except HypothesisException:  # a rejected example, not a failure
            raise
        except Exception:
            stop_every_rank(config, f"{test.__qualname__}({kwargs})\n{traceback.format_exc()}")

    return run


@pytest.fixture
def for_examples(request: pytest.FixtureRequest) -> Callable[[int, Callable[..., None], int], None]:
    """`for_examples(count, test, number)`: the test holds for so many draws, which follow from the number."""

    def run(count: int, test: Callable[..., None], number: int) -> None:
        inner = stopping(test, request.config) if UNDER_MPIRUN else test
        seed(number)(settings(max_examples=count)(given(st.data())(inner)))()

    return run


if UNDER_MPIRUN:

    @pytest.hookimpl(trylast=True)
    def pytest_configure(config: pytest.Config) -> None:
        if world().rank:
            # pytest has no switch for silence, and its other plugins want a reporter.
            config.pluginmanager.getplugin("terminalreporter")._tw._file = io.StringIO()

    def pytest_itemcollected(item: pytest.Item) -> None:
        if hypothesis := getattr(getattr(item, "obj", None), "hypothesis", None):
            hypothesis.inner_test = stopping(hypothesis.inner_test, item.config)

    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        if world().size > 2:
            items[:] = [item for item in items if not item.get_closest_marker("two_ranks")]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item: pytest.Item):
        report = yield
        if report.failed:
            stop_every_rank(item.config, f"{report.nodeid} ({report.when})\n{report.longreprtext}")
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(collector: pytest.Collector):
        report = yield
        if report.failed:
            stop_every_rank(
                collector.config, f"{report.nodeid} (collection)\n{report.longreprtext}"
            )
        return report
