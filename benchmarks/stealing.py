"""Claimed items beside equal parts: seconds of a claim, and of ranks that there are not, by measured cells of a join.

    python benchmarks/stealing.py [--every 6]
    python benchmarks/stealing.py --hosts        as root: a claim from another host, of two network namespaces

Cells of the join of counties are measured one by one; on 2, 4, 8 and 32 ranks equal parts take what their busiest rank
does, claims what a list of the cells in their order takes, each given to the rank that is free first. The join itself
under ranks is `taskflow run -n 2 examples/applications/spatial_join.py`.
"""

from __future__ import annotations

import argparse
import subprocess
from functools import partial
from heapq import heapify, heapreplace
from time import perf_counter, sleep

import numpy as np

import ops
import taskflow
from examples.applications.spatial_join import counties, filtered
from taskflow.backend.claims import claim_next
from taskflow.comm.claims import answer_claims, distant_claims
from taskflow.comm.transport import connect


def seconds_of_a_claim(count: int = 200_000) -> float:
    """Called from Python, as `ctx.claim` does."""
    cells = np.zeros(1, np.int64)
    claim_next(cells, 0, 1, 1)
    start = perf_counter()
    while claim_next(cells, 0, 2, count) >= 0:
        pass
    return (perf_counter() - start) / count


def between_hosts(count: int = 2_000) -> None:
    """On both ranks: seconds of a claim of the host without the counter; the other sleeps, then has a product to do."""
    ranks = connect()
    claim, a = partial(claim_next, np.zeros(2, np.int64)), np.ones((1000, 1000))
    claim = distant_claims(ranks.gather(None if ranks.rank else answer_claims(claim, 2))[0])
    for number, what in enumerate(("sleeps", "multiplies")):
        messages = [ranks.receiver, ranks.sender][ranks.rank]([np.zeros(1)], 1 - ranks.rank, 0)
        messages.start() if not ranks.rank else None
        while not ranks.rank and not messages.is_over():
            sleep(1e-3) if what == "sleeps" else a @ a
        if ranks.rank:
            seconds = []
            while True:
                start = perf_counter()
                item = claim(number, 1, count)
                seconds.append(perf_counter() - start)
                if item < 0:
                    break
            messages.start()
            print(f"a claim of {len(set(ranks.hosts))} hosts, while rank 0 {what}: ", end="")
            print(f"median {np.median(seconds) * 1e6:.1f} us, mean {np.mean(seconds) * 1e6:.1f} us")
        messages.wait()


def predicted(seconds: np.ndarray, ranks: int) -> float:
    """What the simulator says of claims."""
    graph, machine = taskflow.Graph(), taskflow.MachineModel.uniform(ranks)
    out = [((), "float64")]
    (area,) = ops.claimed(print, [], len(seconds), out, seconds=seconds, name="join", graph=graph)
    graph.output("area", area)
    plan = {"join": taskflow.ParallelConfig({"r": ranks})}
    rows = taskflow.lower(graph, taskflow.Strategy(plan), machine)
    return taskflow.simulate(rows, taskflow.CostModel.analytic(machine)).seconds


def compare(seconds: np.ndarray, ranks: int) -> str:
    parts = [part.sum() for part in np.array_split(seconds, ranks)]
    free = [0.0] * ranks
    heapify(free)
    for one in seconds:
        heapreplace(free, free[0] + one)
    cap = max(parts) / seconds.sum() * ranks
    ratio = max(free) / predicted(seconds, ranks)
    return (
        f"{ranks} ranks: equal parts over claimed {max(parts) / max(free):.2f}, cap {cap:.2f}; "
        f"claimed over simulated {ratio:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=6, help="of the pairs, each so many-th")
    parser.add_argument("--hosts", action="store_true", help="claims between two hosts alone")
    options = parser.parse_args()
    if options.hosts and connect().size > 1:
        return between_hosts()
    if options.hosts:
        from hosts import two_hosts  # beside this file

        with two_hosts() as pair:
            subprocess.run(pair.command(2, __file__, "--hosts"), check=True)
        return
    print(f"a claim: {seconds_of_a_claim() * 1e9:.0f} ns")
    try:
        first, second = counties("gz_2010_us_050_00_500k"), counties("cb_2016_us_county_500k")
    except ModuleNotFoundError as error:
        print(f"stealing: {error.name} is not installed, no cells to measure")
        return
    join = filtered(first, second, 32, options.every)
    seconds = []
    for cell in range(len(join.cuts) - 1):
        join.spent = 0.0
        join.area(cell)
        seconds.append(join.spent)
    for ranks in (2, 4, 8, 32):
        print(compare(np.array(seconds), ranks))


if __name__ == "__main__":
    main()
