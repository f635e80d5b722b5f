"""A rank of `test_ranks`: laws 1 and 3 for operators under random strategies, all ranks on one GPU.

`mpirun -n 2 python tests/gpu/ranks.py EXCHANGE [--fake]`: rank 0 prints `N models are right`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # a script's own folder is all that Python looks in

from taskflow import MachineModel
from taskflow.backend import make_backend
from taskflow.backend.fake import FakeStreams
from taskflow.comm import connect
from tests import laws
from tests.execute.gpu.test_streamed import feeds, network
from tests.ops.cases import CASES
from tests.ops.test_gpu import trained
from tests.strategies import Model, random_strategy

EVERY = 9  # of the cases


def models(is_fake):
    """Some layers, and operators from all over the list."""
    return [Model(network(), feeds()[0]), *([] if is_fake else map(trained, CASES[::EVERY]))]


def main(exchange, is_fake):
    machine = MachineModel.uniform(connect().size).with_rates(kind="cuda")
    chosen = models(is_fake)
    for seed, model in enumerate(chosen):
        strategy = random_strategy(model.graph, machine, seed)
        options = {"backend": FakeStreams(seed) if is_fake else make_backend(), "exchange": exchange, "record": False}
        laws.any_strategy_is_one_device(model, machine, strategy, 3, **options)
        laws.runs_are_the_same(model, machine, strategy, 2, **options)
    if connect().rank == 0:
        print(f"{len(chosen)} models are right")


if __name__ == "__main__":
    main(sys.argv[1], "--fake" in sys.argv)
