"""Topology optimisation: networks learn what finite elements say, and where their optima lie these are asked next.

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
HERD = 20  # designs that the genetic algorithm keeps, and that are born in a generation
FIRST, BATCH = 60, 10  # designs that are drawn before networks learn, and those of a loop
STEPS, RATE = 150, 3e-3  # of a loop: what networks learn, at a rate that falls to a tenth
APART = (0, 0.1, 0, 0.15, 0, 0.2, 0, 0.25)  # of each network: how far it looks from the best design
PATIENCE, WIDTH = (
    70,
    0.15,
)  # calls that gain less than 1 %, until designs so near to the best are left alone
PARENTS, CROWD, GENERATIONS = 16, 64, 30  # of the search that asks a network


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
        return modulus(cells.ravel())

    def compliance(self, design: Array) -> float:
        """The work of the load: what is to be least."""
        return float(self.load @ self.moved(design)[0])


def modulus(density: Array) -> Array:
    """Of material of such a density: `VOID` to one."""
    return VOID + (1 - VOID) * density**PENALTY


def feasible(designs: Array) -> Array:
    """The nearest designs (..., cells) of zero to one that fill `VOLUME`: cells moved alike, then cut; by bisection."""
    least, most = -designs.max(-1, keepdims=True), 1 - designs.min(-1, keepdims=True)
    for _ in range(14):
        moved = (least + most) / 2
        is_over = np.clip(designs + moved, 0, 1).mean(-1, keepdims=True) > VOLUME
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
    """Designs (..., count, cells) of pairs of parents (..., n, cells): cells of either, some of them moved."""
    *herds, n, _ = parents.shape
    pair = generator.integers(0, n, (2, *herds, count))[..., None]
    left, right = (np.take_along_axis(parents, one, -2) for one in pair)
    mixed = np.where(generator.random(left.shape) < 0.5, left, right)
    is_moved = generator.random(mixed.shape) < 0.15
    return feasible(mixed + is_moved * generator.normal(0, spread, mixed.shape))


def genetic(ask: Ask, cells: int, goal: float, most: int, seed: int) -> tuple[int, float]:
    """Calls of finite elements alone until a design is as good as `goal`, or `most`; the best then."""
    generator = np.random.default_rng(seed)
    designs = feasible(generator.random((2 * HERD, cells)))
    values = ask(designs)
    calls = len(values)
    while calls < most and values.min() > goal:
        designs = designs[np.argsort(values)[:HERD]]
        values = np.sort(values)[:HERD]
        born = children(designs, HERD, 0.25, generator)
        designs = np.concatenate([designs, born])
        values = np.concatenate([values, ask(born)])
        calls += HERD
    return calls, float(values.min())


def networks(cells: int, count: int, training: bool) -> Graph:
    """Scores `y` (networks, count, 1) of designs `x` by networks side by side, as experts are; they learn `t`."""
    graph, many = Graph(), len(APART)
    h = graph.input("x", (many, count, cells))
    for k in range(2):
        h = ops.expert_linear(h, 64, name=f"fc{k}", weight_init=fan_uniform, bias_init=0.0)
        h = ops.silu(h, name=f"silu{k}")
    y = ops.expert_linear(h, 1, name="fc2", weight_init=fan_uniform, bias_init=0.0)
    graph.output("y", y)
    if training:
        loss = ops.mean_squared_error(y, graph.input("t", (many, count, 1)))
        ops.adam(loss, lr=lambda done: RATE * (1 - 0.9 * (done % STEPS) / STEPS))
    return graph


def fan_uniform(shape: tuple[int, ...]) -> taskflow.Uniform:
    """Of a weight (networks, out, in): Glorot's and Bengio's for each network."""
    bound = (6 / sum(shape[1:])) ** 0.5
    return taskflow.Uniform(-bound, bound)


class Surrogate:
    """Networks that learn logarithms of compliances, and are asked for the least; all of it on one device."""

    def __init__(self, cells: int, machine: MachineModel, seed: int, opened: ExitStack) -> None:
        def executor(graph: Graph, **options: object) -> Executor:
            rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
            return opened.enter_context(Executor(rows, **options))

        self._generator = np.random.default_rng([seed, 1])
        self._left: list[Array] = []
        self._since = FIRST  # calls: so many were there when it began near another one
        self._learn = executor(networks(cells, 64, True), seed=seed)
        self._guess = executor(networks(cells, CROWD, False), share=self._learn)

    def ranked(self, designs: Array, values: Array) -> Array:
        """Numbers of designs, the best first and those last that are left alone; leaves a best that gains no more."""
        open_values = np.where(self._is_left(designs), np.inf, values)
        is_old = len(values) - self._since >= PATIENCE
        if is_old and open_values[:-PATIENCE].min() < 1.01 * open_values.min():
            self._left.append(designs[open_values.argmin()])
            self._since = len(values)
            open_values = np.where(self._is_left(designs), np.inf, values)
        return np.argsort(open_values)

    def _is_left(self, designs: Array) -> Array:
        near = [np.abs(designs - one).mean(-1) < WIDTH for one in self._left]
        return np.any(near, 0) if near else np.zeros(designs.shape[:-1], bool)

    def learn(self, designs: Array, values: Array, best: Array) -> None:
        """Each network has batches of its own; one half is of the hundred best designs: there it has to be right."""
        x, t = features(designs), np.log(values)
        t = ((t - t.mean()) / t.std()).astype(np.float32)
        for _ in range(STEPS):
            some = self._generator.integers(0, len(designs), (len(APART), 64))
            some[:, :32] = self._generator.choice(best[:100], (len(APART), 32))
            self._learn({"x": x[some], "t": t[some, None]})

    def proposed(self, ranked: Array) -> Array:
        """Optima of networks, and four that are disturbed: two have cells drawn anew, of two all cells are moved."""
        optima = self._optima(ranked[: CROWD - PARENTS])
        two, others = np.split(optima[::2][:4], 2)
        drawn = np.where(
            self._generator.random(two.shape) < 0.1, self._generator.random(two.shape), two
        )
        moved = others + self._generator.normal(0, 0.1, others.shape)
        return np.concatenate([optima[: BATCH - 4], feasible(np.concatenate([drawn, moved]))])

    def _optima(self, best: Array) -> Array:
        """Each network's, by generations from the best designs and random ones, on its scores alone."""
        random = feasible(self._generator.random((len(APART), PARENTS, best.shape[1])))
        crowd = np.concatenate([np.broadcast_to(best, (len(APART), *best.shape)), random], 1)
        for spread in np.linspace(0.25, 0.05, GENERATIONS):
            scores = self._guess({"x": features(crowd)})["y"][..., 0]
            is_near = np.abs(crowd - best[0]).mean(-1) < np.array(APART)[:, None]
            is_near |= self._is_left(crowd)
            order = np.argsort(np.where(is_near, np.inf, scores), 1)[:, :PARENTS, None]
            parents = np.take_along_axis(crowd, order, 1)
            born = children(parents, CROWD - PARENTS, spread, self._generator)
            crowd = np.concatenate([parents, born], 1)
        optima: Array = parents[:, 0]
        return optima


def features(designs: Array) -> Array:
    """What networks read of a cell: the logarithm of its stiffness, about -2.5 to 1."""
    return (1 + np.log(modulus(designs)) / 2).astype(np.float32)


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
            order = surrogate.ranked(designs, values)
            surrogate.learn(designs, values, order)
            new = surrogate.proposed(designs[order])
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
