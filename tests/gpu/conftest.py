"""Tests on a GPU: `python -m pytest tests/gpu`. Skipped where CuPy is not installed or finds no GPU and driver."""

import weakref
from pathlib import Path

import pytest

from taskflow.backend import find_gpus
from tests.gpu.at_once import pytest_configure  # noqa: F401


class _WithoutGPU(pytest.Module):
    """A file of tests where there is no GPU: it skips by name, as one, and is not read."""

    def collect(self):
        pytest.skip("needs CuPy and a GPU", allow_module_level=True)


def pytest_addoption(parser):
    parser.addoption("--stand-in", action="store_true", help="NumPy in the place of a GPU")


def is_stand_in(config):
    return config.getoption("--stand-in", False) and not find_gpus()


def pytest_pycollect_makemodule(module_path, parent):
    can_run = find_gpus() or is_stand_in(parent.config)
    return None if can_run else _WithoutGPU.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and not is_stand_in(config):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture
def held(monkeypatch):
    """`held()` is bytes of GPUs that this process holds, whatever others take and give back meanwhile: blocks that the
    backend took since the test began, and what CuPy's pools hold."""
    cupy = pytest.importorskip("cupy")
    blocks, pools = {}, weakref.WeakSet()

    class Block(cupy.cuda.Memory):
        """A block whose end is noted."""

        def __init__(self, size):
            super().__init__(size)
            blocks[id(self)] = size
            weakref.finalize(self, blocks.pop, id(self))

    class Pool(cupy.cuda.MemoryPool):
        """A pool that is known, as those of graphs are."""

        def __init__(self, *given):
            super().__init__(*given)
            pools.add(self)

    monkeypatch.setattr(cupy.cuda, "Memory", Block)
    monkeypatch.setattr(cupy.cuda, "MemoryPool", Pool)
    own = cupy.get_default_memory_pool()
    return lambda: sum(blocks.values()) + sum(pool.total_bytes() for pool in (own, *pools))
