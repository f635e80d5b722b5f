"""A rank of `test_ranks`: laws 1 to 3 for operators under random strategies, all ranks on one GPU.

`mpirun -n 2 python tests/gpu/ranks.py EXCHANGE [--fake]`: rank 0 prints `N models are right`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # a script's own folder is all that Python looks in

from taskflow import MachineModel
from taskflow.backend import make_backend
from taskflow.comm.transport import connect
from tests import laws
from tests.execute.gpu.test_streamed import feeds, network
from tests.fake_gpu.streams import FakeStreams
from tests.ops.cases import CASES
from tests.ops.test_gpu import trained
from tests.strategies import Model, random_strategy

RUNS = [(1, "auto"), *((n, e) for n in (2, 4) for e in ("shared", "messages")), (2, "nccl")]  # ranks, transport
EVERY = 4  # of the operators is in one run; no more than there are runs of several ranks, which meet all of them


def operators(size, transport):
    """Cases from all over the list, others than in the run before."""
    return [trained(case) for case in CASES[RUNS.index((size, transport)) % EVERY :: EVERY]]


def main(transport, is_fake):
    size = connect().size
    machine = MachineModel.uniform(size).with_rates(kind="cuda")
    models = [Model(network(), feeds()[0]), *([] if is_fake else operators(size, transport))]
    for seed, model in enumerate(models):
        strategy = random_strategy(model.graph, machine, seed)
        options = {"backend": FakeStreams(seed) if is_fake else make_backend(), "transport": transport, "record": False}
        laws.any_strategy_is_one_device(model, machine, strategy, 3, **options)
        laws.any_order_is_the_same(model, machine, strategy, 1, seed, **options)
        laws.runs_are_the_same(model, machine, strategy, 2, **options)
    if connect().rank == 0:
        print(f"{len(models)} models are right")


if __name__ == "__main__":
    main(sys.argv[1], "--fake" in sys.argv)
