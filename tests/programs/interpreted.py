"""Digests of random models, plans and orders, a line each: `interpreted.py 300`. TASKFLOW_COMPILE says how it runs."""

import sys
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.golden import contents, hash_of
from taskflow import CostModel, Executor, simulate
from tests.strategies import graphs, whole_plans


def digest(values):
    """Of arrays by name, to the bit."""
    found = sha256()
    for name, value in sorted(values.items()):
        found.update(
            f"{name} {value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes()
        )
    return found.hexdigest()[:16]


@settings(
    max_examples=int(sys.argv[1]),
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def tell(data):
    model = data.draw(graphs())
    machine, plan = data.draw(whole_plans(model.graph))
    costs = CostModel.analytic(machine)
    try:
        _, rows = plan.apply(model.graph, machine, costs)
    except ValueError as error:
        print("refused", error)
        return
    timeline = simulate(rows, costs)
    with Executor(rows, seed=3, allow_nan=True) as step:
        seen = dict(step(model.feeds)) | {name: step.read(name) for name in step.persistent}
    times = [np.asarray(each).tobytes() for each in (timeline.start, timeline.end)]
    print(
        len(rows),
        hash_of(contents(rows)),
        sha256(b"".join(times)).hexdigest()[:16],
        digest(seen),
        flush=True,
    )


tell()
