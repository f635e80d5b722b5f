"""Every operator in every precision by its CUDA kernels as C++, against NumPy; see `precisions`.

The first case of each operator, and compositions of a feed or a parameter, run in one precision and one setting, which
take turns; all cases in all of them by HYPOTHESIS_PROFILE=thorough.
"""

from itertools import product

import numpy as np
import pytest

from tests import shim
from tests.ops.cases import CASES
from tests.ops.precisions import (
    BOUNDS,
    BUILDS,
    PRECISIONS,
    SETTINGS,
    assert_near,
    extreme,
    on_device,
    reference,
    run_model,
    subjects,
)
from tests.sampling import IS_THOROUGH, batched, sampled

pytestmark = pytest.mark.skipif(shim.COMPILER is None, reason="g++ is not installed")


def chosen():
    """Pairs of a subject and a setting."""
    if IS_THOROUGH:
        return list(product(subjects(), SETTINGS))
    models = list(batched(subjects(), len(PRECISIONS)))
    cases, others = models[: len(CASES)], models[len(CASES) :]
    builds, firsts = others[: len(BUILDS)], list(batched(others[len(BUILDS) :], 2))
    operators = sampled(cases, lambda model: model[0].name)
    operators += [pair[k % 2] for k, pair in enumerate(firsts)]
    return [
        (model[k % len(PRECISIONS)], settings[k % len(settings)])
        for models, settings in ((operators, SETTINGS), (builds, SETTINGS[:2]))
        for k, model in enumerate(models)
    ]


@pytest.mark.parametrize("subject, setting", chosen(), ids=str)
def test_a_gpu_gives_the_numbers_of_numpy(subject, setting):
    if subject.precision == "bfloat16":
        pytest.importorskip("ml_dtypes")
    model = subject.make()
    if not model.graph.operators:
        pytest.skip("nothing to run")
    found = on_device(model, setting, backend=shim.ShimStreams())
    assert_near(found, reference(model), BOUNDS[subject.precision])


@pytest.mark.parametrize(
    "subject",
    [s for s in subjects() if s.precision == "float32" and s.name.endswith("of a feed")],
    ids=str,
)
def test_where_numbers_are_not_ordinary(subject):
    """The outputs of a step on zeros, ties, kinks, large numbers and such that are not finite."""
    model = extreme(subject.make())
    with np.errstate(all="ignore"):
        expected = run_model(model, steps=1)
        found = run_model(model, kind="cuda", steps=1, record=False, backend=shim.ShimStreams())
    first = {f"{name} in step 0" for name in model.graph.outputs}
    assert_near(
        *({name: v for name, v in values.items() if name in first} for values in (found, expected)),
        1e-3,
    )
