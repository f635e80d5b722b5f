"""What NumPy gives for the models of tests/gpu, made before a GPU is asked: `python -m tests.gpu.references`.

That compiles kernels for CPUs, which takes minutes that a borrowed GPU need not wait for. References lie in .cache and
are found by the model, its feeds and the sources; without one a test makes it.

Random models are drawn here as well, each a case of its own: one that fails is told at once, and nothing is shrunk.
"""

import hashlib
import os
import pickle
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from taskflow import MachineModel, lower, single_device
from taskflow.core.system import count_cores
from tests import laws
from tests.ops.cases import CASES
from tests.ops.precisions import reference, subjects
from tests.ops.strategies import operator_graphs
from tests.ops.test_gpu import trained
from tests.sources import PACKAGES, ROOT, sources
from tests.strategies import strategies
from tests.traced import traces

FOLDER = ROOT / ".cache" / "gpu_references"
STEPS, CHECKED_STEPS = 3, 2
DRAWN, DEVICES = 40, 4


def one_device(model, steps):
    """What the model gives on a CPU: see `laws.run`."""
    machine = MachineModel.uniform(1)
    rows = lower(model.graph, single_device(model.graph, machine), machine)
    feeds = b"".join(name.encode() + value.tobytes() for name, value in model.feeds.items())
    return _kept(
        f"{rows.digest()} {steps}".encode() + feeds, lambda: laws.one_device(model, machine, steps)
    )


def of_subject(subject):
    """What NumPy gives for a subject of `tests.ops.precisions`."""
    return _kept(str(subject).encode(), lambda: reference(subject.make()))


def _of_operators(subject):
    """`of_subject`, of one that has something to run."""
    return of_subject(subject) if subject.make().graph.operators else None


def _kept(key, make):
    """What was made for a key by the same sources, or what is made now."""
    path = (
        FOLDER / f"{hashlib.blake2b(_digest().encode() + key, digest_size=16).hexdigest()}.pickle"
    )
    if not path.exists():
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(pickle.dumps(found))
        part.replace(path)  # whole, or not there
    return pickle.loads(path.read_bytes())


@cache
def _digest():
    """Of what a reference may follow from."""
    digest = hashlib.blake2b(digest_size=16)
    for path in (*sources(*PACKAGES).values(), *sorted((ROOT / "tests").rglob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def covering():
    """Numbers of cases that launch every kernel of `ops/cuda` between them: each launches one that none before does."""

    def make():
        seen, numbers = set(), []
        for number, case in enumerate(CASES):
            model = trained(case)
            counts = (trace.own for trace in traces(model.graph).values())
            names = {name.rpartition("_")[0] for own in counts for name in own}  # dtypes left out
            if names - seen:
                seen |= names
                numbers.append(number)
        return numbers

    return _kept(b"covering", make)


@st.composite
def placed(draw):
    """A model, a machine of up to four devices, and a strategy."""
    model = draw(operator_graphs())
    return model, *draw(strategies(model.graph, DEVICES))


@cache
def drawn():
    """The same random models, machines and strategies in every process."""
    found = []

    @settings(
        max_examples=DRAWN, derandomize=True, database=None, deadline=None, phases=[Phase.generate]
    )
    @given(placed())
    def take(example):
        found.append(example)

    take()
    assert len(found) == DRAWN
    return found


def wanted():
    """A call for every reference of test_laws and test_precisions."""
    yield covering
    yield from (partial(_of_operators, subject) for subject in subjects())
    for case in CASES:
        yield partial(one_device, trained(case), STEPS)
    for case in CASES[::3]:
        yield partial(one_device, trained(case), CHECKED_STEPS)
    for model, *_ in drawn():
        for steps in (STEPS, CHECKED_STEPS):
            yield partial(one_device, model, steps)


def _make(part, parts):
    """Every so many-th of them; how many."""
    return sum(1 for number, make in enumerate(wanted()) if number % parts == part and make())


if __name__ == "__main__":
    begin, parts = time.perf_counter(), int(sys.argv[1]) if len(sys.argv) > 1 else count_cores()
    with ProcessPoolExecutor(parts) as pool:
        count = sum(pool.map(_make, range(parts), [parts] * parts))
    print(
        f"{count} references in {Path(FOLDER).relative_to(ROOT)}, {time.perf_counter() - begin:.0f} s"
    )
