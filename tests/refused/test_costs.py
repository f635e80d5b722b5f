"""Cost files that cannot be."""

import json

import pytest

from taskflow import CostModel, MachineModel
from tests.refusals import assert_refused

HEAD = {"format": "taskflow-costs", "version": 1}


def with_kernel(seconds):
    return HEAD | {"kernels": {"fc": seconds}}


FILES = {
    "no kernels": (HEAD, "object missing required field 'kernels'"),
    "a list": (HEAD | {"kernels": [1.0]}, "'kernels' is [1.0]: expected 'object', got 'array'"),
    "true": (with_kernel(True), "kernel 'fc': is true: expected 'float', got 'bool'"),
    "text": (with_kernel("1_0"), "kernel 'fc': is \"1_0\": expected 'float', got 'str'"),
    "absurd": (with_kernel(1e12), "kernel 'fc': is 1000000000000.0: expected 'float' <= 86400.0"),
    "negative": (with_kernel(-1e-9), "kernel 'fc': is -1e-09: expected 'float' > 0.0"),
    "nothing": (with_kernel(0.0), "kernel 'fc': is 0.0: expected 'float' > 0.0"),
    "no time": (with_kernel(0), "kernel 'fc': is 0: expected 'float' > 0.0"),
    "unknown key": (
        with_kernel(1.0) | {"kernel": 3},
        "object contains unknown field 'kernel'; the fields are kernels, processor",
    ),
    "version": (with_kernel(1.0) | {"version": 2}, "has version 2, this reads 1"),
    "not JSON": (
        "{",
        "is not complete JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    "twice": ('{"kernels": {"fc": 1, "fc": 2}}', "key 'fc' is there twice"),
    "not finite": ('{"kernels": {"fc": Infinity}}', "the number Infinity is not finite"),
    "deep": ('{"a":' * 100_000, "is nested deeper than 32 levels"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_cost_file(case, tmp_path):
    content, message = FILES[case]
    path = tmp_path / "costs.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert_refused(
        f"cost file '{path}': {message}", lambda: CostModel.measured(MachineModel.uniform(1), path)
    )


def test_a_folder(tmp_path):
    message = f"cost file '{tmp_path}': is no regular file"
    assert_refused(message, lambda: CostModel.measured(MachineModel.uniform(1), tmp_path))
