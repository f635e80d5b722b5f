"""More bytes take no less by a library, however it was measured."""

import pytest

from taskflow.machine.library import LibraryTimes


@pytest.mark.parametrize("measured", [(5e-6, 4e-6, 9e-6), (5e-6, 9e-6, 8e-6), (9e-6, 5e-6, 4e-6), (1e-6, 2e-6, 3e-6)])
def test_prices_of_a_library(measured):
    times = LibraryTimes("all-reduce", 1, 8, (1 << 10, 1 << 20, 1 << 22), measured)
    found = [times.at(size) for size in (1, 1 << 10, 1 << 15, 1 << 20, 1 << 21, 1 << 22, 1 << 30)]
    assert found == sorted(found) and found[0] == min(measured)
