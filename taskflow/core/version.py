"""The version of the distribution that is installed, which has it from pyproject.toml."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "taskflow-dl"


def installed(distribution: str) -> str:
    """The version of a distribution; empty where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def our_version() -> str:
    """That of taskflow-dl; `not installed` for a checkout that is on the path alone."""
    return installed(DISTRIBUTION) or "not installed"


OUR_VERSION = our_version()
