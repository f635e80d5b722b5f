"""A small CNN on a GPU of NumPy where a library and an own kernel do the same: `choices.py costs faster`.

It measures both ways by a clock that is made: on rank 0 the `faster` one takes half of the time, on every other rank
the other one. Two steps follow, and each rank prints what it found faster, what it took and which bits came out.
"""

import argparse
import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import ops
import taskflow
from taskflow import CostModel, Executor, Graph, MachineModel, lower
from taskflow.backend.choices import LIBRARY, OWN, Choices
from taskflow.checkpoint import save
from taskflow.comm.transport import connect
from tests.fake_cudnn import CudnnStreams
from tests.strategies import feeds_of


class Timed(CudnnStreams):
    """By its clock one way takes twice as long as the other; `shows`: the name of the GPU."""

    def __init__(self, faster, shows="fake GPU"):
        super().__init__()
        self.faster, self.shows = faster, shows

    def name(self, device):
        return self.shows

    def seconds_between(self, first, second):
        now = OWN if self.choices.seconds else LIBRARY
        return 1e-3 if now == self.faster else 2e-3


def rows_of(ranks):
    """The graph, and its rows on so many GPUs."""
    graph = Graph()
    x, t = graph.input("x", (4, 3, 6, 6)), graph.input("t", (4,), "int32")
    h = ops.relu(ops.conv2d(x, 5, 3, padding=1, name="conv"))
    ops.sgd(ops.softmax_cross_entropy(ops.linear(ops.flatten(h), 3), t, name="loss"), lr=0.1)
    machine = MachineModel.uniform(ranks).with_rates(kind="cuda")
    return graph, lower(graph, taskflow.data_parallel(graph, machine), machine)


def run(ranks, backend, costs=None, folder=None):
    """The parameters after two steps, as bytes, and the digest of the choices."""
    graph, rows = rows_of(ranks)
    with Executor(rows, backend=backend, costs=costs, record=False, allow_nan=True) as step:
        for _ in range(2):
            step(feeds_of(graph))
        if folder:
            save(step, folder)
        return [step.read(name).tobytes() for name in step.persistent], step.choices.digest


def measured(ranks, backend, cache):
    """Costs with both ways of all that has two."""
    costs = CostModel.measured(rows_of(ranks)[1].machine, cache, backend)
    costs.seconds(rows_of(ranks)[1])
    return costs


def main():
    """Measure, run, and print a line a rank: `rank faster taken bits`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("costs", help="a file for each rank: its number is added")
    parser.add_argument("faster", choices=(LIBRARY, OWN))
    options, transport = parser.parse_args(), connect()
    ways = [options.faster, LIBRARY if options.faster == OWN else OWN]
    backend = Timed(ways[transport.rank % 2])
    costs = measured(transport.size, backend, f"{options.costs}{transport.rank}.json")
    keys = costs.choices(backend.shows).seconds
    faster = {costs.choices(backend.shows).way(key) for key in keys}
    bits, digest = run(transport.size, backend, costs)
    taken = [way for way in ways if digest == Choices({key: {way: 1.0} for key in keys}).digest]
    told = hashlib.blake2b(b"".join(bits), digest_size=8).hexdigest()
    lines = transport.gather(" ".join((str(transport.rank), *sorted(faster), *taken, told)))
    if transport.rank == 0:
        print(*lines, sep="\n")


if __name__ == "__main__":
    main()
