"""Cells that threads wait on."""

import numba
import numpy as np

from taskflow.tasks.threads.spin import await_value, exchange, peek, poke, read, write


def test_what_is_written_is_read():
    """Compiled here, and not kept: so what makes the code of both runs."""

    @numba.njit
    def swapped(cells):
        first, second = peek(cells, 0), peek(cells, 1)
        poke(cells, 0, second)
        poke(cells, 1, first)

    cells = np.array([3, 5, 7], np.int64)
    swapped(cells)
    assert cells.tolist() == [5, 3, 7]


def test_looks_see_what_a_cell_holds():
    cells, others = np.zeros(3, np.int64), np.array([0, 9, 0], np.int64)
    assert write(cells, 1, 4, 3) == 12
    assert cells.tolist() == [0, 4, 0] and read(cells, 1) == 4
    assert await_value(cells, 1, 4, 1) and not await_value(cells, 1, 5, 10)
    assert exchange(cells, others, 1, 8, 10) == 9
    assert cells.tolist() == [0, 8, 0]
    assert exchange(cells, others, 1, 9, 10) == 9  # what was held when it looked last
