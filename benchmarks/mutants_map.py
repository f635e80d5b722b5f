"""A plugin of pytest for `mutants.py`: which lines each test reaches, and how long it takes.

`MUTANTS_MAP` is the folder for both, `MUTANTS_AREAS` what is looked at, `MUTANTS_SECONDS` how long a test may take.
Seconds are the processor's, children's included, so that a busy machine loses no test.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_FOLDER = Path(os.environ["MUTANTS_MAP"])
_SECONDS = float(os.environ["MUTANTS_SECONDS"])
_lines = coverage.Coverage(
    data_file=str(_FOLDER / f"lines.{os.getpid()}"),
    config_file=False,
    include=[f"{Path.cwd()}/{area}/*" for area in os.environ["MUTANTS_AREAS"].split(":")],
)
_lines.set_option("run:relative_files", True)
_LIMITS = (
    (signal.ITIMER_PROF, signal.SIGPROF, _SECONDS),
    (signal.ITIMER_REAL, signal.SIGALRM, 6 * _SECONDS),  # of one that waits for its children
)
_passed = dict[str, float]()
_begun = dict[str, float]()


def pytest_configure() -> None:
    _lines.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Of a test of its own, however it ends."""
    _lines.switch_context(item.nodeid)
    _begun[item.nodeid] = _computed()
    for kind, number, seconds in _LIMITS:
        signal.signal(number, _late)
        signal.setitimer(kind, seconds)
    try:
        return (yield)
    finally:
        for kind, _, _ in _LIMITS:
            signal.setitimer(kind, 0)
        _lines.switch_context("")


def _late(*_: object) -> None:
    raise pytest.fail.Exception(f"not over after {_SECONDS} s")


def _computed() -> float:
    """Seconds of the processor, of this process and of those of its children that have ended."""
    return sum(os.times()[:4])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed and report.nodeid in _begun:  # not of a worker
        _passed[report.nodeid] = _computed() - _begun[report.nodeid]


def pytest_sessionfinish() -> None:
    _lines.stop()
    with warnings.catch_warnings(
        action="ignore"
    ):  # the process that hands out tests reaches nothing
        _lines.save()
    (_FOLDER / f"seconds.{os.getpid()}").write_text(json.dumps(_passed))
