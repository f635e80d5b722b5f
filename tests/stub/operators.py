"""Every operator on the stub, with gradients and an update: in settings that take turns, or all cases in all of them.

Run by `test_stub.py` in the environment of the stub. STUB_PART="1/3" is a part of the cases, STUB_SETTINGS=all every
case in every setting.
"""

import os

import pytest

from tests.ops.cases import CASES
from tests.ops.test_fused import BUILDS, fused, model_of
from tests.sampling import sampled
from tests.stub.runs import SETTINGS, in_precision, run

PART, PARTS = map(int, os.environ.get("STUB_PART", "0/1").split("/"))
IS_WHOLE = os.environ.get("STUB_SETTINGS") == "all"
CHOSEN = [
    pytest.param(case, setting, id=f"{case}: {setting}")
    for k, case in enumerate(CASES if IS_WHOLE else sampled(CASES))
    for n, setting in enumerate(SETTINGS)
    if k % PARTS == PART and (IS_WHOLE or n == k // PARTS % len(SETTINGS))
]


@pytest.mark.parametrize("case, setting", CHOSEN)
def test_an_operator_keeps_to_the_rules_of_cuda(case, setting, monkeypatch):
    model = in_precision(case, setting.precision, monkeypatch)
    if not model.graph.operators:
        pytest.skip("a cast to what its input is: there is nothing to run")
    run(model, setting.devices, setting.captures)


@pytest.mark.parametrize(
    "build, setting",
    [
        pytest.param(build, setting, id=f"{build.__name__}: {setting}")
        for k, build in enumerate(BUILDS)
        for n, setting in enumerate(SETTINGS)
        if PART == 0 and (IS_WHOLE or n % len(BUILDS) == k)
    ],
)
def test_fused_operators_keep_to_the_rules_of_cuda(build, setting):
    run(fused(model_of(build, setting.precision)), setting.devices, setting.captures)
