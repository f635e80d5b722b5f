"""Every operator in every precision by its CUDA kernels as C++, against NumPy; see `precisions`.

Each model runs in one precision and one setting, which take turns; in all of them by HYPOTHESIS_PROFILE=thorough.
"""

import numpy as np
import pytest

from tests import shim
from tests.ops.precisions import (
    BOUNDS,
    PRECISIONS,
    SETTINGS,
    assert_near,
    extreme,
    on_device,
    reference,
    run_model,
    subjects,
)
from tests.sampling import IS_THOROUGH

pytestmark = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def chosen():
    """Pairs of a subject and a setting."""
    for k, subject in enumerate(subjects()):
        model, precision = divmod(k, len(PRECISIONS))
        if IS_THOROUGH:
            yield from ((subject, setting) for setting in SETTINGS)
        elif precision == model % len(PRECISIONS):
            yield subject, SETTINGS[model % len(SETTINGS)]


@pytest.mark.parametrize("subject, setting", list(chosen()), ids=str)
def test_a_gpu_gives_the_numbers_of_numpy(subject, setting):
    if subject.precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    if not subject.make().graph.operators:
        pytest.skip("nothing to run")
    found = on_device(subject, setting, backend=shim.ShimStreams())
    assert_near(found, reference(subject), BOUNDS[subject.precision])


@pytest.mark.parametrize(
    "subject",
    [s for s in subjects() if s.precision == "float32" and s.name.endswith("of a feed")],
    ids=str,
)
def test_where_numbers_are_not_ordinary(subject):
    """The outputs of a step on zeros, ties, kinks, large numbers and such that are not finite."""
    model, outputs = extreme(subject.make()), set(subject.make().graph.outputs)
    with np.errstate(all="ignore"):
        expected = run_model(model)
        found = run_model(model, kind="cuda", record=False, backend=shim.ShimStreams())
    first = {f"{name} in step 0" for name in outputs}
    assert_near(
        *({name: v for name, v in values.items() if name in first} for values in (found, expected)),
        1e-3,
    )
