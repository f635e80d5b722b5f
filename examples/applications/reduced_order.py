"""Reduced order: an autoencoder finds what few numbers a wave is, a network learns how these go on.

    python -m examples.applications.reduced_order
    taskflow run -n 2 -m examples.applications.reduced_order --strategy model_parallel

docs/applications/reduced_order.md says what the paper claims, what is shown here and what is not.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import NamedTuple

import numpy as np

import ops
import taskflow
from taskflow import Executor, Graph, LogicalRegion, MachineModel, Strategy, TaskGraph, Window

Array = np.ndarray
POINTS, SPACING = 256, 100 / 255
STATES, STEPS, SECONDS = 100, 7, 0.05  # states that are kept, steps from one to the next, of a step
SHOWN, UNSEEN = np.linspace(4.25, 5.5, 8), 4.9  # what flows in: to learn from, and to be tried with
LATENT = 4
BATCH = 64
Rule = Callable[[Graph, MachineModel], Strategy]


@dataclass(frozen=True)
class Tools:
    """With what networks are trained: steps, a seed, and how they are split."""

    machine: MachineModel
    rule: Rule = taskflow.data_parallel
    steps: int = 3000
    seed: int = 0

    def split(self, graph: Graph) -> TaskGraph:
        """Rows by the rule."""
        return taskflow.lower(graph, self.rule(graph, self.machine), self.machine)

    def rows(self, graph: Graph, repeat: int = 1) -> TaskGraph:
        """Rows of what is small: on one device."""
        strategy = taskflow.single_device(graph, self.machine)
        return taskflow.lower(graph, strategy, self.machine, repeat=repeat)


def relative(found: Array, true: Array) -> float:
    """The size of the difference over that of the truth."""
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


# -- the full model ----------------------------------------------------------------------------------------------------


def burgers(inflows: Array) -> Graph:
    """A step of an inviscid wave (Lee and Carlberg, 2020): u_t + u u_x = 0.02 exp(0.02 x), upwind; fetched: `next`.

    The state `u` (inflows, points) persists. A tile reads one point left of it; the first point is what flows in.
    """

    def upwind(ctx, u, source, inflow, out):
        begin = ctx.rect(3).lo[1]
        flux = u * u / 2
        if begin == 0:
            flux = np.concatenate([flux[:, :1], flux], axis=1)
        out[...] = u[:, -out.shape[1] :] + SECONDS * (source - np.diff(flux) / SPACING)
        if begin == 0:
            out[:, 0] = inflow

    def keep(ctx, u, new):
        u[...] = new

    graph = Graph()
    u = graph.parameter("u", (len(inflows), POINTS), dtype="float64", trainable=False)
    x = SPACING * np.arange(POINTS)
    source = graph.constant("source", 0.02 * np.exp(0.02 * x))
    inflow = graph.constant("inflow", inflows)
    window = {"i": Window("x", size=2, padding=1)}
    inputs = [u, source, inflow]
    new = graph.launch("upwind", "b i, x, b -> b x", inputs, kernel=upwind, windows=window, flops=6)
    graph.launch("keep", "b x, b x ->", [u, new], kernel=keep, writes=[u])
    graph.output("next", new)
    return graph


def waves(
    inflows: Array,
    machine: MachineModel,
    rule: Rule,
) -> Array:
    """(inflows, STATES + 1, POINTS): from a wave that is one everywhere."""
    graph = burgers(inflows)
    rows = taskflow.lower(graph, rule(graph, machine), machine, repeat=STEPS)
    states = [np.ones((len(inflows), POINTS))]
    with Executor(rows) as step:
        step.write("u", states[0])
        states += [step({})["next"][-1] for _ in range(STATES)]
    return np.stack(states, 1)


# -- few numbers -------------------------------------------------------------------------------------------------------


def encoded(x: LogicalRegion) -> LogicalRegion:
    """Waves (n, 1, POINTS) as numbers (n, LATENT)."""
    for k, (channels, stride) in enumerate(((8, 2), (16, 4), (32, 4))):
        size = 7 if k == 0 else 9
        x = ops.conv1d(x, channels, size, stride=stride, padding=size // 2, name=f"encode{k}")
        x = ops.elu(x, name=f"encode{k}.elu")
    return ops.linear(ops.flatten(x, name="flat"), LATENT, name="latent")


def decoded(z: LogicalRegion) -> LogicalRegion:
    """Numbers as waves."""
    h = ops.elu(ops.linear(z, 32 * 8, name="decode"), name="decode.elu")
    h = ops.reshape(h, (z.shape[0], 32, 8), name="decode.grid")
    for k, (channels, stride) in enumerate(((16, 4), (8, 4), (1, 2))):
        size, padding = 2 * stride if stride > 2 else 4, stride // 2
        h = ops.conv_transpose1d(
            h, channels, size, stride=stride, padding=padding, name=f"decode{k}"
        )
        h = ops.elu(h, name=f"decode{k}.elu") if k < 2 else h
    return h


def autoencoder(batch: int, steps: int) -> Graph:
    """It learns waves `x` from themselves; the rate falls to nothing over `steps`."""
    graph = Graph()
    x = graph.input("x", (batch, 1, POINTS))
    loss = ops.mean_squared_error(decoded(encoded(x)), x)
    ops.adam(loss, lr=taskflow.rates.cosine(3e-3, steps))
    return graph


def half(
    batch: int, part: Callable[[LogicalRegion], LogicalRegion], shape: tuple[int, ...]
) -> Graph:
    """The encoder or the decoder of so many waves: `in` -> `out`."""
    graph = Graph()
    graph.output("out", part(graph.input("in", (batch, *shape))))
    return graph


def modes(waves: Array, unseen: Array, count: int) -> Array:
    """The nearest to unseen waves that so many modes of proper orthogonal decomposition are."""
    flat = waves.reshape(-1, POINTS)
    mean = flat.mean(0)
    basis = np.linalg.svd(flat - mean, full_matrices=False)[2][:count]
    return (unseen - mean) @ basis.T @ basis + mean


# -- how they go on ----------------------------------------------------------------------------------------------------


def change(z: LogicalRegion, inflow: LogicalRegion) -> LogicalRegion:
    """What is added to the numbers of a state, in units of its size, given what flows in, (n, 1)."""
    h = ops.concat([z, inflow], 1, name="both")
    for k in range(2):
        h = ops.tanh(ops.linear(h, 64, name=f"step{k}"), name=f"step{k}.tanh")
    return ops.linear(h, LATENT, name="step2")


def learner(batch: int, steps: int) -> Graph:
    """It learns `t` from `z` and `inflow`."""
    graph = Graph()
    y = change(graph.input("z", (batch, LATENT)), graph.input("inflow", (batch, 1)))
    loss = ops.mean_squared_error(y, graph.input("t", (batch, LATENT)))
    ops.adam(loss, lr=taskflow.rates.cosine(3e-3, steps))
    return graph


def roll_out() -> Graph:
    """A step that takes the state `z` on; `inflow` and the size of changes stay. With `repeat=` it is many."""

    def keep(ctx, z, new):
        z[...] = new

    graph = Graph()
    z = graph.parameter("z", (1, LATENT), trainable=False)
    y = change(z, graph.parameter("inflow", (1, 1), trainable=False))
    size = graph.parameter("size", (LATENT,), trainable=False)
    new = ops.add(z, ops.multiply(y, size, name="sized"), name="next")
    graph.launch("keep", "n r, n r ->", [z, new], kernel=keep, writes=[z])
    graph.output("next", new)
    return graph


def terms(z: Array, inflow: Array) -> Array:
    """All products of two of these numbers and one."""
    both = np.concatenate([np.ones((len(z), 1)), z, inflow], 1)
    first, second = np.triu_indices(both.shape[1])
    return both[:, first] * both[:, second]


def by_polynomial(operator: Array, first: Array, inflow: Array) -> Array:
    """Paths (n, STATES + 1, LATENT) from first states (n, LATENT); what overflows is as far off as can be."""
    path = [first.astype(np.float64)]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(STATES):
            path.append(path[-1] + terms(path[-1], inflow) @ operator)
    return np.nan_to_num(np.stack(path, 1), nan=1e9, posinf=1e9, neginf=-1e9).clip(-1e9, 1e9)


def quadratic(z: Array, inflow: Array) -> Array:
    """Operator inference: the change of numbers as a polynomial of the second degree, by regularised least squares.

    Of several weights of the regularisation the one whose paths are nearest to those shown (McQuarrie et al., 2021).
    `z`: (waves, STATES + 1, LATENT), `inflow`: (waves, 1).
    """
    change = np.diff(z, axis=1).reshape(-1, LATENT)
    of_states = terms(z[:, :-1].reshape(-1, LATENT), np.repeat(inflow, STATES, 0))
    square, count = of_states.T @ of_states, of_states.shape[1]

    def off(operator: Array) -> float:
        return relative(by_polynomial(operator, z[:, 0], inflow), z)

    weights = np.logspace(-8, 2, 11)
    operators = [
        np.linalg.solve(square + weight * np.eye(count), of_states.T @ change) for weight in weights
    ]
    return min(operators, key=off)


def by_network(z: Array, inflow: Array, tools: Tools) -> Array:
    """Path (1, STATES + 1, LATENT) from the first state of the last wave, of a network that learns from all others."""
    generator = np.random.default_rng(tools.seed)
    before, changes = z[:-1, :-1].reshape(-1, LATENT), np.diff(z[:-1], axis=1).reshape(-1, LATENT)
    size, of_states = changes.std(0), np.repeat(inflow[:-1], STATES, 0)
    begin = {"z": z[-1, :1], "inflow": inflow[-1:], "size": size}
    with (
        Executor(tools.split(learner(BATCH, tools.steps)), seed=tools.seed) as learn,
        Executor(tools.rows(roll_out(), repeat=STATES)) as roll,
    ):
        for _ in range(tools.steps):
            some = generator.integers(0, len(before), BATCH)
            learn({"z": before[some], "inflow": of_states[some], "t": changes[some] / size})
        begin |= {region.name: learn.read(region.name) for region in roll_out().parameters}
        for name, values in begin.items():
            roll.write(name, values)
        return np.concatenate([z[-1:, :1], roll({})["next"].swapaxes(0, 1)], axis=1)


# -- all of it ---------------------------------------------------------------------------------------------------------


class Errors(NamedTuple):
    """Relative errors at an inflow that was not shown."""

    modes: float
    autoencoder: float
    quadratic: float
    network: float


def errors_of(tools: Tools) -> Errors:
    """Train both networks, and try them."""
    inflows = np.append(SHOWN, UNSEEN)
    every = waves(inflows, tools.machine, tools.rule)
    least, most = every[:-1].min(), every[:-1].max()
    every = ((every - least) / (most - least)).astype(np.float32)
    images, unseen = every[:-1].reshape(-1, 1, POINTS), every[-1]
    inflow = ((inflows[:, None] - SHOWN.mean()) / np.ptp(SHOWN)).astype(np.float32)
    generator, count = np.random.default_rng(tools.seed), STATES + 1
    encoder, decoder = half(count, encoded, (1, POINTS)), half(count, decoded, (LATENT,))
    with (
        Executor(tools.split(autoencoder(BATCH, tools.steps)), seed=tools.seed) as learn,
        Executor(tools.rows(encoder), share=learn) as encode,
        Executor(tools.rows(decoder), share=learn) as decode,
    ):
        for _ in range(tools.steps):
            learn({"x": images[generator.integers(0, len(images), BATCH)]})
        z = np.stack([encode({"in": wave[:, None]})["out"] for wave in every])
        size = z[:-1].std((0, 1))
        operator = quadratic((z / size)[:-1].astype(np.float64), inflow[:-1])
        paths = (
            z[-1:] / size,
            by_polynomial(operator, z[-1:, 0] / size, inflow[-1:]).astype(np.float32),
            by_network(z / size, inflow, tools),
        )
        restored = [decode({"in": path[0] * size})["out"][:, 0] for path in paths]
    by_modes = modes(every[:-1], unseen, LATENT)
    return Errors(*(relative(wave, unseen) for wave in (by_modes, *restored)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=3000, help="of training, of each network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strategy", default="data_parallel", help="a rule of taskflow")
    options = parser.parse_args()
    start = process_time()
    rule = getattr(taskflow, options.strategy)
    errors = errors_of(Tools(MachineModel.local(), rule, options.steps, options.seed))
    print(
        f"an unseen inflow, {LATENT} numbers a state, relative errors ({process_time() - start:.0f} s):"
    )
    print(
        f"  the states themselves: {errors.modes:.4f} by modes, {errors.autoencoder:.4f} by the autoencoder"
    )
    print(
        f"  rolled out from the first: {errors.quadratic:.4f} by a polynomial, {errors.network:.4f} by the network"
    )


if __name__ == "__main__":
    main()
