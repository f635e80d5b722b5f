"""Compiled functions are ordinary Python: `benchmarks/interpreted.py` runs more of these examples."""

import pytest

from benchmarks.interpreted import differences


@pytest.mark.slow
def test_as_python_and_compiled_rows_times_and_results_are_the_same_bits():
    differing, ran = differences(20)
    assert differing == 0 and ran >= 10
