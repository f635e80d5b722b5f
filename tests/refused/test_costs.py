"""Cost files that cannot be."""

from taskflow import CostModel, MachineModel
from tests.refusals import each_refused, of_files

HEAD = {"format": "taskflow-costs", "version": 1}


def load(path):
    CostModel.measured(MachineModel.uniform(1), path)


def kernel(seconds, **more):
    return HEAD | {"kernels": {"fc": seconds}} | more


FILES = [
    ("no kernels", HEAD, "object missing required field 'kernels'"),
    ("a list", HEAD | {"kernels": [1.0]}, "'kernels' is [1.0]: expected 'object', got 'array'"),
    ("true", kernel(True), "kernel 'fc': is true: expected 'float', got 'bool'"),
    ("text", kernel("1_0"), "kernel 'fc': is \"1_0\": expected 'float', got 'str'"),
    ("absurd", kernel(1e12), "kernel 'fc': is 1000000000000.0: expected 'float' <= 86400.0"),
    ("negative", kernel(-1e-9), "kernel 'fc': is -1e-09: expected 'float' > 0.0"),
    ("nothing", kernel(0.0), "kernel 'fc': is 0.0: expected 'float' > 0.0"),
    ("no time", kernel(0), "kernel 'fc': is 0: expected 'float' > 0.0"),
    (
        "unknown key",
        kernel(1.0, kernel=3),
        "object contains unknown field 'kernel'; the fields are kernels, processor, choices",
    ),
    ("version", kernel(1.0, version=2), "has version 2, this reads 1"),
    (
        "not JSON",
        "{",
        "is not complete JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    ("twice", '{"kernels": {"fc": 1, "fc": 2}}', "key 'fc' is there twice"),
    ("not finite", '{"kernels": {"fc": Infinity}}', "the number Infinity is not finite"),
    ("deep", '{"a":' * 100_000, "is nested deeper than 32 levels"),
]
REFUSED = [
    *of_files(load, "cost file", "costs.json", FILES),
    ("a folder", lambda: load("."), "cost file '.': is no regular file"),
]
test_refused = each_refused(REFUSED)
