"""Training: epochs, evaluation and a report of what ran, on top of `Executor`.

Every rank gets the same batches by index and loads only the rows that its tiles need. Printing is rank 0's.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from taskflow.checking.checker import check_own_plan
from taskflow.checkpoint.history import History, Keeper, Position, plan_notes
from taskflow.comm.ending import phase
from taskflow.comm.interrupt import Interrupted, Interrupts
from taskflow.comm.transport import connect
from taskflow.core.numbers import whole
from taskflow.core.text import in_ms, is_loss, printable
from taskflow.cost.measure import measure_machine
from taskflow.cost.model import CostModel, MeasuredCosts
from taskflow.execute import Executor
from taskflow.execute.rehearsal import rehearse
from taskflow.graph.fuse import fuse
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.report.console import make_console, show_compiling, show_progress
from taskflow.schedule import Policy, Schedule, by_ordinal
from taskflow.schedule.orders import Order, issue_order
from taskflow.schedule.plan import Plan
from taskflow.searching import SearchResult, search_at_home
from taskflow.simulation.simulate import simulate
from taskflow.strategy.micro_batches import check_parts, most_micro_batches
from taskflow.strategy.rules import data_parallel
from taskflow.strategy.strategy import Strategy
from taskflow.tasks.task_graph import Array, TaskGraph
from taskflow.train.batches import Feeds
from taskflow.train.callbacks import Callback, Change, Moment, check_places
from taskflow.train.loading import Source, reading, samples_of
from taskflow.train.rates import Rate, check_rate
from taskflow.train.rows import HostRows, has_own_rows
from taskflow.train.session import Means, Session, check_fit
from taskflow.train.sizes import Sizes
from taskflow.train.summary import Summary

Rule = Callable[[Graph, MachineModel], Strategy | Plan]
Resized = Callable[[int], Graph]  # samples -> graph

_log = logging.getLogger(__name__)

LONG_CHECK_SECONDS = 1.0  # a check that takes longer is spoken of
KEPT_EXECUTORS = 4  # of plans that callbacks gave: an arena each


class Trainer:
    """Trains a graph on a machine.

    Args:
        graph: with an optimizer; its outputs are averaged and shown. On `cuda` devices it is fused (`taskflow.fuse`),
            and so are those of evaluations, unless a Strategy or a Plan is given, which names operators as they are.
        machine: default: the machine at hand, a device for each rank, with measured rates.
        strategy: a Strategy, a `Plan`, a rule `(graph, machine) -> Strategy or Plan`, or "search".
        seed: of initial values, random operators and the search.
        proposals: budget of the search.
        costs: default: measured; those that are measured learn from rehearsals of what the search finds, or of the
            strategy that was given (see `search_at_home`).
        check: prove before the first step that the plan computes what the graph says, see `taskflow.check_plan`: the
            last rank does so for all, and what it takes is printed where that is over a second. Its compilation, once
            on a machine, goes on beside the search.
        accumulate: micro-batches of every step: gradients of so many equal parts of the samples are added up on the
            devices of the strategy, one part after the other, so that memory holds the activations of one. The result
            is that of 1. A search does not know of it; evaluation has as many, as far as its samples divide so.
        order: what `taskflow.reorder` takes, by name too, such as the policy of a pipeline (`taskflow.stages`).
            Default: `by_ordinal` if there are several micro-batches to accumulate, else as lowered.
        learning_rate: step -> rate (see `taskflow.rates`), written to the region `learning_rate`.
        quiet: print nothing.
        executor: further arguments of `Executor`. On `cuda` devices `record` is off unless it is given here: steps are
            then captured, and no timeline is kept.

    Raises:
        SearchInterrupted: Ctrl-C in the search, on all ranks, with the best strategy so far.
        ValueError: the samples of an operator do not divide into the micro-batches, or are too few; an operator needs
            several at once; the order does not fit; or a plan has micro-batches or an order itself.
    """

    @phase("construction")
    def __init__(
        self,
        graph: Graph,
        *,
        machine: MachineModel | None = None,
        strategy: Strategy | Plan | Rule | str = "search",
        seed: int = 0,
        proposals: int = 400,
        costs: CostModel | None = None,
        check: bool = True,
        accumulate: int = 1,
        order: Order | Policy | Schedule | str | None = None,
        learning_rate: Rate | None = None,
        quiet: bool = False,
        executor: Mapping[str, Any] | None = None,
    ) -> None:
        if learning_rate is not None and not callable(learning_rate):
            raise TypeError(
                f"trainer: learning_rate is {learning_rate!r}, a function of steps is needed"
            )
        proposals = whole("trainer", "proposals", proposals)
        check_parts(accumulate)
        self.seed = seed
        self.learning_rate = learning_rate
        self.transport = connect()
        self.console = make_console(quiet=quiet or self.transport.rank != 0)
        show_compiling(make_console(stderr=True, quiet=self.console.quiet))
        self.machine = machine or measure_machine(MachineModel.local())
        is_named = isinstance(strategy, Strategy | Plan)
        self._fuses = not is_named and all(d.kind == "cuda" for d in self.machine.devices)
        self.graph, self._checks = self._fused(graph), check
        self.costs = costs or CostModel.measured(self.machine)
        self.found: SearchResult | None = None
        is_gpu = any(d.kind == "cuda" for d in self.machine.devices)
        usual = {"costs": self.costs if is_gpu else None, "record": not is_gpu}
        self._options: dict[str, Any] = {**usual, **(executor or {})}
        self._record = self._options["record"]
        self._has_own_rows = has_own_rows(self.machine, self.transport)
        self.first: Executor  # whose persistent regions all others use
        self._executors = dict[str, Executor]()  # by the digest of their rows, the last used last
        self._evaluators: dict[int, tuple[Graph | Resized, Sizes]] = {}
        plan = self._choose(strategy, proposals)
        self._take(self.graph, _in_time(plan, accumulate, order))

    def _take(self, graph: Graph, plan: Plan) -> None:
        """From now on steps are those of this graph under this plan; persistent regions are those of the first."""
        self.graph, self.plan, self.strategy = graph, plan, plan.strategy
        self._rows = HostRows(plan, graph, self.machine, self.costs, self.transport)
        if self._has_own_rows:
            self._graph, self.task_graph = self._rows.lower()
            self.predicted_seconds, self._bytes_moved = self._rows.predict()
        else:
            self._lower_all()
        digest, lender = self.task_graph.digest(), self.first if self._executors else None
        step = self._executors.pop(digest, None)
        if step is None:
            if self._checks:
                self._check_plan()
            step = Executor(self.task_graph, seed=self.seed, share=lender, **self._options)
        self._executors[digest] = self.step = step
        self.first = lender or step
        if len(self._executors) > KEPT_EXECUTORS:
            oldest = next(k for k, kept in self._executors.items() if kept is not self.first)
            self._executors.pop(oldest).close()
        if self.step.task_graph is not self.task_graph:  # there is no such library
            self.task_graph = self.step.task_graph
            self._predict()

    def _change(self, session: Session, change: Change | None) -> None:
        """What a callback wants of the next step, on all ranks."""
        if change is None:
            return
        graph, plan = change if isinstance(change, tuple) else (self.graph, change)
        is_same = graph is self.graph
        self._take(graph if is_same else self._fused(graph), plan)
        self.step.guard_updates(session.skips)
        session.sizes.begin_again(self.step)
        session.keeper.notes = {**plan_notes(plan), "changed": is_same}

    def _lower_all(self) -> None:
        """All rows, in their order, and what they will take. Costs are measured on rank 0 alone."""
        self._graph, self.task_graph = self.plan.lower(self.graph, self.machine)
        self._rehearse()
        if self.plan.order is not None:
            rows = self.transport.on_rank_0(
                lambda: issue_order(self.task_graph, self.costs, self.plan.order)
            )
            self.task_graph = self.task_graph.reordered(rows)
            self._rehearse()
        self._predict()
        self._bytes_moved = self.task_graph.bytes_moved

    def _predict(self) -> None:
        self.predicted_seconds = self.transport.on_rank_0(
            lambda: simulate(self.task_graph, self.costs).seconds
        )

    def _fused(self, graph: Graph) -> Graph:
        return fuse(graph) if self._fuses else graph

    def _choose(self, strategy: Strategy | Plan | Rule | str, proposals: int) -> Plan:
        if callable(strategy):
            strategy = strategy(self.graph, self.machine)
        if not isinstance(strategy, str):
            return strategy if isinstance(strategy, Plan) else Plan(strategy)
        if strategy != "search":
            raise ValueError(
                f"trainer: strategy is a Strategy, a Plan, a rule or 'search', not '{strategy}'"
            )
        if len(self.machine.devices) == 1:
            return Plan(data_parallel(self.graph, self.machine))
        with show_progress(self.console) as show:
            search = search_at_home(
                self.graph,
                self.machine,
                self.costs,
                proposals,
                self.seed,
                progress=lambda done, best: show(done, proposals, f"search {in_ms(best)}"),
            )
        self.found = search
        return search.plan

    def _rehearse(self) -> None:
        """What is predicted is what a search by rehearsal has chosen by."""
        if self._executors:
            return  # steps were measured, and go on
        if isinstance(self.costs, MeasuredCosts) and not self.costs.is_rehearsed(self.task_graph):
            rehearse(self.costs, self.task_graph)

    def _check_plan(self) -> None:
        """One rank for all: an executor refuses ranks that have different rows."""
        rows = self._rows.lower_all if self._has_own_rows else lambda: self.task_graph
        proof = self.transport.on_rank(self.transport.size - 1, lambda: check_own_plan(rows()))
        if proof.seconds > LONG_CHECK_SECONDS:
            self.console.print(f"plan: {proof}")

    @phase("fit")
    def fit(
        self,
        batches: Source,
        epochs: int,
        validation: tuple[Graph | Resized, Source] | None = None,
        checkpoint: str | Path | None = None,
        every: int | None = None,
        keep: int = 3,
        resume: bool = True,
        on_nan: str = "stop",
        callbacks: Sequence[Callback] = (),
        line_every: int | None = None,
        resized: Resized | None = None,
    ) -> History:
        """Train for `epochs` passes over `batches`.

        On SIGHUP, SIGINT, SIGTERM or SIGUSR1 to any rank all ranks finish the step, save a checkpoint if there is a
        folder, and leave with exit status 128 + signal. What is resumed equals an undisturbed run bit for bit, if the
        strategy is the same; under another one it goes on from the same bits.

        Args:
            batches: `Batches`; or any iterable of dicts, tuples or arrays, such as a DataLoader of torch, or a function
                that makes one for every epoch. Rank 0 reads an iterable for all.
            epochs: number of passes, those of the run that is resumed included.
            validation: the evaluation graph (same parameter names) and its batches, run after each epoch; or a function
                samples -> graph, so that no sample of the last batch is left out.
            checkpoint: a folder of checkpoints; see `taskflow.checkpoint`.
            every: steps between two checkpoints; default: one after each epoch. The last step is always saved.
            keep: checkpoints to leave in the folder.
            resume: go on from the newest checkpoint in the folder, at its epoch and batch; False refuses one.
            on_nan: what is done when a step's loss or gradient is not finite, or a state that is to be saved. The last
                finite state is the newest checkpoint; before the first, and without a folder, it is a copy in memory.

                * `stop`: restore the last finite state and raise.
                * `back`: restore it and go on with the next batch.
                * `skip`: go on with the next batch; a step whose loss or gradients are not finite changes nothing in
                  any case. A state that is not finite stops.

                Validation changes nothing, so there is nothing to restore: where its loss is not finite, `stop` raises,
                and the others leave the batch out of the means, with a warning.
            callbacks: called after every step and epoch; see `taskflow.callbacks`. One that gives True ends the run.
            line_every: steps between two lines, where there is no terminal; default: a line now and then.
            resized: samples -> training graph, for batches that have fewer; without it they are left out, with a
                warning. Each size is lowered once.

        Raises:
            FloatingPointError: the loss, a gradient or a state is not finite; in `back` and `skip`, no batch of an
                epoch was, or of its validation.
            ValueError: the newest checkpoint is damaged or of another run, or another run owns the folder.
            SystemExit: a signal came.
        """
        check_fit(epochs, every, keep, on_nan, callbacks, line_every)
        check_places(callbacks, checkpoint)
        self.step.guard_updates(on_nan == "skip")
        keeping = Keeper(
            self.first, checkpoint, every, keep, on_nan == "back", plan_notes(self.plan)
        )
        with keeping as keeper, Interrupts(self.transport) as interrupts:
            read = reading(batches, self.graph, self.transport)
            sizes = Sizes(
                "fit",
                samples_of(self.graph),
                self.step,
                resized and partial(self._resized, resized, on_nan),
            )
            session = Session(
                read,
                sizes,
                validation,
                keeper,
                interrupts,
                tuple(callbacks),
                line_every,
                on_nan == "skip",
            )
            position = keeper.resume(read.count, resume)
            self._change(session, keeper.changed)
            if self.step.steps:
                self.console.print(
                    f"going on after step {self.step.steps}, in epoch {position.epoch + 1}"
                )
            try:
                self._train(session, epochs, position, leaves_out=on_nan != "stop")
                keeper.save(position)
                interrupts.exchange()
            except Interrupted as stop:
                keeper.save(position)
                self.console.print(f"stopped by {stop} in fit, after step {self.step.steps}")
                raise SystemExit(128 + stop.number) from None
            finally:
                sizes.forget_next()
        return position.history

    def _resized(self, make: Resized, on_nan: str, samples: int) -> Executor:
        """The executor of the training graph for a batch of fewer samples, with the same parameters and states."""
        graph = self._fused(make(samples))
        transformed = self.plan.transform(graph)
        strategy = self.strategy.for_graph(transformed)
        parts = most_micro_batches(transformed, strategy, self.plan.parts)
        plan = replace(self.plan, strategy=strategy, parts=parts)
        step = Executor(self._applied(plan, graph), share=self.first, record=self._record)
        step.guard_updates(on_nan == "skip")
        return step

    def _applied(self, plan: Plan, graph: Graph) -> TaskGraph:
        """The rows of another graph of this model; the order of micro-batches does not depend on costs."""
        costs = CostModel.analytic(self.machine)
        rows = HostRows(plan, graph, self.machine, costs, self.transport)
        return (rows.lower() if self._has_own_rows else plan.apply(graph, self.machine, costs))[1]

    def _train(self, session: Session, epochs: int, position: Position, leaves_out: bool) -> None:
        read, keeper, interrupts = session.read, session.keeper, session.interrupts
        times: deque[float] = deque(maxlen=1000)
        with show_progress(self.console, session.line_every) as show:
            while position.epoch < epochs and not session.is_over:
                left = islice(read.epoch(position.epoch), position.batch, None)
                for step, _, feeds, prefetch in session.sizes.running(left):
                    interrupts.check()
                    values = self._train_step(step, feeds, prefetch, keeper)
                    times.append(step.seconds)
                    position.pass_batch(values)
                    keeper.keep_up(position)
                    done = position.epoch * read.count + position.batch
                    text = f"epoch {position.epoch + 1} {_losses(values or {})}"
                    show(done, epochs * read.count or None, text)
                    self._tell(session, position, values or {}, None)
                    if session.is_over:
                        return
                if not position.batch:
                    raise ValueError(f"fit: there is no batch in epoch {position.epoch + 1}")
                where = f"validation after epoch {position.epoch + 1}"
                scores = dict[str, float]()
                if session.validation:
                    graph, batches = session.validation
                    scores = self._evaluate(graph, batches, interrupts.check, where, leaves_out)
                position.pass_epoch(scores)
                position.history.step_seconds = float(np.median(times)) if times else 0.0
                self._print_epoch(position.epoch, position.history)
                means = {name: values[-1] for name, values in position.history.outputs.items()}
                self._tell(session, position, means, scores)

    def _tell(
        self,
        session: Session,
        position: Position,
        outputs: Mapping[str, float],
        validation: Mapping[str, float] | None,
    ) -> None:
        """Call the callbacks, and do what they want."""
        now = self.step, self.graph, self.plan
        session.tell(Moment(self.step.steps, position.epoch, outputs, validation, *now))
        self._change(session, session.change)

    def _train_step(
        self, step: Executor, feeds: Feeds | None, prefetch: Feeds | None, keeper: Keeper
    ) -> dict[str, float] | None:
        """The outputs of a step; None where it was refused, and changed nothing."""
        if (
            self.learning_rate is not None
        ):  # the same on every rank, which is not compared: that takes a barrier
            steps = self.step.steps
            self.step.regions.write(
                "learning_rate", check_rate(f"fit: step {steps}", self.learning_rate(steps))
            )
        try:
            values = _scalars(step(feeds, prefetch))
        except FloatingPointError as error:
            keeper.go_back(error)
            return None
        return None if step.is_skipped else values

    def evaluate(self, graph: Graph | Resized, batches: Source) -> dict[str, float]:
        """Mean over all samples of every output of `graph`, with the parameters as they are now.

        Args:
            graph: for evaluation; or a function samples -> graph, so that no sample of the last batch is left out.
            batches: as of `fit`.

        Raises:
            FloatingPointError: a loss is not finite.
        """
        return self._evaluate(graph, batches, lambda: None, "evaluate")

    def _evaluate(
        self,
        graph: Graph | Resized,
        batches: Source,
        between: Callable[[], None],
        where: str,
        leaves_out: bool = False,
    ) -> dict[str, float]:
        """`where` begins messages; with `leaves_out`, batches whose loss is not finite do not count."""
        sizes, means = self._evaluator(graph), Means()
        read = reading(batches, graph if isinstance(graph, Graph) else self.graph, self.transport)
        try:
            for number, (step, samples, feeds, prefetch) in enumerate(
                sizes.running(read.epoch(0)), 1
            ):
                between()
                try:
                    means.add(_scalars(step(feeds, prefetch)), samples)
                except FloatingPointError as error:
                    if not leaves_out:
                        raise FloatingPointError(f"{where}, batch {number}: {error}") from error
                    means.refused += 1
        finally:
            sizes.forget_next()
        if means.refused and not means.samples:
            raise FloatingPointError(f"{where}: no batch of {means.refused} gave finite numbers")
        if means.refused and self.transport.rank == 0:
            _log.warning(
                f"{where}: the loss is not finite in {means.refused} of {number} batches, which do not count"
            )
        return means.means()

    def _evaluator(self, graph: Graph | Resized) -> Sizes:
        """Its executors, which are kept; the first is of as many samples as training has."""
        if id(graph) not in self._evaluators:

            def make(one: Graph) -> Executor:
                one = self._fused(one)
                task_graph = self._applied(self.plan.for_graph(one), one)
                return Executor(task_graph, share=self.first, record=self._record)

            first = graph if isinstance(graph, Graph) else graph(samples_of(self.graph))
            more = None if isinstance(graph, Graph) else lambda samples: make(graph(samples))
            self._evaluators[id(graph)] = (
                graph,
                Sizes("evaluate", samples_of(first), make(first), more),
            )
        return self._evaluators[id(graph)][1]

    def _print_epoch(self, epoch: int, history: History) -> None:
        parts = [f"{name} {values[-1]:.4f}" for name, values in history.outputs.items()]
        parts += [
            f"validation {name} {values[-1]:.4f}" for name, values in history.validation.items()
        ]
        self.console.print(printable(f"epoch {epoch}: " + ", ".join(parts)))

    def report(self, page: str | Path | None = None, history: History | None = None) -> None:
        """Print strategy, predicted and measured step time, bytes moved and peak memory per rank. All ranks call it.

        Args:
            page: write an HTML file, too, with the last step as it was measured beside the prediction (see
                `taskflow report`); rank 0 does so.
            history: the measured step is its median step; default: the last step.
        """
        planned = self.graph, self.machine, self.costs, self.plan, self.found
        ran = self._graph, self.task_graph, self.step, self.predicted_seconds
        rest = self._bytes_moved, self._rows.lower_all, self._record
        Summary(*planned, *ran, *rest, self.console, self.transport).print(page, history)


def _in_time(plan: Plan, accumulate: int, order: Order | Policy | Schedule | str | None) -> Plan:
    """The plan with the micro-batches and the order that a trainer was given beside it."""
    if order is not None:
        plan = plan.with_fields("trainer: order=", schedule=order)
    if accumulate != 1:
        plan = plan.with_fields(f"trainer: accumulate={accumulate}", parts=accumulate)
        plan = plan if plan.schedule is not None else replace(plan, schedule=by_ordinal)
    return plan


def _losses(values: Mapping[str, float]) -> str:
    """Those among the outputs of a step, for people; a step without any was refused."""
    return ", ".join(f"{k} {v:.4f}" for k, v in values.items() if is_loss(k)) or "loss nan"


def _scalars(values: Mapping[str, Array]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value.size == 1}
