"""Topology optimisation: a network learns what finite elements say, and where its optimum lies they are asked next.

    python -m examples.applications.topology --seeds 3
    python -m examples.applications.topology --size 11 --calls 2000
    taskflow run -n 2 -m examples.applications.topology

docs/applications/topology.md says what the paper claims, what is shown here and what is not.
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from time import process_time

import numpy as np
from scipy.linalg import solveh_banded

import ops
import taskflow
from taskflow import Executor, Graph, MachineModel

Array = np.ndarray
VOLUME = 0.5  # of the plate that material may fill
PENALTY, VOID = 3, 1e-3  # of SIMP (Bendsøe, 1989): stiffness is VOID + (1 - VOID) density^PENALTY
POISSON = 0.3
FIRST, BATCH = 100, 20  # designs that are drawn before the network learns, and those of a loop
STEPS = 350  # that the network learns in a loop
PARENTS, CROWD, GENERATIONS = 128, 512, 60  # of the search that asks the network


# -- finite elements ---------------------------------------------------------------------------------------------------


def element_stiffness() -> Array:
    """(8, 8) of a square of four nodes under plane stress, its corners counter-clockwise (Sigmund, 2001)."""
    v = POISSON
    k = np.array(
        [12 - 4 * v, 3 + 3 * v, -6 - 2 * v, 9 * v - 3, 2 * v - 6, -3 - 3 * v, 4 * v, 3 - 9 * v]
    )
    rows = [
        "01234567",
        "10765432",
        "27056341",
        "36507214",
        "45670123",
        "54321076",
        "63412705",
        "72143650",
    ]
    return k[np.array([[int(c) for c in row] for row in rows])] / (24 * (1 - v**2))


@dataclass(frozen=True)
class Cantilever:
    """A square plate, clamped at the left, pulled down in the middle of the right edge.

    A design is the density of `size` x `size` cells; a cell is `fine` x `fine` elements. Nodes are numbered column by
    column, so that stiffness is a matrix with a narrow band, and the clamped ones come first.
    """

    size: int = 5
    fine: int = 4
    stiffness: Array = field(default_factory=element_stiffness)

    @cached_property
    def side(self) -> int:
        """Elements of an edge."""
        return self.size * self.fine

    @cached_property
    def freedoms(self) -> Array:
        """(elements, 8): numbers of what moves, negative where it is clamped."""
        column, row = np.divmod(np.arange(self.side**2), self.side)
        left = (self.side + 1) * (column - 1) + row
        right = left + self.side + 1
        nodes = np.stack([left + 1, right + 1, right, left], 1)
        return (2 * nodes[:, :, None] + np.arange(2)).reshape(-1, 8)

    @cached_property
    def load(self) -> Array:
        """One unit, down."""
        load = np.zeros(2 * self.side * (self.side + 1))
        load[2 * ((self.side + 1) * (self.side - 1) + self.side // 2) + 1] = -1
        return load

    @cached_property
    def band(self) -> tuple[Array, Array, Array]:
        """Of all entries in the lower half of all elements: which element, which entry, and where in the band."""
        column, row = self.freedoms[:, None, :], self.freedoms[:, :, None]
        element, i, j = np.nonzero((row >= column) & (column >= 0))
        column, row = self.freedoms[element, j], self.freedoms[element, i]
        return element, 8 * i + j, (row - column) * len(self.load) + column

    def moved(self, design: Array) -> tuple[Array, Array]:
        """Displacements (freedoms), and the energy (elements) of elements of density one moved so."""
        element, entry, place = self.band
        values = self.stiffness.ravel()[entry] * self.moduli(design)[element]
        width = 2 * self.side + 6
        band = np.bincount(place, values, width * len(self.load)).reshape(width, -1)
        u = solveh_banded(band, self.load, lower=True, check_finite=False)
        of_elements = np.where(self.freedoms >= 0, u[self.freedoms], 0)
        return u, np.einsum("ei,ij,ej->e", of_elements, self.stiffness, of_elements)

    def moduli(self, design: Array) -> Array:
        """(elements,): their stiffness."""
        cells = design.reshape(self.size, self.size).repeat(self.fine, 0).repeat(self.fine, 1)
        return VOID + (1 - VOID) * cells.ravel() ** PENALTY

    def compliance(self, design: Array) -> float:
        """The work of the load: what is to be least."""
        return float(self.load @ self.moved(design)[0])


def feasible(designs: Array) -> Array:
    """The nearest designs from zero to one that fill `VOLUME`: all cells moved alike, then cut; by bisection."""
    least, most = -designs.max(1, keepdims=True), 1 - designs.min(1, keepdims=True)
    for _ in range(14):
        moved = (least + most) / 2
        is_over = np.clip(designs + moved, 0, 1).mean(1, keepdims=True) > VOLUME
        least, most = np.where(is_over, least, moved), np.where(is_over, moved, most)
    return np.clip(designs + least, 0, 1)


def gradient_method(plate: Cantilever, steps: int = 60) -> float:
    """The compliance that optimality criteria of SIMP reach, which is told gradients (Sigmund, 2001)."""
    design = np.full(plate.size**2, VOLUME)
    for _ in range(steps):
        energy = plate.moved(design)[1].reshape(plate.size, plate.fine, plate.size, plate.fine)
        worth = design ** (PENALTY - 1) * energy.sum((1, 3)).ravel()
        least, most = np.maximum(design - 0.2, 0), np.minimum(design + 0.2, 1)
        low, high = 1e-9, 1e9
        while high > (1 + 1e-6) * low:
            multiplier = np.sqrt(low * high)
            changed = np.clip(design * np.sqrt(worth / multiplier), least, most)
            low, high = (multiplier, high) if changed.mean() > VOLUME else (low, multiplier)
        design = changed
    return plate.compliance(design)


def elements(plate: Cantilever) -> Graph:
    """Compliances `c` of `BATCH` designs `x`; each is computed by one device."""

    def kernel(ctx, x, c):
        c[...] = [plate.compliance(design) for design in x]

    graph, width = Graph(), 2 * plate.side + 6
    x = graph.input("x", (BATCH, plate.size**2), "float64")
    flops = len(plate.load) * width**2 / plate.size**2  # of Cholesky's, for each number of a design
    graph.output("c", graph.launch("elements", "b ^d -> b", [x], kernel=kernel, flops=flops))
    return graph


# -- the optimisers ----------------------------------------------------------------------------------------------------

Ask = Callable[[Array], Array]  # designs (n * BATCH, cells) -> compliances


def asked(step: Executor) -> Ask:
    """The executor of `elements`, batch by batch."""

    def ask(designs: Array) -> Array:
        batches = np.split(designs, len(designs) // BATCH)
        return np.concatenate([step({"x": x})["c"] for x in batches])

    return ask


def children(parents: Array, count: int, spread: float, generator: np.random.Generator) -> Array:
    """Designs of pairs of parents: cells of either, some of them moved."""
    pair = parents[generator.integers(0, len(parents), (2, count))]
    mixed = np.where(generator.random(pair.shape[1:]) < 0.5, *pair)
    is_moved = generator.random(mixed.shape) < 0.15
    return feasible(mixed + is_moved * generator.normal(0, spread, mixed.shape))


def genetic(ask: Ask, cells: int, goal: float, most: int, seed: int) -> tuple[int, float]:
    """Calls of finite elements alone until a design is as good as `goal`, or `most`; the best then."""
    generator = np.random.default_rng(seed)
    designs = feasible(generator.random((2 * BATCH, cells)))
    values = ask(designs)
    calls = len(values)
    while calls < most and values.min() > goal:
        designs = designs[np.argsort(values)[:BATCH]]
        values = np.sort(values)[:BATCH]
        born = children(designs, BATCH, 0.25, generator)
        designs = np.concatenate([designs, born])
        values = np.concatenate([values, ask(born)])
        calls += BATCH
    return calls, float(values.min())


def network(cells: int, count: int, training: bool) -> Graph:
    """Scores `y` of designs `x`, (count, 1); it learns `t`."""
    graph = Graph()
    h = graph.input("x", (count, cells))
    for k, width in enumerate((128, 128, 64)):
        h = ops.leaky_relu(ops.linear(h, width, name=f"fc{k}"), 0.1, name=f"leaky{k}")
    y = graph.output("y", ops.linear(h, 1, name="fc3"))
    if training:
        ops.adam(ops.mean_squared_error(y, graph.input("t", (count, 1))), lr=1e-3)
    return graph


class Surrogate:
    """A network that learns logarithms of compliances, and is asked for the least; all of it on one device."""

    def __init__(self, cells: int, machine: MachineModel, seed: int, opened: ExitStack) -> None:
        def executor(graph: Graph, **options: object) -> Executor:
            rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
            return opened.enter_context(Executor(rows, **options))

        self._generator = np.random.default_rng([seed, 1])
        self._learn = executor(network(cells, 64, True), seed=seed)
        self._guess = executor(network(cells, CROWD, False), share=self._learn)

    def learn(self, designs: Array, values: Array) -> None:
        """Of every batch one half is of the best designs: there it has to be right."""
        best = np.argsort(values)[:FIRST]
        t = np.log(values)
        t = ((t - t.mean()) / t.std()).astype(np.float32)
        for _ in range(STEPS):
            some = self._generator.integers(0, len(designs), 64)
            some[:32] = self._generator.choice(best, 32)
            self._learn({"x": designs[some].astype(np.float32), "t": t[some, None]})

    def proposed(self, designs: Array, values: Array) -> Array:
        """Half a batch near its optimum, half the likeliest of many children of the best designs."""
        generator, best = self._generator, designs[np.argsort(values)[: CROWD // 8]]
        optimum = self._optimum(best)
        noise = generator.normal(0, 0.1, (BATCH // 4, len(optimum)))
        random = generator.random((BATCH // 4 - 1, len(optimum)))
        is_drawn = generator.random(random.shape) < 0.1
        near = np.stack([optimum, *(optimum + noise), *np.where(is_drawn, random, optimum)])
        born = children(best[:BATCH], CROWD, 0.1, generator)
        return np.concatenate([feasible(near), self._sorted(born)[: BATCH // 2]])

    def _optimum(self, best: Array) -> Array:
        """By generations from the best designs and random ones, on scores alone."""
        random = self._generator.random((CROWD - len(best), best.shape[1]))
        crowd = np.concatenate([best, feasible(random)])
        for spread in np.linspace(0.25, 0.05, GENERATIONS):
            parents = self._sorted(crowd)[:PARENTS]
            born = children(parents, CROWD - PARENTS, spread, self._generator)
            crowd = np.concatenate([parents, born])
        return parents[0]

    def _sorted(self, crowd: Array) -> Array:
        """Designs, that of the least score first."""
        return crowd[np.argsort(self._guess({"x": crowd.astype(np.float32)})["y"][:, 0])]


def solo(
    plate: Cantilever, ask: Ask, calls: int, machine: MachineModel, seed: int
) -> tuple[Array, Array]:
    """All designs that finite elements were asked for, and their compliances, in order."""
    cells = plate.size**2
    designs = feasible(np.random.default_rng(seed).random((FIRST, cells)))
    values = ask(designs)
    with ExitStack() as opened:
        surrogate = Surrogate(cells, machine, seed, opened)
        while len(values) < calls:
            surrogate.learn(designs, values)
            new = surrogate.proposed(designs, values)
            designs = np.concatenate([designs, new])
            values = np.concatenate([values, ask(new)])
    return designs, values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=5, help="cells of an edge")
    parser.add_argument("--calls", type=int, default=500, help="of finite elements")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--most", type=int, default=4000, help="calls of the genetic algorithm")
    options = parser.parse_args()
    plate, machine = Cantilever(options.size), MachineModel.local()
    reference = gradient_method(plate)
    print(f"gradient method: {reference:.4f}")
    graph = elements(plate)
    rows = taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
    with Executor(rows) as step:
        ask = asked(step)
        for seed in range(options.seeds):
            start = process_time()
            _, values = solo(plate, ask, options.calls, machine, seed)
            seconds = process_time() - start
            calls, best = genetic(ask, plate.size**2, values.min(), options.most, seed)
            own = int(values.argmin()) + 1
            print(
                f"seed {seed}: {values.min() / reference:.3f} of the gradient method by call {own} of {len(values)}, "
                f"{seconds:.1f} s; the genetic algorithm: {best / reference:.3f} by call {calls}"
            )


if __name__ == "__main__":
    main()
