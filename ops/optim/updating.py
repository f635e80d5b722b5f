"""What all optimizers do: differentiate, clip, count steps, and update each parameter in place.

An update is split as the operator that reads the parameter first, so each device updates the tile that it uses; named
in the strategy itself it is split on its own (sharded optimizer states). The learning rate is a state region of shape
(), which is written between steps by whoever trains, or in the step by a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from numbers import Real

from ops.building import check_region
from ops.expressions.assign import assign_together
from ops.expressions.program import Program, program
from ops.optim.gradients import Gradients, beside, clip_by_global_norm, loss_scale, unscale
from ops.optim.groups import (
    ParameterGroup,
    Rate,
    Scope,
    check_learning_rate,
    check_number,
    gradients_at_loss,
)
from ops.tables.rows import RowGradient, row_gradients, set_makers_aside, update_rows
from taskflow import Array, Context, Graph, Kernel, LogicalRegion, collect_rarely, update


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
    """Both by name; ValueError unless they are two, each in [0, 1)."""
    both = tuple(betas) if isinstance(betas, Iterable) else (betas,)
    if len(both) != 2 or not all(
        isinstance(b, Real) and not isinstance(b, bool) and 0 <= b < 1 for b in both
    ):
        raise ValueError(f"{kind}: betas are {both}, two numbers in [0, 1) are needed")
    return {"beta1": float(betas[0]), "beta2": float(betas[1])}


@dataclass(frozen=True)
class Controls:
    """The scalars that steer updates: learning rates and, where losses are scaled, whether to skip the step."""

    rates: Mapping[LogicalRegion, LogicalRegion]  # of every parameter
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
    scope: Scope

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ParameterGroup]]:
        """Parameter -> its group, and the name of that; see `Scope.group_of_each`."""
        return self.scope.group_of_each(self.kind, self.loss.graph.parameters)

    def prepare(self) -> tuple[Gradients, Controls]:
        """The gradients of its parameters, clipped, in the order in which they are made; and what steers updates."""
        loss = self.loss
        scope = self.scope
        if scope.state("learning_rate") in loss.graph.regions:
            raise ValueError(
                f"{self.kind}: the graph has an optimizer called '{scope.name}': name= is another one's"
            )
        parameters = scope.chosen(self.kind, loss.graph)
        scale = loss_scale(loss)
        gradients = gradients_at_loss(loss, parameters, scale)
        loss.graph.output(scope.state("loss"), loss)
        gradients = _as_made(loss.graph, gradients)
        overflow = None
        if scale is not None and gradients:
            gradients, overflow = unscale(gradients, scale, loss)
        rates = self._learning_rates(parameters)
        if self.clip_norm is not None and gradients:
            norm = scope.state("gradient_norm")
            gradients = clip_by_global_norm(gradients, self.clip_norm, loss, norm, overflow)
        return gradients, Controls(rates, overflow)

    def _learning_rates(
        self, parameters: Sequence[LogicalRegion]
    ) -> dict[LogicalRegion, LogicalRegion]:
        """Of every parameter, the state `learning_rate` or that of its group."""
        scope = self.scope
        rates = dict[LogicalRegion, LogicalRegion]()
        made = {
            "": _learning_rate(
                self.loss, self.lr, scope.state("learning_rate"), scope.state("steps")
            )
        }
        for p in parameters:
            name, group = self.groups.get(p.name, ("", None))
            if group is None or group.lr is None:
                name = ""
            elif name not in made:
                named = (scope.state(f"{what}.{name}") for what in ("learning_rate", "steps"))
                made[name] = _learning_rate(self.loss, group.lr, *named)
            rates[p] = made[name]
        return rates

    def numbers_of(self, p: LogicalRegion, numbers: Mapping[str, float]) -> dict[str, float]:
        """Those of the optimizer with the weight decay of a parameter."""
        _, group = self.groups.get(p.name, ("", None))
        decay = None if group is None else group.weight_decay
        return {
            key: float(value)
            for key, value in {
                **numbers,
                "decay": numbers["decay"] if decay is None else decay,
            }.items()
        }

    @collect_rarely()
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
        `init`, by the keys of `states`. Tables without decay may be updated `by_rows`.

        Raises:
            ValueError: a table is always updated by rows, and has a weight decay.
        """
        gradients, controls = self.prepare()
        by_row = self._by_row(gradients, by_rows, numbers)
        for p, g in gradients.items():
            arguments = " ".join(["p g", *states, "rate"])
            unguarded = program(text, arguments, self.numbers_of(p, numbers), each_step)
            steps, scalars = controls.guard(unguarded, [controls.rates[p]])
            kept = [state_of(p, state, init) for state in states.values()]
            name = f"{p.name}.{self.kind}"
            if p in by_row:
                update_rows(name, p, by_row[p], kept, scalars, steps, flops)
                continue
            update(
                name,
                p,
                [p, g, *kept],
                kernel=assign_together.bind(program=steps),
                scalars=scalars,
                writes=[p, *kept],
                flops=flops,
            )
        return by_parameter(gradients)

    def _by_row(
        self, gradients: Gradients, by_rows: ByRow, numbers: Mapping[str, float]
    ) -> Mapping[LogicalRegion, RowGradient]:
        """The parameters that are updated by rows; a gradient that is clipped or scaled is none of look-ups alone.

        What makes their whole gradients is set aside.
        """
        looked_up = row_gradients(self.loss.graph, gradients) if by_rows is not ByRow.NEVER else {}
        decays = {p: self.numbers_of(p, numbers)["decay"] for p in looked_up}
        for p in looked_up if by_rows is ByRow.ALWAYS else ():
            if decays[p]:
                raise ValueError(
                    f"{self.kind}: '{p.name}' has weight_decay {decays[p]}, which reaches all rows"
                )
        is_fewer = {
            p: by_rows is ByRow.ALWAYS or g.count < p.shape[0] for p, g in looked_up.items()
        }
        chosen = {p: g for p, g in looked_up.items() if is_fewer[p] and not decays[p]}
        set_makers_aside(self.loss.graph, chosen.values())
        return chosen


def _as_made(graph: Graph, gradients: Gradients) -> Gradients:
    """In the order of their operators: an update need not wait for the all-reduce of a later gradient."""
    made = {r.name: k for k, op in enumerate(graph.operators) for r in op.outputs}
    return dict(sorted(gradients.items(), key=lambda pair: made[pair[1].name]))


def descent(
    kind: str,
    loss: LogicalRegion,
    lr: Rate,
    clip_norm: float | None,
    scope: Scope | None = None,
    **rates: float,
) -> UpdateRule:
    """ValueError for a rate that is negative or not finite, or a norm that is not positive."""
    check_region(kind, loss, "loss")
    lr = check_learning_rate(kind, lr)
    for key, value in rates.items():
        check_number(kind, key, value)
    scope = scope or Scope()
    scope.check(kind)
    if clip_norm is not None:
        clip_norm = check_number(kind, "clip_norm", clip_norm)
        if clip_norm == 0:
            raise ValueError(f"{kind}: clip_norm is 0, it is positive")
    if loss.graph.precision.loss_scale is not None and "loss_scale" in loss.graph.regions:
        raise ValueError(
            f"{kind}: losses are scaled, and the graph has an optimizer: there can be one"
        )
    return UpdateRule(kind, loss, lr, clip_norm, scope)


def _learning_rate(loss: LogicalRegion, lr: Rate, name: str, steps_name: str) -> LogicalRegion:
    """The state of a rate; with a schedule also the number of steps, and the operator that advances both."""
    graph = loss.graph
    rate = graph.parameter(
        name,
        (),
        lr(0) if callable(lr) else lr,
        loss.dtype,
        trainable=False,
    )
    if callable(lr):
        steps = graph.parameter(
            steps_name,
            (),
            0.0,
            "int64",
            trainable=False,
        )
        with beside(loss):
            graph.launch(
                "schedule",
                "., . ->",
                [rate, steps],
                kernel=_advance.bind(schedule=Named(lr)),
                writes=[rate, steps],
                flops=1,
            )
    return rate


@Kernel
def _advance(ctx: Context, rate: Array, steps: Array, *, schedule: Named) -> None:
    done = int(steps)
    rate[...] = check_number("schedule", f"lr({done})", schedule.schedule(done))
    steps += 1


def by_parameter(gradients: Mapping[LogicalRegion, LogicalRegion]) -> Gradients:
    """In the order in which the parameters were made."""
    first = next(iter(gradients), None)
    return {p: gradients[p] for p in first.graph.parameters if p in gradients} if first else {}


def state_of(region: LogicalRegion, name: str, init: float = 0.0) -> LogicalRegion:
    """The state `<region>.<name>` of the region's shape."""
    return region.graph.parameter(
        f"{region.name}.{name}",
        region.shape,
        init,
        region.dtype,
        trainable=False,
    )
