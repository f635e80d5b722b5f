"""8. Not a network: heat on a square plate, by finite differences, in the same graph.

The plate is a state region that keeps its value from step to step. The Laplacian reads one point beyond its tile on
every side, so a split over rows and columns exchanges halos; the update writes in place; the total is a reduction.
"""

import numpy as np

import taskflow
from taskflow import LogicalRegion, ParallelConfig, Window

N = 63  # points in a row; the edge of the plate, outside of them, has temperature 0
SPACING, RATE = 1 / (N + 1), 0.2  # RATE = diffusivity * time step / SPACING², stable below 1/4


def laplacian(u: LogicalRegion) -> LogicalRegion:
    def kernel(ctx, u, out):
        corner = [lo - 1 for lo in ctx.rect(1).lo]
        padded = ctx.scratch("padded", (out.shape[0] + 2, out.shape[1] + 2), u.dtype)
        padded.fill(0)
        padded[ctx.rect(0).slices(corner)] = u
        ctx.xp.multiply(padded[1:-1, 1:-1], -4, out=out)
        for neighbour in (padded[2:, 1:-1], padded[:-2, 1:-1], padded[1:-1, 2:], padded[1:-1, :-2]):
            out += neighbour

    windows = {"i": Window("h", size=3, padding=1), "j": Window("w", size=3, padding=1)}
    return u.graph.launch("laplacian", "i j -> h w", [u], kernel=kernel, windows=windows, flops=5)


def build() -> taskflow.Graph:
    graph = taskflow.Graph()
    u = graph.parameter("u", (N, N), dtype="float64", trainable=False)

    def diffuse(ctx, u, change):
        u += RATE * change

    def total(ctx, u, out):
        out[...] = u.sum() * SPACING**2

    graph.launch("diffuse", "h w, h w ->", [u, laplacian(u)], kernel=diffuse, writes=[u], flops=2)
    graph.output("heat", graph.launch("total", "h w -> .", [u], kernel=total))
    return graph


def main(steps: int = 200) -> None:
    graph, machine = build(), taskflow.MachineModel.local(devices=4)
    tiles = taskflow.Strategy({op.name: ParallelConfig({"h": 2, "w": 2}) for op in graph.operators})
    x = np.arange(1, N + 1) * SPACING
    start = np.outer(
        np.sin(np.pi * x), np.sin(np.pi * x)
    )  # an eigenvector: it keeps its form and decays
    with taskflow.Executor(taskflow.lower(graph, tiles, machine)) as step:
        step.write("u", start)
        heat = [float(step({})["heat"]) for _ in range(steps)]
        found = step.read("u")
    decay = 1 - 8 * RATE * np.sin(np.pi * SPACING / 2) ** 2
    np.testing.assert_allclose(found, start * decay**steps, atol=1e-12)
    print(
        f"heat {heat[0]:.6f} after 1 step, {heat[-1]:.6f} after {steps}; exact {heat[0] * decay ** (steps - 1):.6f}"
    )


if __name__ == "__main__":
    main()
