"""Part `steps NAME` of `gpu`: training steps of a model, and what they are made of, by one executor a precision.

What is said and recorded of each: seconds of a step beside the fastest of PyTorch's variants; what the host does in a
replayed step, from its call until all is launched; how much of the next batch's way to the GPU is hidden; the first
precision also predicted from kernels that were timed one by one; and where the time of a captured step goes, by leaving
out the rows of one kind at a time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_models import Case
from gpu_setting import Setting, find_torch, record, say, verdict

import taskflow
from taskflow import CostModel, Executor, Graph, Kind, lower

Array = np.ndarray[Any, np.dtype[Any]]

HOST_SECONDS, HIDDEN_SHARE, PREDICTED_ERROR = 50e-6, 0.95, 0.1
KINDS_SHOWN = 20


@dataclass(frozen=True)
class Measured:
    """Seconds of the steps of an executor: medians of several.

    Attributes:
        step: while it runs, the next batch is copied; `least` and `most` of them.
        after: with its batch copied before it.
        alone: on the feeds of the last one.
        host: until all is launched.
        graphs, issued: the parts of a step.
    """

    step: float
    least: float
    most: float
    after: float
    alone: float
    host: float
    graphs: int
    issued: int

    @property
    def way(self) -> float:
        """Seconds of a batch's way to the GPU, where nothing hides it."""
        return self.after - self.alone

    @property
    def hidden(self) -> float:
        """The share of that way that takes a step no longer; NaN where no clock sees it."""
        return 1 - (self.step - self.alone) / self.way if self.way > 0 else float("nan")


def steps_of(setting: Setting, name: str) -> None:
    """All of a model."""
    case = setting.cases()[name]
    for precision in case.precisions:
        graph = case.graph(precision)
        feeds = case.feeds(graph)
        say(f"{name}, {case.model.about}, batch {case.batch}, {precision}")
        with setting.executor(graph) as step:
            measured = measure(setting, step, feeds)
            with np.errstate(all="ignore"):  # what is left out leaves anything behind
                kinds = seconds_by_kind(setting, step) if precision == case.precisions[-1] else {}
        _tell(name, precision, measured, kinds)
        if precision == case.precisions[0]:
            _tell_prediction(setting, name, graph, precision, measured.step)
        beside_torch(setting, name, case, precision, feeds, measured.step)


def measure(setting: Setting, step: Executor, feeds: dict[str, Array]) -> Measured:
    """Steps of an executor that was never run: the first ones are issued and captured."""
    count, replay = setting.count(40), replay_of(step)
    for _ in range(3):
        step(feeds)
    after = seconds_of(lambda: step(feeds), count)
    step(feeds, prefetch=feeds)
    host: list[float] = []

    def next_one() -> None:
        step(prefetch=feeds)
        host.append(replay.issued_seconds)

    during = seconds_of(next_one, count)
    step()
    alone = seconds_of(replay.repeat, count)
    captured = [segment.is_captured for segment in replay.segments]
    return Measured(
        float(np.median(during)),
        min(during),
        max(during),
        float(np.median(after)),
        float(np.median(alone)),
        float(np.median(host)),
        captured.count(True),
        captured.count(False),
    )


def replay_of(step: Executor) -> Any:
    """What replays the steps of an executor."""
    assert step._streamed is not None
    return step._streamed.replay


def seconds_of(call: Callable[[], object], count: int) -> list[float]:
    """Wall-clock seconds of calls."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times


def seconds_by_kind(setting: Setting, step: Executor) -> dict[str, float]:
    """Kind of row, its name without numbers -> what a captured step is shorter by without the rows of that kind."""
    replay, kinds = replay_of(step), dict[str, list[int]]()
    points = step._rows.kind == Kind.POINT  # feeds stay: what reads them may look at each class
    for number, item in enumerate(replay.items):
        if not points[item.row]:
            continue
        kinds.setdefault(
            re.sub(r"\d+", "#", item.name.partition("[")[0].removeprefix("run ")), []
        ).append(number)
    count = setting.count(10)
    whole = float(np.median(seconds_of(replay.without(()), count)))
    return {
        kind: whole - float(np.median(seconds_of(replay.without(numbers), count)))
        for kind, numbers in kinds.items()
    }


def _tell(name: str, precision: str, found: Measured, kinds: Mapping[str, float]) -> None:
    figures = {
        "step": found.step,
        "host": found.host,
        "step alone": found.alone,
        "step after its batch": found.after,
    }
    for what, seconds in figures.items():
        record(model=name, precision=precision, what=what, value=seconds, unit="s")
    if found.way > 0:
        record(model=name, precision=precision, what="hidden", value=found.hidden)
    say(
        f"  {'taskflow':34s} {found.step * 1e3:9.3f} ms ({found.least * 1e3:.3f} to {found.most * 1e3:.3f})"
    )
    parts = f"{found.graphs} graphs and {found.issued} issued parts"
    end = verdict(found.host <= HOST_SECONDS, f"{HOST_SECONDS * 1e6:.0f} us")
    say(f"  host {found.host * 1e6:.1f} us, {parts}  {end}")
    end = verdict(found.hidden >= HIDDEN_SHARE, f"{HIDDEN_SHARE:.0%}")
    say(f"  batch hidden {found.hidden:.0%} of {found.way * 1e6:.0f} us  {end}")
    for kind, seconds in sorted(kinds.items(), key=lambda pair: -pair[1])[:KINDS_SHOWN]:
        record(model=name, precision=precision, what="without", row=kind, value=seconds, unit="s")
        say(f"    without {kind:40s} {seconds * 1e6:9.1f} us less")


def _tell_prediction(
    setting: Setting, name: str, graph: Graph, precision: str, seconds: float
) -> None:
    machine = setting.machine()
    costs = CostModel.measured(machine, backend=setting.backend())
    rows = lower(graph, taskflow.single_device(graph, machine), machine)
    predicted = taskflow.simulate(rows, costs).seconds
    error = predicted / seconds - 1
    record(model=name, precision=precision, what="predicted", value=predicted, unit="s")
    end = verdict(abs(error) <= PREDICTED_ERROR, f"{PREDICTED_ERROR:.0%}")
    say(f"  predicted {predicted * 1e3:.3f} ms, {error:+.1%}  {end}")


def beside_torch(
    setting: Setting, name: str, case: Case, precision: str, feeds: dict[str, Array], ours: float
) -> None:
    """PyTorch's variants, one line each, and the ratio to the fastest; one that fails is a line, too."""
    torch_side = find_torch(setting)
    theirs: dict[str, float] = {}
    for variant, options in (torch_side.variants(name) if torch_side else {}).items():
        try:
            step = torch_side.make_step(name, case, feeds, precision, **options)
            seconds = float(np.median(torch_side.seconds_of(step, 20, 5)))
        except Exception as error:
            reason = str(error).partition("\n")[0][:120]
            say(f"  {variant:34s} fails: {type(error).__name__}: {reason}")
            continue
        theirs[variant] = seconds
        record(model=name, precision=precision, what=variant, value=seconds, unit="s")
        say(f"  {variant:34s} {seconds * 1e3:9.3f} ms, taskflow/it {ours / seconds:5.2f}")
    if theirs:
        wanted = case.targets[precision]
        ratio = ours / min(theirs.values())
        say(f"  to the fastest: {ratio:.2f}  {verdict(ratio <= wanted, f'{wanted:.2f}')}")


def fill(setting: Setting, name: str, mode: str) -> None:
    """Compile what `beside_torch` runs in a mode, so that its caches are filled; nothing is timed."""
    torch_side, case = find_torch(setting), setting.cases()[name]
    for precision in case.precisions if torch_side else ():
        feeds = case.feeds(case.graph(precision))
        for variant, options in torch_side.variants(name).items():
            if options.get("compiled") == mode:
                torch_side.make_step(name, case, feeds, precision, **options)()
                say(f"{variant}, {name}, {precision}: compiled")
