"""Tests on a GPU: `python -m pytest tests/gpu`. Skipped where CuPy is not installed or finds no GPU and driver."""

import pytest

from taskflow.backend import find_gpus


def pytest_collection_modifyitems(items):
    here = [item for item in items if item.path.is_relative_to(__file__.rpartition("/")[0])]
    if not here:
        return
    has_gpu = bool(find_gpus())
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if not has_gpu:
            item.add_marker(pytest.mark.skip(reason="needs CuPy and a GPU"))
