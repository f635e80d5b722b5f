"""Every operator in every precision by its CUDA kernels as C++, against NumPy; see `precisions`.

Each model runs in two precisions, once as it is and once in another setting; in all of them, and in all settings, by
HYPOTHESIS_PROFILE=thorough.
"""

import pytest
from hypothesis import settings

from tests import shim
from tests.ops.precisions import BOUNDS, PRECISIONS, SETTINGS, assert_near, on_device, reference, subjects

IS_THOROUGH = settings().max_examples > 100

pytestmark = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def chosen():
    """Pairs of a subject and a setting."""
    for k, subject in enumerate(subjects()):
        model, precision = divmod(k, len(PRECISIONS))
        if IS_THOROUGH:
            yield from ((subject, setting) for setting in SETTINGS)
        elif precision == model % len(PRECISIONS):
            yield subject, SETTINGS[0]
        elif precision == (model + 2) % len(PRECISIONS):
            yield subject, SETTINGS[1 + model % 3]


@pytest.mark.parametrize("subject, setting", list(chosen()), ids=str)
def test_a_gpu_gives_the_numbers_of_numpy(subject, setting):
    if not subject.make().graph.operators:
        pytest.skip("nothing to run")
    found = on_device(subject, setting, backend=shim.ShimStreams())
    assert_near(found, reference(subject), BOUNDS[subject.precision])
