"""`pytest --skipped` runs what skipped before, and nothing else: once more is at hand, that is what is left to run.

What skipped is kept in pytest's cache. A test that has run since is no longer among it, whatever else
that run left out.
"""

from pathlib import Path

import pytest

KEY = "taskflow/skipped"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--skipped", action="store_true", help="run what skipped in earlier runs, and nothing else"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file in which nothing skipped is not even imported."""
    is_file = collection_path.is_file() and collection_path.is_relative_to(config.rootpath)
    if not config.getoption("--skipped") or not is_file:
        return None
    file = collection_path.relative_to(config.rootpath).as_posix()
    skipped = {name.partition("::")[0] for name in config.cache.get(KEY, [])}
    return None if file in skipped else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--skipped"):
        return
    kept = set(config.cache.get(KEY, []))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


class Skips:
    """Which tests skipped, and which did not, in this run; with xdist the process that reports knows."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._skipped: set[str] = set()
        self._ran: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._skipped.add(report.nodeid)
        elif report.when == "call" or report.failed:
            self._ran.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        kept = set(self._config.cache.get(KEY, []))
        self._config.cache.set(KEY, sorted(kept - self._ran | self._skipped))


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.has_plugin("cacheprovider") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(config))
    elif config.getoption("--skipped") and not config.pluginmanager.has_plugin("cacheprovider"):
        raise pytest.UsageError(
            "--skipped: what skipped is kept in the cache, which is off: -p no:cacheprovider"
        )
