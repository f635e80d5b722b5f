"""Every operator in every precision on a GPU, against NumPy in the same precision: see `tests.ops.precisions`.

Each subject runs on one device as it is, and in another setting in turn: fused, on four devices of one GPU, or both.
`python -m tests.gpu.references` makes the references before; then it takes under a minute on 16 cores
(`python -m pytest tests/gpu/test_precisions.py -n 16`).
"""

import pytest

from tests.gpu.references import of_subject
from tests.gpu.streams import backend
from tests.ops.precisions import BOUNDS, PRECISIONS, SETTINGS, assert_near, on_device, subjects

PAIRS = [
    (subject, setting)
    for k, subject in enumerate(subjects())
    for setting in (SETTINGS[0], SETTINGS[1 + k // len(PRECISIONS) % 3])
]


@pytest.mark.parametrize("subject, setting", PAIRS, ids=str)
def test_a_gpu_gives_the_numbers_of_numpy(subject, setting):
    if subject.precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    model = subject.make()
    if not model.graph.operators:
        pytest.skip("nothing to run")
    found = on_device(model, setting, backend=backend())
    assert_near(found, of_subject(subject), BOUNDS[subject.precision])
