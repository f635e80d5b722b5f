"""One case for each kernel of `ops/cuda`, for tools that look at every access: `compute-sanitizer --tool memcheck`."""

import pytest

from tests.gpu.references import covering
from tests.gpu.test_laws import is_numpys, on_one_gpu
from tests.ops.cases import CASES
from tests.ops.test_gpu import trained


@pytest.mark.parametrize("number", covering())
def test_a_case_of_a_kernel_gives_the_numbers_of_numpy(number):
    is_numpys(*on_one_gpu(trained(CASES[number])), steps=1, record=True)
