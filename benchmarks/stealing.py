"""Claimed items beside equal parts: seconds of a claim, and of ranks that there are not, by measured cells of a join.

    python benchmarks/stealing.py [--every 6]

Cells of the join of counties are measured one by one; on 2, 4, 8 and 32 ranks equal parts take what their busiest rank
does, claims what a list of the cells in their order takes, each given to the rank that is free first. The join itself
under ranks is `taskflow run -n 2 examples/applications/spatial_join.py`.
"""

from __future__ import annotations

import argparse
from heapq import heapify, heapreplace
from time import perf_counter

import numpy as np

from examples.applications.spatial_join import counties, filtered
from taskflow.backend.claims import claim_next


def seconds_of_a_claim(count: int = 200_000) -> float:
    """Called from Python, as `ctx.claim` does."""
    cells = np.zeros(1, np.int64)
    claim_next(cells, 0, 1, 1)
    start = perf_counter()
    while claim_next(cells, 0, 2, count) >= 0:
        pass
    return (perf_counter() - start) / count


def compare(seconds: np.ndarray, ranks: int) -> str:
    parts = [part.sum() for part in np.array_split(seconds, ranks)]
    free = [0.0] * ranks
    heapify(free)
    for one in seconds:
        heapreplace(free, free[0] + one)
    cap = max(parts) / seconds.sum() * ranks
    return f"{ranks} ranks: equal parts over claimed {max(parts) / max(free):.2f}, cap {cap:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=6, help="of the pairs, each so many-th")
    options = parser.parse_args()
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
