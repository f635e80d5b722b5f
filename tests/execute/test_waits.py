"""Who waits for whom by what rows touch: all rows that no write in between has covered."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taskflow.execute.waits import Accesses, find_dependences
from taskflow.tasks.task_graph import Privilege
from tests.strategies import examples

ROWS = 12
READ, WRITE, BOTH = Privilege.READ, Privilege.WRITE, Privilege.READ_WRITE
RANGES = st.tuples(st.integers(0, 4), st.integers(0, 3)).map(lambda k: (k[0], k[0] + k[1]))
ACCESSES = st.tuples(
    st.integers(0, ROWS - 1),
    st.integers(0, 2),
    st.tuples(RANGES, RANGES),
    st.sampled_from([READ, WRITE, BOTH]),
)


def points(box):
    return {(a, b) for a in range(*box[0]) for b in range(*box[1])}


def expected(accesses):
    """Pairs of rows; every access is held against all before, whose writes in between are looked up."""
    found = set()
    parts = [
        (row, memory, points(box), is_write)
        for row, memory, box, privilege in accesses
        for is_write in (False, True)
        if privilege == BOTH or is_write == (privilege == WRITE)
    ]
    parts.sort(key=lambda part: (part[0], part[3]))  # a row reads before it writes
    for k, (row, memory, box, is_write) in enumerate(parts):
        for j, (other, place, there, was_write) in enumerate(parts[:k]):
            is_covered = any(m == place and w and there <= b for _, m, b, w in parts[j + 1 : k])
            matters = memory == place and row != other and (is_write or was_write)
            if matters and box & there and not is_covered:
                found.add((row, other))
    return found


@examples(200)
@given(st.lists(ACCESSES, max_size=30))
def test_all_that_no_write_in_between_has_covered(accesses):
    accesses = sorted(accesses, key=lambda access: access[0])
    row, memory, box, privilege = zip(*accesses, strict=True) if accesses else ((), (), (), ())
    table = Accesses(
        np.array(row, np.int64),
        np.array(memory, np.int64),
        np.array(box, np.int64).reshape(-1, 2, 2).swapaxes(1, 2),
        np.array(privilege, np.uint8),
    )
    ptr, awaited = find_dependences(table, ROWS)
    waiting = np.repeat(np.arange(ROWS), np.diff(ptr)).tolist()
    pairs = list(zip(waiting, awaited.tolist(), strict=True))
    assert set(pairs) == expected(accesses)
    assert pairs == sorted(set(pairs))


def test_many_that_read_what_one_writes():
    """More than one wait for every access."""
    count = 50
    box = np.array([[[0], [1]]] * count)
    reads = Accesses(np.arange(count), np.zeros(count, np.int64), box, np.full(count, READ))
    reads.privilege[[0, 1, 2, 47, 48, 49]] = WRITE
    reads.box[1:3] = [[0], [0]]
    ptr, awaited = find_dependences(reads, count)
    assert awaited[ptr[47] : ptr[48]].tolist() == [0, *range(3, 47)]
    assert awaited[ptr[49] : ptr[50]].tolist() == [48]
