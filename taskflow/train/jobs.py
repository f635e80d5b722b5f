"""Several trainings on one machine, as one task graph: while one waits for its gradients, another computes.

It is a `Trainer` of all of them beside each other, and a callback that keeps each one's epochs and checkpoints. A job
that is over leaves: the callback gives the graph of those that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from taskflow.checkpoint import files
from taskflow.checkpoint.history import History, Position, plan_notes
from taskflow.core.numbers import whole
from taskflow.cost.model import CostModel
from taskflow.execute import Executor
from taskflow.graph.beside import beside, in_job, in_turn, output_in_turn
from taskflow.graph.graph import Graph
from taskflow.lowering import lower
from taskflow.machine import MachineModel
from taskflow.schedule.jobs import ORDERS_OF_JOBS
from taskflow.schedule.plan import Plan
from taskflow.strategy.rules import data_parallel
from taskflow.strategy.strategy import Strategy
from taskflow.train.batches import Feeds
from taskflow.train.callbacks import Change, Moment
from taskflow.train.loading import Reading, Source, reading
from taskflow.train.rates import Rate, check_rate
from taskflow.train.trainer import Rule, Trainer


@dataclass(frozen=True)
class Job:
    """A training among several.

    Attributes:
        graph: with an optimizer.
        batches: as of `Trainer.fit`; how many an epoch has is known.
        epochs: passes over them.
        strategy: a Strategy, or a rule `(graph, machine) -> Strategy`.
        learning_rate: step -> rate (see `taskflow.rates`).
        checkpoint: a folder of checkpoints, one after each epoch. They are those of a `Trainer` of this graph alone,
            which loads them and goes on.
        steps: so many steps while others take one of theirs, where this job is quicker; the batches of an epoch are a
            multiple of it, and the learning rate is that of the optimizer.
    """

    graph: Graph
    batches: Source
    epochs: int = 1
    strategy: Strategy | Rule = data_parallel
    learning_rate: Rate | None = None
    checkpoint: str | Path | None = None
    steps: int = 1


class Jobs:
    """Trains several graphs together; each learns what it learns alone, to the bit.

    Args:
        jobs: name -> job.
        machine, costs, seed, check, quiet, executor: as of `Trainer`.
        order: of rows, what a `Plan` takes; default: of several the one whose step is predicted to take least.

    Raises:
        ValueError: there are no jobs, nobody knows how many batches an epoch of one has, or these are no multiple of
            its steps; a job of several steps has a rate that changes.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        *,
        machine: MachineModel | None = None,
        costs: CostModel | None = None,
        order: str | None = None,
        seed: int = 0,
        check: bool = True,
        quiet: bool = False,
        executor: Mapping[str, Any] | None = None,
    ) -> None:
        self.jobs = dict(jobs)
        for name, job in self.jobs.items():
            whole(f"job '{name}'", "epochs", job.epochs)
            whole(f"job '{name}'", "steps", job.steps)
            if job.steps > 1 and job.learning_rate is not None:
                raise ValueError(f"job '{name}': the learning rate of {job.steps} steps is one")
        self._strategies: dict[str, Strategy] = {}
        self._savers: dict[str, Executor] = {}
        self._order = order

        def place(graph: Graph, machine: MachineModel) -> Plan:
            for name, job in self.jobs.items():
                self._strategies[name] = _called(job.strategy, job.graph, machine)
            if order is None:
                self._order = _fastest(graph, self._plan(self.jobs), machine)
            return self._plan(self.jobs)

        self.trainer = Trainer(
            _joined(self.jobs),
            machine=machine,
            strategy=place,
            seed=seed,
            costs=costs,
            check=check,
            quiet=quiet,
            executor=executor,
        )
        self._batches = {
            name: reading(job.batches, job.graph, self.trainer.transport)
            for name, job in self.jobs.items()
        }
        for name, batches in self._batches.items():
            if not batches.count:
                raise ValueError(f"job '{name}': how many batches an epoch has is not known")
            if batches.count % (steps := self.jobs[name].steps):
                raise ValueError(
                    f"job '{name}': {batches.count} batches an epoch are no multiple of {steps} steps"
                )
        self.positions = {name: Position(batches.count) for name, batches in self._batches.items()}

    def _plan(self, jobs: Mapping[str, Job]) -> Plan:
        strategies = {name: self._strategies[name] for name in jobs}
        return Plan(Strategy.beside(strategies, _steps(jobs)), schedule=self._order)

    def fit(self) -> dict[str, History]:
        """Train all jobs to the end of their epochs; the history of each.

        Raises:
            FloatingPointError: a loss, a gradient or a state of a job is not finite.
        """
        self._savers = {
            name: self.executor(name) for name, job in self.jobs.items() if job.checkpoint
        }
        self._write_rates(self.trainer.step, self.jobs)
        together: Any = _Together(self.jobs, self._batches)
        self.trainer.fit(together, 1, callbacks=[self._after])
        return {name: position.history for name, position in self.positions.items()}

    def executor(self, name: str) -> Executor:
        """Of the graph of one job alone, with the parameters and states that it has here."""
        job = self.jobs[name]
        machine = self.trainer.machine
        rows = lower(job.graph, self._strategies[name], machine)
        return Executor(rows, share=self.trainer.first, job=name)

    def _after(self, moment: Moment) -> Change | None:
        """After a step: what each job keeps; the graph of those that are left where one is over."""
        if moment.is_epoch:
            return None
        running = self._running()
        for name, job in running.items():
            position = self.positions[name]
            for step in range(job.steps):
                called = {k: output_in_turn(k, name, step) for k in job.graph.outputs}
                outputs = {k: moment.outputs[n] for k, n in called.items() if n in moment.outputs}
                position.pass_batch(outputs or None)
            if position.batch == position.batches:
                position.pass_epoch({})
                self._save(name)
        left = self._running()
        self._write_rates(moment.executor, left)
        if len(left) == len(running) or not left:
            return None
        return _joined(left), self._plan(left)

    def _running(self) -> dict[str, Job]:
        return {n: job for n, job in self.jobs.items() if self.positions[n].epoch < job.epochs}

    def _save(self, name: str) -> None:
        job = self.jobs[name]
        if job.checkpoint is not None:
            notes = plan_notes(Plan(self._strategies[name]))
            notes["position"] = to_builtins(self.positions[name])
            saver = self._savers[name]
            files.save(saver, job.checkpoint, 3, notes, steps=saver.steps * job.steps)

    def _write_rates(self, step: Executor, jobs: Mapping[str, Job]) -> None:
        for name, job in jobs.items():
            if job.learning_rate is not None:
                rate = check_rate(f"job '{name}': step {step.steps}", job.learning_rate(step.steps))
                step.regions.write(in_job("learning_rate", name), rate)


class _Together:
    """The batches of all jobs, step by step: those of each, epoch after epoch, until it is over."""

    def __init__(self, jobs: Mapping[str, Job], batches: Mapping[str, Reading]) -> None:
        self._jobs = jobs
        self._batches = batches

    def __len__(self) -> int:
        return max(
            self._batches[name].count * job.epochs // job.steps for name, job in self._jobs.items()
        )

    def epoch(self, number: int) -> Iterator[Feeds]:
        """The feeds of every step of the whole run."""
        running = {
            name: chain.from_iterable(map(self._batches[name].epoch, range(job.epochs)))
            for name, job in self._jobs.items()
        }
        for _ in range(len(self)):
            yield {
                in_turn(region, name, step): value
                for name, batches in running.items()
                for step, (_, batch) in enumerate(islice(batches, self._jobs[name].steps))
                for region, value in batch.items()
            }


def _steps(jobs: Mapping[str, Job]) -> dict[str, int]:
    return {name: job.steps for name, job in jobs.items()}


def _joined(jobs: Mapping[str, Job]) -> Graph:
    return beside({name: job.graph for name, job in jobs.items()}, steps=_steps(jobs))


def _called(rule: Strategy | Rule, graph: Graph, machine: MachineModel) -> Strategy:
    strategy = rule(graph, machine) if callable(rule) else rule
    if not isinstance(strategy, Strategy):
        kind = type(strategy).__name__
        raise TypeError(f"jobs: a strategy is a Strategy or a rule, not a {kind}")
    return strategy


def _fastest(graph: Graph, plan: Plan, machine: MachineModel) -> str | None:
    """The order in which a step takes least, by analytic costs, which all ranks know."""
    costs = CostModel.analytic(machine)
    plans = {order: Plan(plan.strategy, schedule=order) for order in (None, *ORDERS_OF_JOBS)}
    return min(plans, key=lambda order: plans[order].predict(graph, machine, costs).seconds)
