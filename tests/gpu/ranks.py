"""A rank of `test_ranks`: laws 1 to 3 for operators under random strategies, all ranks on one GPU.

`mpirun -n 2 python tests/gpu/ranks.py EXCHANGE [--fake]`: rank 0 prints `N models are right`. Every rank says which
law of which model it begins. One that is not over in time ends all ranks, after every thread has said where it stands;
the row of a step in which a rank waits for others is told by the guards (`TASKFLOW_PATIENCE`).
"""

import faulthandler
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer, main_thread
from types import FrameType

sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # a script's own folder is all that Python looks in

from taskflow import MachineModel
from taskflow.backend import make_backend
from taskflow.comm.transport import connect
from tests import laws
from tests.execute.gpu.test_streamed import feeds, network
from tests.fake_gpu.streams import FakeStreams
from tests.ops.cases import CASES
from tests.ops.test_gpu import trained
from tests.strategies import Model, random_strategy

RUNS = [
    (1, "auto"),
    *((n, e) for n in (2, 4) for e in ("shared", "messages")),
    (2, "nccl"),
]  # ranks, transport
EVERY = 4  # of the operators is in one run; no more than there are runs of several ranks, which meet all of them
HELD = "row", "item", "task"
LONGEST_SECONDS = 60.0  # of a law of one model, its kernels compiled for the first time


def say(text: str) -> None:
    """A line that no other rank's line cuts."""
    os.write(2, f"{text}\n".encode())


@contextmanager
def in_time(where: str) -> Iterator[None]:
    """Say where this rank is, there and in what goes wrong; past `LONGEST_SECONDS` it ends, and so all ranks do."""
    say(where)
    watch = Timer(LONGEST_SECONDS, end, [where])
    watch.daemon = True
    watch.start()
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise
    finally:
        watch.cancel()


def rows_of(frame: FrameType | None) -> Iterator[str]:
    """What the functions of a thread have in hand, the innermost first: rows, and items that are issued for them."""
    while frame is not None:
        yield from (
            f"{frame.f_code.co_name}: {name} {frame.f_locals[name]}"
            for name in HELD
            if name in frame.f_locals
        )
        frame = frame.f_back


def end(where: str) -> None:
    """Say which row this rank is in and where every thread stands, and end it; mpirun ends the others."""
    say(f"{where}: not over after {LONGEST_SECONDS:g} s")
    faulthandler.dump_traceback(file=2)
    for row in rows_of(sys._current_frames()[main_thread().ident or 0]):
        say(row)
    os._exit(1)


def models_of(size: int, transport: str, is_fake: bool) -> dict[str, Model]:
    """Name -> a model; cases from all over the list, others than in the run before."""
    cases = [] if is_fake else CASES[RUNS.index((size, transport)) % EVERY :: EVERY]
    return {"network": Model(network(), feeds()[0]), **{str(case): trained(case) for case in cases}}


def main(transport: str, is_fake: bool) -> None:
    rank, size = connect().rank, connect().size
    machine = MachineModel.uniform(size).with_rates(kind="cuda")
    models = models_of(size, transport, is_fake)
    for seed, (name, model) in enumerate(models.items()):
        strategy = random_strategy(model.graph, machine, seed)
        options = {
            "backend": FakeStreams(seed) if is_fake else make_backend(),
            "transport": transport,
            "record": False,
        }
        where = f"rank {rank} of {size} by '{transport}', model {seed + 1} of {len(models)}, {name}"
        with in_time(f"{where}: law 1, any strategy"):
            laws.any_strategy_is_one_device(model, machine, strategy, 3, **options)
        with in_time(f"{where}: law 2, any order"):
            laws.any_order_is_the_same(model, machine, strategy, 1, seed, **options)
        with in_time(f"{where}: law 3, again"):
            laws.runs_are_the_same(model, machine, strategy, 2, **options)
    if rank == 0:
        print(f"{len(models)} models are right")


if __name__ == "__main__":
    main(sys.argv[1], "--fake" in sys.argv)
