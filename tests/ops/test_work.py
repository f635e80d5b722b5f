"""What operators are said to compute is what was recorded: predictions change where this does, so never by chance.

`python -m tests.ops.test_work` records it anew in `work.json`, beside this file.
"""

import json
from pathlib import Path

import pytest

from taskflow import differentiate
from taskflow.testing import probed_sum

from .cases import CASES

PATH = Path(__file__).with_name("work.json")
RECORDED = json.loads(PATH.read_text())


def work_of(case):
    """Operator -> floating-point operations, forward and, where there is a gradient, backward."""
    graph, y = case.build()
    if case.is_differentiable:
        floating = [r for r in (*graph.inputs, *graph.parameters) if r.is_floating]
        differentiate(probed_sum(y, graph.input("probe", y.shape, y.dtype)), floating)
    return {op.name: op.total_flops for op in graph.operators}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_work_is_what_was_recorded(case):
    assert work_of(case) == pytest.approx(RECORDED[case.name])


def test_all_cases_are_recorded():
    assert RECORDED.keys() == {case.name for case in CASES}


if __name__ == "__main__":
    found = {case.name: work_of(case) for case in CASES}
    lines = [f"{json.dumps(name)}: {json.dumps(work)}" for name, work in found.items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
