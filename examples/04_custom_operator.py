"""4. Operators of your own: one with a halo, one with a reduction.

An operator is a kernel and a pattern. The pattern says what may be split; tiles, halos and partial sums follow from it,
and with them its place in lowering, simulation, search and memory planning.
"""

import ops
import taskflow
from taskflow import LogicalRegion, Window
from taskflow.testing import check_operator


def smooth(x: LogicalRegion) -> LogicalRegion:
    """y[b, t] = (x[b, t-1] + 2 x[b, t] + x[b, t+1]) / 4 with zeros beyond the ends."""

    def kernel(ctx, x, y):
        # `j` reads one point more on both sides than the tile of `t`, but nothing beyond the region.
        first, last = ctx.rect(0).lo[1], ctx.rect(0).hi[1]
        lo, hi = ctx.interval("t")
        padded = ctx.scratch("padded", (y.shape[0], hi - lo + 2), y.dtype)
        padded.fill(0)
        padded[:, first - (lo - 1) : last - (lo - 1)] = x
        ctx.xp.multiply(padded[:, 1:-1], 2, out=y)
        y += padded[:, :-2]
        y += padded[:, 2:]
        y /= 4

    def backward(op, gy):
        return smooth(gy)  # the weights are symmetric

    windows = {"j": Window("t", size=3, padding=1)}
    return x.graph.launch(
        "smooth", "b j -> b t", [x], kernel=kernel, windows=windows, backward=backward
    )


def energy(x: LogicalRegion) -> LogicalRegion:
    """y[b] = sum over t of x[b, t]²: split over t, each task holds a partial sum."""

    def kernel(ctx, x, y):
        y[...] = (x * x).sum(axis=1)

    def backward(op, gy):
        return ops.multiply(ops.multiply(op.inputs[0], ops.reshape(gy, (x.shape[0], 1))), 2.0)

    return x.graph.launch("energy", "b t -> b", [x], kernel=kernel, backward=backward)


def build() -> tuple[taskflow.Graph, LogicalRegion]:
    graph = taskflow.Graph()
    return graph, energy(smooth(graph.input("x", (3, 7), "float64")))


if __name__ == "__main__":
    # Values, gradients against finite differences, and every split of every axis against the whole operator.
    for name, axis, degree in check_operator(build):
        print(f"{name} split along {axis} into {degree}: right")
