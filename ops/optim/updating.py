"""What all optimizers do: differentiate, clip, count steps, and update each parameter in place.

An update is split as the operator that reads the parameter first, so each device updates the tile that it uses; named
in the strategy itself it is split on its own (sharded optimizer states). The learning rate is a state region of shape
(), which is written between steps by whoever trains, or in the step by a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ops.building import check_region
from ops.expressions.assign import assign_together
from ops.expressions.program import Program, program
from ops.optim.gradients import Gradients, beside, clip_by_global_norm, loss_scale, unscale
from ops.tables.rows import RowGradient, row_gradients, update_rows
from taskflow import Array, Context, Kernel, LogicalRegion, differentiate, update

Rate = float | Callable[[int], float]


class ByRow(Enum):
    """Whether a table is updated by the rows that a step looks up (see `ops.tables.rows`)."""

    NEVER = "the update moves what has no gradient, too"
    WHERE_FEWER = "there are fewer look-ups than rows; the result is the same"
    ALWAYS = "another algorithm"


@dataclass(frozen=True)
class Named:
    """A schedule that prints as its name, since ranks compare what they print: not as its address in memory."""

    schedule: Callable[[int], float]

    def __repr__(self) -> str:
        return str(getattr(self.schedule, "__qualname__", self.schedule))


def check_betas(kind: str, betas: tuple[float, float]) -> dict[str, float]:
    """Both by name; ValueError unless each is in [0, 1)."""
    if not all(0 <= b < 1 for b in betas):
        raise ValueError(f"{kind}: betas are {tuple(betas)}, each is in [0, 1)")
    return {"beta1": betas[0], "beta2": betas[1]}


@dataclass(frozen=True)
class Controls:
    """The scalars that steer updates: the learning rate and, where losses are scaled, whether to skip the step."""

    rate: LogicalRegion
    overflow: LogicalRegion | None = None

    def guard(
        self, steps: Program, scalars: Sequence[LogicalRegion] = (), outputs: int = 0
    ) -> tuple[Program, list[LogicalRegion]]:
        """A program that skips steps, if some are skipped, and its scalars; so many of its arguments are outputs."""
        if self.overflow is None:
            return steps, list(scalars)
        return steps.unless("skip", len(steps.arguments) - outputs), [*scalars, self.overflow]


@dataclass(frozen=True)
class UpdateRule:
    """What an optimizer of this kind descends along: the gradients of a loss, clipped, at a rate. See `descent`."""

    kind: str
    loss: LogicalRegion
    lr: Rate
    clip_norm: float | None

    def prepare(self) -> tuple[Gradients, Controls]:
        """The gradients of all parameters, clipped, in the order in which they are made; and what steers updates."""
        loss, graph = self.loss, self.loss.graph
        scale = loss_scale(loss)
        gradients = differentiate(loss, graph.parameters, scale)
        graph.output("loss", loss)
        made = {r.name: k for k, op in enumerate(graph.operators) for r in op.outputs}
        # an update need not wait for the all-reduce of a later gradient
        order, overflow = dict(sorted(gradients.items(), key=lambda pair: made[pair[1].name])), None
        if scale is not None and order:
            order, overflow = unscale(order, scale, loss)
        rate = _learning_rate(loss, self.lr)
        if self.clip_norm is not None and order:
            order = clip_by_global_norm(order, self.clip_norm, loss)
        return order, Controls(rate, overflow)

    def update_each(
        self,
        text: str,
        states: Mapping[str, str],
        numbers: Mapping[str, float],
        each_step: str = "",
        *,
        flops: float,
        init: float = 0.0,
        by_rows: ByRow = ByRow.NEVER,
    ) -> Gradients:
        """One operator per parameter, which updates it in place by a program (see `ops.expressions.program`).

        The program calls the parameter `p`, its gradient `g`, the learning rate `rate`, and the states, of first value
        `init`, by the keys of `states`. Tables may be updated `by_rows`.
        """
        gradients, controls = self.prepare()
        unguarded = program(text, " ".join(["p g", *states, "rate"]), numbers, each_step)
        steps, scalars = controls.guard(unguarded, [controls.rate])
        kernel, by_row = assign_together.bind(program=steps), self._by_row(gradients, by_rows)
        for p, g in gradients.items():
            kept, name = [state_of(p, state, init) for state in states.values()], f"{p.name}.{self.kind}"
            if p in by_row:
                update_rows(name, p, by_row[p], kept, scalars, steps, flops)
            else:
                inputs, writes = [p, g, *kept], [p, *kept]
                update(name, p, inputs, kernel=kernel, scalars=scalars, writes=writes, flops=flops)
        return by_parameter(gradients)

    def _by_row(self, gradients: Gradients, by_rows: ByRow) -> Mapping[LogicalRegion, RowGradient]:
        """The parameters that are updated by rows; a gradient that is clipped or scaled is none of look-ups alone."""
        found = row_gradients(self.loss.graph, gradients) if by_rows is not ByRow.NEVER else {}
        return {p: g for p, g in found.items() if by_rows is ByRow.ALWAYS or g.count < p.shape[0]}


def descent(kind: str, loss: LogicalRegion, lr: Rate, clip_norm: float | None, **rates: float) -> UpdateRule:
    """ValueError for a rate that is negative, or a norm that is not positive."""
    check_region(kind, loss, "loss")
    for key, value in (rates if callable(lr) else {"lr": lr, **rates}).items():
        if not value >= 0:
            raise ValueError(f"{kind}: {key} is {value}, it cannot be negative")
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"{kind}: clip_norm is {clip_norm}, it is positive")
    return UpdateRule(kind, loss, lr, clip_norm)


def _learning_rate(loss: LogicalRegion, lr: Rate) -> LogicalRegion:
    """The state `learning_rate`; with a schedule also `steps`, and the operator that advances both."""
    graph = loss.graph
    rate = graph.parameter("learning_rate", (), lr(0) if callable(lr) else lr, loss.dtype, trainable=False)
    if callable(lr):
        steps = graph.parameter("steps", (), 0.0, "int64", trainable=False)
        kernel = _advance.bind(schedule=Named(lr))
        with beside(loss):
            graph.launch("schedule", "., . ->", [rate, steps], kernel=kernel, writes=[rate, steps], flops=1)
    return rate


@Kernel
def _advance(ctx: Context, rate: Array, steps: Array, *, schedule: Named) -> None:
    rate[...] = schedule.schedule(int(steps))
    steps += 1


def by_parameter(gradients: Mapping[LogicalRegion, LogicalRegion]) -> Gradients:
    """In the order in which the parameters were made."""
    first = next(iter(gradients), None)
    return {p: gradients[p] for p in first.graph.parameters} if first else {}


def state_of(region: LogicalRegion, name: str, init: float = 0.0) -> LogicalRegion:
    """The state `<region>.<name>` of the region's shape."""
    return region.graph.parameter(f"{region.name}.{name}", region.shape, init, region.dtype, trainable=False)
