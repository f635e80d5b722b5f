"""Joint search: stages, micro-batches, schedules and recomputation, under memory as a hard limit.

Atoms (`atoms`) are priced (`costs`) and stages cut by dynamic programming (`cutting`) for every number of
micro-batches; what that finds begins a walk. It changes the pipelines that promise most by their blocks (`estimates`),
lowers the most promising of all, and goes on from what is better than all before. The best are then tried under other
schedules, a searched one among them (`finalists`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count

import numpy as np

from taskflow.cost.model import CostModel
from taskflow.graph.graph import Graph
from taskflow.machine import MachineModel
from taskflow.searching.budget import Budget
from taskflow.searching.joint.atoms import find_atoms
from taskflow.searching.joint.cells import Cells, CellTables, Within
from taskflow.searching.joint.costs import Pricing
from taskflow.searching.joint.cutting import best_cuts
from taskflow.searching.joint.estimates import Estimate, Estimates
from taskflow.searching.joint.finalists import Finalists
from taskflow.searching.joint.planned import (
    PlannedPipeline,
    PlannedStage,
    loops,
    moves,
    pipeline_of_cut,
)
from taskflow.searching.outcome import Outcome

_log = logging.getLogger(__name__)

PRICED, WALKED = (
    0.35,
    0.7,
)  # of the budget: until then cells are priced, until then pipelines are walked over
MEMORY_SHARES = (
    1.1,
    1.0,
    0.9,
)  # of the memory of devices, for which stages are cut: estimates are rather too high
DOUBTED = 1.3  # times its memory: what is expected to need more is not lowered once something fits
OVER, FAR_OVER = (
    1.0,
    5.0,
)  # by which part of what is expected beyond its memory, and beyond DOUBTED, it is put behind
MARGIN = 1.25  # times the best seconds: what is expected to take more is not lowered
SAME = 0.998  # of the expected seconds of what differs in recomputation alone and fits: else it is not lowered
PATIENCE = 40  # pipelines are changed without anything better coming of it, before some are lowered
NO_ATOMS: frozenset[int] = frozenset()
CHANGED = 0.1  # of the budget: as long at most
FINALISTS = 3  # pipelines that are tried under every schedule


def search_stages(
    graph: Graph,
    machine: MachineModel,
    costs: CostModel,
    seconds: float | Budget,
    seed: int = 0,
    within: Within | None = None,
) -> list[Outcome]:
    """Plans of one or more stages that fit into memory: the fastest first, then fewer bytes moved, then less memory.

    Args:
        graph: with its backward and update operators.
        machine: whose devices stages are on, in order.
        costs: seconds of every task.
        seconds: that all of it may take, compiling apart; or a budget, of which a plan that is lowered is a proposal.
        seed: of searched schedules.
        within: gives, for a number of devices, splits of operators as if a stage of so many devices were all there is:
            name of the split -> operator -> configuration, as `taskflow.stages` takes it; updates may be named too.
            The split along samples is always there.

    Raises:
        ValueError: no plan was found that fits, with the least bytes that one needs, and where.
    """
    budget = seconds if isinstance(seconds, Budget) else Budget(None, seconds)
    tables = CellTables(Pricing(graph, find_atoms(graph), machine, costs), within)
    finalists = Finalists(graph, machine, costs, tables, budget, seed)
    walk = _Walk(tables, finalists, budget)
    walk.begin()
    walk.walk()
    walk.finish()
    if not finalists.judged:
        raise ValueError(
            f"search_stages: no plan that fits into memory was found; {finalists.least}"
        )
    _log.info("search_stages: %d plans judged, %.6f s", budget.done, finalists.best_seconds)
    return sorted(finalists.judged, key=lambda each: each.figures)


class _Walk:
    """Pipelines that are to be lowered or changed, the most promising first."""

    def __init__(self, tables: CellTables, finalists: Finalists, budget: Budget) -> None:
        self.tables, self.finalists, self.budget, self.estimates = (
            tables,
            finalists,
            budget,
            Estimates(tables),
        )
        self.devices, self.atoms = len(tables.machine.devices), len(tables.pricing.atoms)
        self._to_lower: list[tuple[float, int, PlannedPipeline, Estimate]] = []
        self._to_change: list[tuple[float, int, PlannedPipeline]] = []
        self._seen: set[PlannedPipeline] = set()
        self._judged: dict[
            PlannedPipeline, float
        ] = {}  # without recomputation -> expected seconds of what fits
        self._number = count()

    # -- where it begins ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Add all of one stage, then all that dynamic programming finds."""
        taken = 0.0
        for pipeline in (each for parts in self._parts() for each in self._one_stage(parts)):
            if self.budget.used < PRICED / 2 or not self._to_lower:
                self._add(pipeline)
        for parts in self._parts():
            if self._to_lower and (
                self.budget.used > PRICED or self.budget.left_seconds * (1 - PRICED) < taken
            ):
                break
            begun = time.perf_counter()
            cells = self.tables.cells(parts)
            for pipeline in (*self._cut(cells, parts), *self._looped(cells, parts)):
                self._add(pipeline)
            taken = time.perf_counter() - begun

    def _parts(self) -> list[int]:
        """Numbers of micro-batches, first about twice as many as there are devices."""
        samples = [region.shape[0] for region in self.tables.pricing.graph.inputs if region.ndim]
        several = [1 << k for k in range(min(samples, default=1).bit_length())]
        legal = [parts for parts in several if all(many % parts == 0 for many in samples)]
        return sorted(legal, key=lambda parts: (abs(math.log2(parts / 2 / self.devices)), parts))

    def _one_stage(self, parts: int) -> Iterator[PlannedPipeline]:
        for size in self.tables.sizes:
            for split in self.tables.splits(size):
                for again in dict.fromkeys([NO_ATOMS, self.tables.recomputable]):
                    yield PlannedPipeline(
                        (PlannedStage(0, self.atoms, 0, size, split, again),), parts
                    )

    def _cut(self, cells: Cells, parts: int) -> Iterator[PlannedPipeline]:
        for share in MEMORY_SHARES:
            for cut in best_cuts(cells, parts, min(self.devices, self.atoms), share):
                yield pipeline_of_cut(self.tables, cells, cut, parts, self.devices)

    def _looped(self, cells: Cells, parts: int) -> Iterator[PlannedPipeline]:
        """Two stages on every group of devices, for schedules that ask for that; all groups are alike."""
        for size in self.tables.sizes:
            groups = self.devices // size
            likes = {self.tables.like.get((k * size, size)) for k in range(groups)}
            if (
                self.devices % size
                or len(likes) > 1
                or not 2 <= groups <= min(parts, self.atoms // 2)
            ):
                continue
            is_size = np.array([way.devices == size for way in cells.ways])
            doubled = cells._replace(
                at=np.tile(is_size, (2 * self.devices, 1)), room_bytes=cells.room_bytes / 2
            )
            for cut in best_cuts(doubled, parts, 2 * groups):
                if len(cut) == 2 * groups:
                    yield from loops(
                        pipeline_of_cut(self.tables, cells, cut, parts, 2 * self.devices), groups
                    )

    # -- how it goes on ----------------------------------------------------------------------------------------------

    def walk(self) -> None:
        """Lower what promises most, and go on from what is better than all before, until the budget is nearly spent."""
        self._change()
        while self._to_lower and self.budget.used < WALKED:
            score, _, pipeline, estimate = self._next()
            before = self.finalists.best_seconds
            if score > MARGIN * before:
                break
            if self.finalists.judged and estimate.share > DOUBTED:
                continue
            alike = pipeline._replace(
                stages=tuple(stage._replace(again=NO_ATOMS) for stage in pipeline.stages)
            )
            if estimate.seconds > SAME * self._judged.get(alike, math.inf):
                continue
            if self.finalists.judge(pipeline, [self.estimates.order(pipeline, estimate.policy)]):
                self._judged[alike] = estimate.seconds
            elif not self.finalists.judged:
                self._add_changed(pipeline)
            if self.finalists.best_seconds < before:
                self._change()

    def _next(self) -> tuple[float, int, PlannedPipeline, Estimate]:
        """The most promising; until something fits, every second time of what is expected to fit, if anything is."""
        if self.finalists.judged or self.budget.done % 2:
            return heappop(self._to_lower)
        found = min(self._to_lower, key=lambda each: (max(each[3].share, 1.0), *each[:2]))
        self._to_lower.remove(found)
        heapify(self._to_lower)
        return found

    def _change(self) -> None:
        """Add what moves make of the most promising pipelines, until nothing better comes of it for a while."""
        left, best, until = PATIENCE, math.inf, min(self.budget.used + CHANGED, WALKED)
        while left and self._to_change and self.budget.used < until:
            score, _, pipeline = heappop(self._to_change)
            left, best = (PATIENCE, score) if score < best else (left - 1, best)
            self._add_changed(pipeline)

    def _add_changed(self, pipeline: PlannedPipeline) -> None:
        for other in moves(pipeline, self.tables):
            self._add(other)

    def _add(self, pipeline: PlannedPipeline) -> None:
        if pipeline in self._seen:
            return
        self._seen.add(pipeline)
        estimate = self.estimates.estimate(pipeline)
        if estimate is not None and math.isfinite(estimate.seconds):
            over = OVER * max(0.0, estimate.share - 1.0) + FAR_OVER * max(
                0.0, estimate.share - DOUBTED
            )
            score, number = estimate.seconds * (1.0 + over), next(self._number)
            heappush(self._to_lower, (score, number, pipeline, estimate))
            heappush(self._to_change, (score, number, pipeline))

    def finish(self) -> None:
        """Search a schedule for the best pipeline, and try the best ones under all policies."""
        if self.finalists.fitting:
            self.finalists.search()
        best_first = dict.fromkeys(pipeline for _, _, pipeline in sorted(self.finalists.fitting))
        for pipeline in list(best_first)[:FINALISTS]:
            self.finalists.judge(pipeline, self.estimates.orders(pipeline))
