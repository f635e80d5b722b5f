"""Boxes in a line: all that overlap a box are near it, and few others where boxes follow each other."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taskflow.lowering.boxes import overlaps
from taskflow.lowering.line import line_of, near
from tests.strategies import examples

BORDERS = st.tuples(st.integers(0, 9), st.integers(1, 4)).map(lambda k: (k[0], k[0] + k[1]))
BOXES = st.lists(st.tuples(BORDERS, BORDERS).map(lambda box: [*box[0], *box[1]]), max_size=20)


def table(boxes):
    return np.array(boxes, np.int64).reshape(-1, 4)


@examples(200)
@given(BOXES, st.lists(st.booleans(), min_size=20, max_size=20), BOXES)
def test_all_that_overlap_are_near(boxes, is_kept, asked):
    number = np.array([k for k in range(len(boxes)) if is_kept[k]], np.int64)
    line = line_of(number, table(boxes), 4)
    for box in table(asked):
        found = near(line, box).tolist()
        assert found == sorted(set(found))
        assert {*found} <= {*number.tolist()}
        assert {k for k in number.tolist() if overlaps(table(boxes)[k], box)} <= {*found}


def test_of_tiles_in_a_row_few_are_near():
    """Whichever dimension is cut."""
    for side in (0, 2):
        boxes = np.tile([0, 100, 0, 100], (50, 1))
        boxes[:, side], boxes[:, side + 1] = np.arange(50) * 2, np.arange(50) * 2 + 2
        line = line_of(np.arange(50), boxes, 4)
        assert near(line, boxes[20]).tolist() == [20]
        wide = boxes[20].copy()
        wide[side] -= 1
        assert near(line, wide).tolist() == [19, 20]
