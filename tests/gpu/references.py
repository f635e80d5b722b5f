"""What GPUs are compared with, made on CPUs first: `python -m tests.gpu.references`, some minutes on two cores.

The file holds what NumPy gives for every subject of `tests.ops.precisions`. A test on a GPU then compiles nothing for
the CPU, and does not wait for it. Where a subject is not in the file, its reference is made when it is asked for.
"""

import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

from tests.ops.precisions import reference, subjects

FILE = Path(__file__).parents[2] / ".cache" / "references.pickle"


def made(number):
    """The reference of a subject; a subject itself cannot be sent to another process."""
    subject = subjects()[number]
    return str(subject), reference(subject)


def make():
    """Make all of them, and write the file."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = dict(pool.map(made, range(len(subjects())), chunksize=20))
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_bytes(pickle.dumps(found))
    print(f"{FILE}: {len(found)} references, {FILE.stat().st_size / 1e6:.0f} MB")


@cache
def kept():
    """What the file holds; nothing without it."""
    return pickle.loads(FILE.read_bytes()) if FILE.exists() else {}


def reference_of(subject):
    """From the file, or made now."""
    return kept()[str(subject)] if str(subject) in kept() else reference(subject)


if __name__ == "__main__":
    make()
