"""Training: epochs, evaluation and a report of what ran, on top of `Executor`.

Every rank gets the same batches by index and loads only the rows that its tiles need. Printing is rank 0's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from taskflow.comm import connect
from taskflow.cost import CostModel
from taskflow.execute import Executor
from taskflow.geometry import Rect
from taskflow.graph import Graph
from taskflow.lower import lower
from taskflow.machine import MachineModel
from taskflow.measure import measure_machine
from taskflow.rules import data_parallel, leaders
from taskflow.search import SearchResult, search
from taskflow.simulate import simulate
from taskflow.strategy import Strategy
from taskflow.task import Array, TaskGraph

_log = logging.getLogger(__name__)

Schedule = Callable[[int], float]
Feeds = Mapping[str, Any]


class Batches:
    """Arrays cut into batches of equal size, shuffled by a seed; the last incomplete batch of an epoch is dropped.

    Args:
        arrays: input name -> array or anything that `array[indices]` reads, examples along dimension 0.
        size: examples a batch.
        shuffle: whether the order changes from epoch to epoch (a function of `seed` and the epoch).
        seed: of the order.

    Raises:
        ValueError: the arrays have different lengths, or fewer examples than a batch.
    """

    def __init__(self, arrays: Mapping[str, Array], size: int, shuffle: bool = True, seed: int = 0) -> None:
        lengths = {name: len(a) for name, a in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"batches: the arrays have different lengths: {lengths}")
        self.arrays, self.size, self.shuffle, self.seed = dict(arrays), size, shuffle, seed
        self.examples = next(iter(lengths.values()))
        if size < 1 or self.examples < size:
            raise ValueError(f"batches: {self.examples} examples do not make a batch of {size}")

    def __len__(self) -> int:
        return self.examples // self.size

    def epoch(self, number: int) -> Iterator[Feeds]:
        """Feeds of every batch of an epoch: functions that load only the box a device needs."""
        order = np.arange(self.examples)
        if self.shuffle:
            order = np.random.default_rng([self.seed, number]).permutation(self.examples)
        for k in range(len(self)):
            rows = order[k * self.size : (k + 1) * self.size]
            yield {name: partial(_load, array, rows) for name, array in self.arrays.items()}


def _load(array: Array, rows: Array, rect: Rect) -> Array:
    """The box `rect` of the batch that consists of `rows` of `array`."""
    part: Array = array[rows[rect.lo[0] : rect.hi[0]]]
    return part[(slice(None), *rect.slices()[2:])] if len(rect.lo) > 1 else part


def constant_schedule(rate: float) -> Schedule:
    """The same learning rate at every step."""
    return lambda step: rate


def step_schedule(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """`rate`, multiplied by `factor` after each `every` steps."""
    return lambda step: rate * factor ** (step // every)


def cosine_schedule(rate: float, steps: int, warmup: int = 0, minimum: float = 0.0) -> Schedule:
    """Linear warm-up over `warmup` steps, then a half cosine down to `minimum` (Loshchilov and Hutter, 2017)."""

    def at(step: int) -> float:
        if step < warmup:
            return rate * (step + 1) / warmup
        part = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return minimum + (rate - minimum) * 0.5 * (1 + float(np.cos(np.pi * part)))

    return at


@dataclass
class History:
    """What `fit` saw: one entry per epoch in each list, by output name; `step_seconds` is the median step's time."""

    outputs: dict[str, list[float]] = field(default_factory=dict)
    validation: dict[str, list[float]] = field(default_factory=dict)
    step_seconds: float = 0.0


class Trainer:
    """Trains a graph on a machine.

    Args:
        graph: with an optimizer; its outputs are averaged and shown.
        machine: default: the machine at hand, a device for each rank, with measured rates.
        strategy: a Strategy, a rule `(graph, machine) -> Strategy`, or "search".
        seed: of initial values, random operators and the search.
        proposals: budget of the search.
        costs: default: measured, if the machine is the one at hand.
        learning_rate: schedule step -> rate, written to the region `learning_rate`.
        quiet: print nothing.
        executor: further arguments of `Executor`.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        machine: MachineModel | None = None,
        strategy: Strategy | str | Callable[[Graph, MachineModel], Strategy] = "search",
        seed: int = 0,
        proposals: int = 400,
        costs: CostModel | None = None,
        learning_rate: Schedule | None = None,
        quiet: bool = False,
        executor: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph, self.seed, self.learning_rate = graph, seed, learning_rate
        self.transport = connect()
        self.console = Console(quiet=quiet or self.transport.rank != 0)
        self.machine = machine or measure_machine(MachineModel.local())
        self.costs = costs or CostModel.measured(self.machine)
        self.found: SearchResult | None = None
        self.strategy = self._choose(strategy, proposals)
        self.task_graph: TaskGraph = lower(graph, self.strategy, self.machine)
        self.predicted_seconds: float = self._from_rank_0(lambda: simulate(self.task_graph, self.costs).seconds)
        self.step = Executor(self.task_graph, seed=seed, **(executor or {}))
        self._evaluators: dict[int, tuple[Graph, Executor]] = {}

    def _from_rank_0(self, make: Callable[[], Any]) -> Any:
        """What `make` gives on rank 0; costs are measured there only, while the others wait."""
        if self.transport.size == 1:
            return make()
        value = make() if self.transport.rank == 0 else None
        return self.transport.gather(value)[0]

    def _choose(self, strategy: Any, proposals: int) -> Strategy:
        if isinstance(strategy, Strategy):
            return strategy
        if callable(strategy):
            chosen: Strategy = strategy(self.graph, self.machine)
            return chosen
        if strategy != "search":
            raise ValueError(f"trainer: strategy is a Strategy, a rule or 'search', not '{strategy}'")
        if len(self.machine.devices) == 1:
            return data_parallel(self.graph, self.machine)
        with self._progress() as bar:
            task = bar.add_task("search", total=proposals)
            result: SearchResult = self._from_rank_0(
                lambda: search(
                    self.graph,
                    self.machine,
                    self.costs,
                    proposals=proposals,
                    seed=self.seed,
                    progress=lambda done, best: bar.update(
                        task, completed=done, description=f"search {best * 1e3:.3f} ms"
                    ),
                )
            )
        self.found = result
        return result.strategy

    def _progress(self) -> Progress:
        return Progress(console=self.console, disable=self.console.quiet, transient=True)

    def fit(self, batches: Batches, epochs: int, validation: tuple[Graph, Batches] | None = None) -> History:
        """Train for `epochs` passes over `batches`.

        Args:
            batches: training examples.
            epochs: number of passes.
            validation: the evaluation graph (same parameter names) and its batches, run after each epoch.

        Raises:
            FloatingPointError: the loss is not finite.
        """
        history, times = History(), []
        with self._progress() as bar:
            task = bar.add_task("train", total=epochs * len(batches))
            for epoch in range(epochs):
                seen: list[dict[str, float]] = []
                for feeds in batches.epoch(epoch):
                    if self.learning_rate is not None:
                        self.step.write("learning_rate", np.asarray(self.learning_rate(self.step.steps)))
                    values = self.step(feeds)
                    times.append(self.step.seconds)
                    seen.append({k: float(v) for k, v in values.items() if v.size == 1})
                    bar.update(task, advance=1, description=f"epoch {epoch + 1} loss {seen[-1].get('loss', 0):.4f}")
                _append(history.outputs, _means(seen))
                if validation is not None:
                    _append(history.validation, self.evaluate(*validation))
                self._print_epoch(epoch, history)
        history.step_seconds = float(np.median(times)) if times else 0.0
        return history

    def evaluate(self, graph: Graph, batches: Batches) -> dict[str, float]:
        """Mean of every output of `graph` over `batches`, with the parameters as they are now."""
        if id(graph) not in self._evaluators:
            task_graph = lower(graph, self.strategy.for_graph(graph), self.machine)
            self._evaluators[id(graph)] = (graph, Executor(task_graph, share=self.step))
        step = self._evaluators[id(graph)][1]
        return _means([{k: float(v) for k, v in step(feeds).items() if v.size == 1} for feeds in batches.epoch(0)])

    def _print_epoch(self, epoch: int, history: History) -> None:
        parts = [f"{name} {values[-1]:.4f}" for name, values in history.outputs.items()]
        parts += [f"validation {name} {values[-1]:.4f}" for name, values in history.validation.items()]
        self.console.print(f"epoch {epoch + 1}: " + ", ".join(parts))

    def report(self, history: History | None = None) -> None:
        """Print strategy, predicted and measured step time, bytes moved and peak memory per rank. All ranks call it."""
        table = Table("operator", "split", "axes of its pattern", title="strategy")
        for op in leaders(self.graph):
            table.add_row(op.name, str(self.strategy[op.name]), op.pattern)
        self.console.print(table)
        if self.found is not None:
            self.console.print(f"search: {self.found}")
        measured = history.step_seconds if history else self.step.seconds
        measured = max(self.transport.gather(measured))
        self.console.print(f"predicted step time: {self.predicted_seconds * 1e3:.3f} ms")
        self.console.print(
            f"measured step time:  {measured * 1e3:.3f} ms ({measured / self.predicted_seconds:.2f} of predicted)"
        )
        if self.transport.size == 1 and len(self.task_graph.devices_used) > 1:
            self.console.print(
                "  (one process runs all devices one after the other; the prediction is for a rank each)"
            )
        self.console.print(f"bytes moved a step:  {self.task_graph.bytes_moved}")
        for device, size in enumerate(self.step.plan.peak_bytes.tolist()):
            self.console.print(f"peak memory of device {device}: {size} bytes")


def _append(lists: dict[str, list[float]], values: Mapping[str, float]) -> None:
    for name, value in values.items():
        lists.setdefault(name, []).append(value)


def _means(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    rows = list(rows)
    return {name: float(np.mean([r[name] for r in rows])) for name in rows[0]} if rows else {}
