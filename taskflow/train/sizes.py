"""Executors of one model for batches of several sizes: the last batch of an epoch may have fewer samples.

A graph has fixed shapes, so another size is another graph, which a function makes; it is lowered once and kept, and
shares parameters and states with the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from taskflow.execute import Executor
from taskflow.train.batches import Feeds
from taskflow.train.loading import Sized

_log = logging.getLogger(__name__)

Running = tuple[
    Executor, int, Feeds | None, Feeds | None
]  # with samples, feeds of this step, and of the next


class Sizes:
    """The executor of every number of samples.

    Args:
        where: begins messages.
        samples: of the first executor's batch.
        first: that executor.
        make: the executor of another number of samples; None: such batches are left out, with a warning.
    """

    def __init__(
        self,
        where: str,
        samples: int,
        first: Executor,
        make: Callable[[int], Executor] | None = None,
    ) -> None:
        self.where = where
        self.samples = samples
        self.make = make
        self.executors = {samples: first}
        self.left_out = 0

    def executor(self, samples: int) -> Executor | None:
        """That of a number of samples; None where there is none.

        Raises:
            ValueError: a batch has more samples than the graph.
        """
        if samples > self.samples:
            raise ValueError(
                f"{self.where}: a batch has {samples} samples, the graph takes {self.samples}"
            )
        if samples not in self.executors and self.make is not None:
            self.executors[samples] = self.make(samples)
        return self.executors.get(samples)

    def running(self, batches: Iterable[Sized]) -> Iterator[Running]:
        """Batch by batch what is to be called: feeds go ahead of a step where the next one is of the same executor."""
        before: tuple[Executor, int, Feeds] | None = None
        is_ahead = False
        for samples, feeds in batches:
            if (step := self.executor(samples)) is None:
                self._leave_out(samples)
                continue
            if before is not None:
                goes_on = before[0] is step
                yield (
                    before[0],
                    before[1],
                    None if is_ahead else before[2],
                    feeds if goes_on else None,
                )
                is_ahead = goes_on
                if self.executors.get(samples) is not step:  # another plan came with the step
                    before[0].forget_next()
                    step = self.executor(samples) or step
                    is_ahead = False
            before = step, samples, feeds
        if before is not None:
            yield before[0], before[1], None if is_ahead else before[2], None

    def begin_again(self, first: Executor) -> None:
        """From now on `first` is the executor of full batches; others are made anew."""
        self.executors = {self.samples: first}

    def _leave_out(self, samples: int) -> None:
        if not self.left_out and self.executors[self.samples].transport.rank == 0:
            _log.warning(
                f"{self.where}: a batch of {samples} samples is left out, the graph takes {self.samples}: "
                "resized= makes graphs of other sizes"
            )
        self.left_out += samples

    def forget_next(self) -> None:
        """See `Executor.forget_next`."""
        for step in self.executors.values():
            step.forget_next()
