"""A rank on the stub: executors come and go, with memory that the ranks map of each other.

`mpirun -n 2 python tests/stub/ranks.py FOLDER`: rank 0 prints `N blocks, no faults`. The ranks drop what they hold in
other orders, as the cycle collector may.
"""

import gc
import os
import sys

os.environ["STUB_FOLDER"] = sys.argv[1]  # before the stub reads it

from taskflow import Executor, MachineModel, data_parallel, lower
from taskflow.backend.cuda.device import CudaStreams
from taskflow.comm.transport import connect
from tests.stub import stub
from tests.stub.ownership import perceptron

ROUNDS = 6


def main():
    ranks, model = connect(), perceptron()
    machine = MachineModel.uniform(ranks.size).with_rates(kind="cuda")
    rows, kept, blocks = lower(model.graph, data_parallel(model.graph, machine), machine), [], []
    gc.disable()
    for number in range(ROUNDS):
        step = Executor(rows, backend=CudaStreams(), record=False, transport="shared")
        for _ in range(3):
            step(model.feeds)
        step.close()
        kept.append(step)
        del step  # else the last one is kept by both
        if (number + ranks.rank) % 2:
            kept.clear()
            gc.collect()
        ranks.barrier()
        blocks.append(stub.count("blocks"))
    kept.clear()
    faults = [line for found in ranks.gather(stub.take_faults()) for line in found]
    if ranks.rank == 0:
        print(f"{blocks} blocks, {faults[:5] or 'no faults'}")


if __name__ == "__main__":
    main()
